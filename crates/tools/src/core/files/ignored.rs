//! Ignore rules: `.gitignore`, `.ignore` and `.git/info/exclude`, as `git` and ripgrep apply them.
//!
//! Rules outside the root, such as those of the user's git configuration, are not read.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::limits::MAX_IGNORE_FILE_BYTES;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use super::Stop;
use super::open::{READ, read_whole};
use crate::core::beneath::{Links, Resolver, open_beneath};

/// The files with rules in a folder. A later one is stronger.
pub(super) const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The rules of a folder, and those of the folders around it.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    /// The folder, relative to the start of the walk; empty for the start and for folders around it.
    folder: PathBuf,
    /// What is put before a path relative to `folder`, if the rules belong to a folder around the start.
    prefix: PathBuf,
    rules: Gitignore,
    around: Option<Arc<IgnoreRules>>,
}

impl IgnoreRules {
    /// Reads the rules of an open folder. Returns those around it if there are none.
    pub(super) fn read(
        folder: &impl AsFd,
        files: &[&str],
        place: (PathBuf, PathBuf),
        around: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let mut builder = GitignoreBuilder::new("");
        let mut has_any = false;
        for name in files {
            let Some(text) = read_rules(folder, name) else { continue };
            for line in text.lines() {
                // A rule that cannot be parsed is skipped, as by git.
                has_any |= builder.add_line(None, line).is_ok();
            }
        }
        let rules = if has_any { builder.build().ok() } else { None };
        match rules {
            Some(rules) => Some(Arc::new(Self { folder: place.0, prefix: place.1, rules, around })),
            None => around,
        }
    }

    /// Whether a path, relative to the start of the walk, is ignored.
    pub(super) fn ignores(&self, path: &Path, kind: FileType) -> bool {
        let mut next = Some(self);
        while let Some(rules) = next {
            if let Ok(below) = path.strip_prefix(&rules.folder) {
                match rules.rules.matched(rules.prefix.join(below), kind == FileType::Directory) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            next = rules.around.as_deref();
        }
        false
    }
}

/// Reads a file with rules. One that is too large, or is not a regular file in this folder, has none.
fn read_rules(folder: &impl AsFd, name: &str) -> Option<String> {
    let flags = READ | OFlags::NOFOLLOW;
    let opened = if name.contains('/') {
        open_beneath(Resolver::best(), folder.as_fd(), Path::new(name), flags, Links::Refuse).ok()?
    } else {
        openat(folder, OsStr::new(name), flags, Mode::empty()).ok()?
    };
    let is_file = fstat(&opened).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let content = read_whole(&mut File::from(opened), MAX_IGNORE_FILE_BYTES, &Stop::default());
    content.ok().filter(|_| is_file).map(|content| String::from_utf8_lossy(&content).into_owned())
}
