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

use super::CancelFlag;
use super::open::{READ, read_whole};
use crate::core::beneath::{Links, Resolver, open_beneath};

/// The names of the files with rules that any folder may have. Rules of later files take precedence.
pub(super) const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The rules of a folder, and those of its parent folders.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    /// The folder, relative to the start of the walk; empty for the start and for its parent folders.
    folder: PathBuf,
    /// The path from the rules' folder to the start of the walk, if that folder is an ancestor of the start; empty
    /// otherwise.
    prefix: PathBuf,
    rules: Gitignore,
    parent: Option<Arc<IgnoreRules>>,
}

impl IgnoreRules {
    /// Reads the rules of an open folder from these files. If it has none, returns `parent`, the rules of its parent
    /// folders. `folder` and `prefix` are the fields of `IgnoreRules`.
    pub(super) fn read(
        opened: &impl AsFd,
        files: &[&str],
        folder: PathBuf,
        prefix: PathBuf,
        parent: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let mut builder = GitignoreBuilder::new("");
        let mut has_any = false;
        for name in files {
            let Some(text) = read_rules(opened, name) else { continue };
            for line in text.lines() {
                // A rule that cannot be parsed is skipped, as by git.
                has_any |= builder.add_line(None, line).is_ok();
            }
        }
        let rules = if has_any { builder.build().ok() } else { None };
        match rules {
            Some(rules) => Some(Arc::new(Self { folder, prefix, rules, parent })),
            None => parent,
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
            next = rules.parent.as_deref();
        }
        false
    }
}

/// Reads a file with rules. `None` if it does not exist, is too large, or is not a regular file in this folder.
fn read_rules(folder: &impl AsFd, name: &str) -> Option<String> {
    let flags = READ | OFlags::NOFOLLOW;
    let opened = if name.contains('/') {
        open_beneath(Resolver::best(), folder.as_fd(), Path::new(name), flags, Links::Refuse).ok()?
    } else {
        openat(folder, OsStr::new(name), flags, Mode::empty()).ok()?
    };
    let is_file = fstat(&opened).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let content = read_whole(&mut File::from(opened), MAX_IGNORE_FILE_BYTES, &CancelFlag::default());
    content.ok().filter(|_| is_file).map(|content| String::from_utf8_lossy(&content).into_owned())
}
