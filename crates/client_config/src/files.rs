//! Reads configuration files, with a limit on the size of each, and writes files of our own that only the user can read.
//!
//! This is our own reader, because the readers of libraries have no limit and block on a pipe.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use contract::limits::{MAX_CONFIG_FILE_BYTES, MAX_USER_FILE_BYTES};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("it cannot be read ({0})")]
    Unreadable(ErrorKind),
    #[error("it is not Unicode text")]
    NotText,
    #[error("it has more than {limit} bytes, the limit for this file")]
    TooLong { limit: usize },
}

/// Writes a file atomically. Only the user can read it and its folder, which is created if it does not exist.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Temporary files are created readable by their owner only.
    let mut new = NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// The SHA-256 of a file's content, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentHash(String);

impl ContentHash {
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(content)))
    }

    /// Wraps a hash that was recorded earlier.
    pub(crate) fn parse(digits: &str) -> Self {
        Self(digits.to_owned())
    }

    /// Returns the hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a file's text. Returns `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    read_bytes(path)?.map(text).transpose()
}

/// Reads the text of a file that the user named, of at most [`MAX_USER_FILE_BYTES`]. It may be a pipe.
pub(crate) fn read_named(path: &Path) -> Result<Option<String>, FileError> {
    bounded(File::open(path), MAX_USER_FILE_BYTES)?.map(text).transpose()
}

/// Reads the text of a client's file in the user's own folders, of at most [`MAX_USER_FILE_BYTES`].
pub(crate) fn read_users(path: &Path) -> Result<Option<String>, FileError> {
    bounded(open(path), MAX_USER_FILE_BYTES)?.map(text).transpose()
}

/// Reads a file's content without blocking: a pipe in place of a project's file reads as empty.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    bounded(open(path), MAX_CONFIG_FILE_BYTES)
}

fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

pub(crate) fn text(content: Vec<u8>) -> Result<String, FileError> {
    String::from_utf8(content).map_err(|_| FileError::NotText)
}

fn bounded(opened: io::Result<File>, limit: usize) -> Result<Option<Vec<u8>>, FileError> {
    let unreadable = |error: io::Error| FileError::Unreadable(error.kind());
    let file = match opened {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut content = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() > limit {
        return Err(FileError::TooLong { limit });
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_CONFIG_FILE_BYTES;

    use super::{ContentHash, FileError, read, read_users};

    #[test]
    fn a_file_over_the_limit_is_refused_and_one_at_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json5");
        std::fs::write(&path, " ".repeat(MAX_CONFIG_FILE_BYTES)).unwrap();
        assert_eq!(read(&path).unwrap().map(|text| text.len()), Some(MAX_CONFIG_FILE_BYTES));
        std::fs::write(&path, " ".repeat(MAX_CONFIG_FILE_BYTES + 1)).unwrap();
        assert!(matches!(read(&path), Err(FileError::TooLong { .. })));
        assert_eq!(read_users(&path).unwrap().map(|text| text.len()), Some(MAX_CONFIG_FILE_BYTES + 1));
        // `/dev/zero` is endless, so only a bounded read returns.
        assert!(matches!(read(std::path::Path::new("/dev/zero")), Err(FileError::TooLong { .. })));
        assert!(read(&folder.path().join("none")).unwrap().is_none());
    }

    #[test]
    fn a_pipe_without_a_writer_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(read(&path).unwrap().as_deref(), Some(""));
    }

    #[test]
    fn content_is_hashed_with_sha256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(ContentHash::of(b"abc").as_str(), expected);
    }
}
