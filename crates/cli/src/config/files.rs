//! The one place where configuration is read from files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Claude Code keeps whole conversations in its file; what is longer than this was not written by people.
const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("it cannot be read ({0})")]
    Unreadable(ErrorKind),
    #[error("it is not Unicode text")]
    NotText,
    #[error("it has more than {MAX_FILE_BYTES} bytes")]
    TooLong,
}

/// Nothing where there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    let unreadable = |error: std::io::Error| FileError::Unreadable(error.kind());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(FileError::TooLong);
    }
    String::from_utf8(bytes).map(Some).map_err(|_| FileError::NotText)
}
