//! Opens regular files and folders below a root. Nothing else is opened: a device or pipe could block or have effects.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs};
use rustix::io::Errno;

use super::CancelFlag;
use super::failure::{Failure, refused};
use crate::core::beneath::Links;
use crate::core::roots::{Place, Roots, shorten};

/// An open regular file, and what the system said of it when it was opened.
pub(super) struct RegularFile {
    pub(super) file: File,
    pub(super) stat: Stat,
}

/// Flags for a file whose content is read: it does not block if it is a pipe after all.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a regular file.
pub(super) fn open_file(roots: &Roots, place: &Place) -> Result<RegularFile, Failure> {
    let failed = |error| refused(roots, place, error);
    // Opening only the path has no effect on devices.
    let seen = place.root.open_below(&place.below, OFlags::PATH, Links::Follow).map_err(failed)?;
    check_regular(place, &fstat(&seen).map_err(failed)?)?;
    let opened = place.root.open_below(&place.below, READ, Links::Follow).map_err(failed)?;
    let stat = fstat(&opened).map_err(failed)?;
    // Another entry may have taken its place since.
    check_regular(place, &stat)?;
    check_file_system(place, &opened)?;
    Ok(RegularFile { file: File::from(opened), stat })
}

/// Opens a folder to list it.
pub(super) fn open_folder(roots: &Roots, place: &Place) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let opened = place.root.open_below(&place.below, flags, Links::Follow);
    let opened = opened.map_err(|error| refused(roots, place, error))?;
    check_file_system(place, &opened)?;
    Ok(opened)
}

/// Returns what a path is, with links followed.
pub(super) fn kind(roots: &Roots, place: &Place) -> Result<FileType, Failure> {
    let failed = |error| refused(roots, place, error);
    let seen = place.root.open_below(&place.below, OFlags::PATH, Links::Follow).map_err(failed)?;
    Ok(FileType::from_raw_mode(fstat(&seen).map_err(failed)?.st_mode))
}

/// Fails unless it is a regular file.
pub(super) fn check_regular(place: &Place, stat: &Stat) -> Result<(), Failure> {
    let path = shorten(&place.shown);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Failure::new(format!("`{path}` is a folder; list it with `ls`"))),
        FileType::Symlink => Err(Failure::new(format!("`{path}` is a symbolic link; name the file that it points to"))),
        FileType::Fifo => Err(special(&path, "a pipe")),
        FileType::Socket => Err(special(&path, "a socket")),
        FileType::CharacterDevice | FileType::BlockDevice => Err(special(&path, "a device")),
        FileType::Unknown => Err(special(&path, "not a regular file")),
    }
}

fn special(path: &str, what: &str) -> Failure {
    Failure::new(format!("`{path}` is {what}; the file tools use only regular files and folders"))
}

/// File systems whose files are interfaces of the kernel: reading or writing them can reveal secrets of this process, or
/// change the system. The numbers are those of `linux/magic.h`.
const KERNEL_FILE_SYSTEMS: [u64; 12] = [
    PROC_SUPER_MAGIC as u64,
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xf97c_ff8c, // selinuxfs
    0x4249_4e4d, // binfmt_misc
    0xde5e_81e4, // efivarfs
];

/// Fails if the file belongs to an interface of the kernel, such as `/proc`.
fn check_file_system(place: &Place, opened: &impl AsFd) -> Result<(), Failure> {
    let kind = fstatfs(opened).map(|found| found.f_type as u64 & 0xffff_ffff);
    match kind {
        Ok(kind) if KERNEL_FILE_SYSTEMS.contains(&kind) => {
            let path = shorten(&place.shown);
            Err(Failure::new(format!(
                "`{path}` is an interface of the kernel, not a file; the file tools do not use it"
            )))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Reads a whole file of at most `limit` bytes.
pub(super) fn read_whole(file: &mut File, limit: usize, cancel: &CancelFlag) -> Result<Vec<u8>, ReadError> {
    let mut content = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        if cancel.is_requested() {
            return Err(ReadError::Stopped);
        }
        let count = match file.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ReadError::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        };
        if count == 0 {
            return Ok(content);
        }
        if content.len() + count > limit {
            return Err(ReadError::TooLarge);
        }
        content.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}

/// Why a file was not read as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    Stopped,
    TooLarge,
    System(Errno),
}
