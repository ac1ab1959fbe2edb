//! The content of a plugin's folder: a bounded list of regular files, and one hash of all of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use contract::limits::{MAX_PLUGIN_BYTES, MAX_PLUGIN_FILES};
use sha2::{Digest, Sha256};

/// Folders that are not part of a plugin when it is added.
const LEFT_OUT: [&str; 2] = [".git", "__pycache__"];

/// How deep folders nest.
const MAX_FOLDER_DEPTH: usize = 32;

/// Whether folders that tools create beside a plugin's files are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderKind {
    /// The author's folder, which is copied.
    Source,
    /// The copy, of which every file counts.
    Copy,
}

/// A file of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PluginFile {
    /// The path below the plugin's folder.
    pub(super) path: String,
    pub(super) is_executable: bool,
    pub(super) content: Vec<u8>,
}

/// Why the content of a folder cannot be a plugin's.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("cannot read `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` is not a regular file or folder; a plugin has no symbolic links, pipes or devices")]
    Special(PathBuf),
    #[error("`{0}` has a name that is not Unicode; rename it")]
    Name(PathBuf),
    #[error("the folder `{0}` has more than {MAX_PLUGIN_FILES} files or nests deeper than {MAX_FOLDER_DEPTH} folders")]
    TooManyFiles(PathBuf),
    #[error("the folder `{0}` has more than {MAX_PLUGIN_BYTES} bytes")]
    TooLarge(PathBuf),
}

/// Reads the files of a folder one by one, in the order of their paths, and returns the hash of all.
pub(super) fn read(
    root: &Path,
    reading: FolderKind,
    mut each: impl FnMut(PluginFile) -> Result<(), ContentError>,
) -> Result<String, ContentError> {
    let mut paths = Vec::new();
    let mut entries = 0;
    collect(root, "", reading, 0, &mut entries, &mut paths)?;
    paths.sort_unstable();
    let mut hash = Sha256::new();
    let mut left = MAX_PLUGIN_BYTES;
    for path in paths {
        let file = read_file(root, path, left)?;
        left -= file.content.len();
        let head = format!("{}\0{}\0{}\0", file.path, u8::from(file.is_executable), file.content.len());
        hash.update(head.as_bytes());
        hash.update(&file.content);
        each(file)?;
    }
    Ok(hex::encode(hash.finalize()))
}

fn collect(
    root: &Path,
    below: &str,
    reading: FolderKind,
    depth: usize,
    entries: &mut usize,
    paths: &mut Vec<String>,
) -> Result<(), ContentError> {
    let folder = root.join(below);
    let failed = |source| ContentError::File { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        *entries += 1;
        if *entries > MAX_PLUGIN_FILES || depth > MAX_FOLDER_DEPTH {
            return Err(ContentError::TooManyFiles(root.to_owned()));
        }
        let Ok(name) = entry.file_name().into_string() else { return Err(ContentError::Name(entry.path())) };
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && reading == FolderKind::Source && LEFT_OUT.contains(&name.as_str()) {
            continue;
        } else if kind.is_dir() {
            collect(root, &path, reading, depth + 1, entries, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        } else {
            return Err(ContentError::Special(entry.path()));
        }
    }
    Ok(())
}

fn read_file(root: &Path, below: String, most: usize) -> Result<PluginFile, ContentError> {
    let path = root.join(&below);
    let failed = |source| ContentError::File { path: path.clone(), source };
    let file = open(&path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(ContentError::Special(path));
    }
    let mut content = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut content).map_err(failed)?;
    if content.len() > most {
        return Err(ContentError::TooLarge(root.to_owned()));
    }
    Ok(PluginFile { path: below, is_executable: found.mode() & 0o100 != 0, content })
}

/// Opens a file without following a symbolic link, and without waiting if it has become a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    OpenOptions::new().read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default()).open(path)
}
