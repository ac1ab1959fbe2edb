//! Opens files and folders below a root, so that neither `..`, a symbolic link nor a race leads outside.
//!
//! The kernel does it in one call where it has `openat2`. Elsewhere the names are opened one after the other, each
//! relative to the open folder before it and without following links; a link is read and its target is walked in the same
//! way. Both follow relative links that stay inside the root, and refuse absolute ones wherever they lead.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::OnceLock;

use contract::limits::MAX_FILE_PATH_DEPTH;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat, statat};
use rustix::io::{Errno, Result};

use super::roots::Root;

/// How paths below a root are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// By the kernel, with `openat2`.
    Kernel,
    /// Name by name, for kernels before 5.6 and containers that do not permit `openat2`.
    Walk,
}

/// What happens at a symbolic link inside the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    /// A link anywhere in the path is an error.
    Refuse,
}

/// How often `openat2` is repeated if a folder was moved while it looked at `..` in a link.
const KERNEL_ATTEMPTS: usize = 32;

/// Links that one path may lead through: the limit of Linux.
const MAX_LINKS: usize = 40;

impl Resolver {
    /// Returns the best resolver of this system.
    pub fn best() -> Self {
        static BEST: OnceLock<Resolver> = OnceLock::new();
        *BEST.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // Old kernels answer `ENOSYS`, and some containers `EPERM`.
            match openat2(rustix::fs::CWD, "/", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
                Ok(_) => Self::Kernel,
                Err(_) => Self::Walk,
            }
        })
    }
}

impl Root {
    /// Opens a path of plain names below the root. The flags must not create anything.
    ///
    /// A path that leads outside is `EXDEV`.
    pub(crate) fn open_below(&self, below: &Path, flags: OFlags, links: Links) -> Result<OwnedFd> {
        open_beneath(self.resolver(), self.folder(), below, flags, links)
    }
}

/// Opens a path of plain names below an open folder. The flags must not create anything.
pub(crate) fn open_beneath(
    resolver: Resolver,
    folder: BorrowedFd<'_>,
    below: &Path,
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd> {
    // `openat2` refuses flags that it would ignore.
    let flags = flags | OFlags::CLOEXEC;
    match resolver {
        Resolver::Kernel => open_in_kernel(folder, below, flags, links),
        Resolver::Walk => walk(folder, below, flags, links),
    }
}

fn open_in_kernel(root: BorrowedFd<'_>, below: &Path, flags: OFlags, links: Links) -> Result<OwnedFd> {
    let confined = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let resolve = match links {
        Links::Follow => confined,
        Links::Refuse => confined | ResolveFlags::NO_SYMLINKS,
    };
    let path = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let mut attempts = 0;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if attempts < KERNEL_ATTEMPTS => attempts += 1,
            Err(Errno::INTR) => {}
            opened => return opened,
        }
    }
}

/// The folders from the root to the current one, without the root, and the names that are left.
struct Position<'r> {
    root: BorrowedFd<'r>,
    folders: Vec<OwnedFd>,
    names: VecDeque<OsString>,
    links: usize,
    steps: usize,
}

fn walk(root: BorrowedFd<'_>, below: &Path, flags: OFlags, links: Links) -> Result<OwnedFd> {
    let names = below.iter().map(OsStr::to_owned).collect();
    let mut position = Position { root, folders: Vec::new(), names, links: 0, steps: 0 };
    while let Some(name) = position.names.pop_front() {
        position.count_step()?;
        if name == ".." {
            // The folder from which this one was entered, even if this one was moved since.
            position.folders.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        let here = position.here();
        let found = openat(here, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Symlink if links == Links::Refuse => return Err(Errno::LOOP),
            FileType::Symlink => {
                let target = readlinkat(&found, "", Vec::new())?;
                position.enter_link(OsStr::from_bytes(target.as_bytes()))?;
            }
            FileType::Directory => position.folders.push(found),
            // If a link has taken its place since, the flag makes this fail.
            _ if position.names.is_empty() => return openat(here, &name, flags | OFlags::NOFOLLOW, Mode::empty()),
            _ => return Err(Errno::NOTDIR),
        }
    }
    openat(position.here(), ".", flags, Mode::empty())
}

impl Position<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.folders.last().map_or(self.root, AsFd::as_fd)
    }

    /// Bounds the work and the open folders of one path, links included.
    fn count_step(&mut self) -> Result<()> {
        self.steps += 1;
        let is_bounded = self.steps <= 4 * MAX_FILE_PATH_DEPTH && self.folders.len() <= MAX_FILE_PATH_DEPTH;
        if is_bounded { Ok(()) } else { Err(Errno::NAMETOOLONG) }
    }

    fn enter_link(&mut self, target: &OsStr) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let mut names = Vec::new();
        for component in Path::new(target).components() {
            match component {
                Component::Normal(name) => names.push(name.to_owned()),
                Component::ParentDir => names.push(OsString::from("..")),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
            }
        }
        for name in names.into_iter().rev() {
            self.names.push_front(name);
        }
        Ok(())
    }
}

/// Returns what an entry of an open folder is, without following a link.
pub(crate) fn type_of(folder: BorrowedFd<'_>, name: &OsStr) -> Result<FileType> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| FileType::from_raw_mode(found.st_mode))
}

#[cfg(test)]
mod tests;
