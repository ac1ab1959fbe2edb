//! Files that only their owner can read, written atomically.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use telemetry::LogIgnored;

/// Creates a file that only its owner can read, atomically. An existing file is kept.
pub fn create_private_file(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let draft = draft(path, content.as_ref())?;
    let created = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    fs::remove_file(&draft).log_ignored("remove a draft of a file");
    created
}

/// Replaces a file, atomically, with one that only its owner can read.
pub fn replace_private_file(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let draft = draft(path, content.as_ref())?;
    fs::rename(&draft, path).inspect_err(|_| fs::remove_file(&draft).log_ignored("remove a draft of a file"))
}

/// Writes a new file next to `path` and syncs it to disk.
fn draft(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let draft = path.with_file_name(format!(".secret-{}-{:016x}", std::process::id(), u64::from_ne_bytes(random)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(draft)
}
