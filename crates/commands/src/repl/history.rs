//! The lines that were typed at earlier prompts, in a file that only its owner can read. Each line of the file is an
//! entry as a JSON string, because an entry may have several lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::state::{State, lock_beside, replace_private_file};

/// The name of the file in the state folder.
const FILE: &str = "repl-history";

/// The entries and the bytes that the file has at most after a prompt has opened it.
const MAX_ENTRIES: usize = 1_000;
const MAX_BYTES: u64 = 1 << 20;

/// The longest entry that is kept.
const MAX_ENTRY_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct HistoryFile(PathBuf);

impl HistoryFile {
    pub(super) fn of(state: &State) -> Self {
        Self(state.path(FILE))
    }

    /// Returns the newest entries, oldest first, and removes older ones from the file if it is too long.
    pub(super) fn load(&self) -> io::Result<Vec<String>> {
        let _lock = lock_beside(&self.0)?;
        let text = match read(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let entries = newest(&text);
        let kept: String = entries.iter().map(|entry| written(entry)).collect();
        if kept.len() < text.len() {
            replace_private_file(&self.0, kept)?;
        }
        Ok(entries)
    }

    /// Adds an entry at the end.
    pub(super) fn add(&self, entry: &str) -> io::Result<()> {
        if entry.len() > MAX_ENTRY_BYTES {
            return Ok(());
        }
        let _lock = lock_beside(&self.0)?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.0)?;
        file.write_all(written(entry).as_bytes())
    }
}

/// Reads the end of a file, from the beginning of a line on.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(MAX_BYTES);
    let mut bytes = Vec::new();
    io::Seek::seek(&mut file, io::SeekFrom::Start(skipped))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the newest entries of a file's text. Lines that are no entries are left out.
fn newest(text: &str) -> Vec<String> {
    let mut entries: Vec<String> =
        text.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).take(MAX_ENTRIES).collect();
    entries.reverse();
    entries
}

fn written(entry: &str) -> String {
    format!("{}\n", serde_json::Value::from(entry))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{HistoryFile, MAX_BYTES, MAX_ENTRIES, MAX_ENTRY_BYTES};

    #[test]
    fn entries_of_several_lines_are_kept_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let history = HistoryFile(folder.path().join("h"));
        assert_eq!(history.load().unwrap(), Vec::<String>::new());
        history.add("f(\n1)").unwrap();
        history.add("\u{1b}\"x\"").unwrap();
        history.add(&"x".repeat(MAX_ENTRY_BYTES + 1)).unwrap();
        assert_eq!(history.load().unwrap(), ["f(\n1)", "\u{1b}\"x\""]);
        assert_eq!(std::fs::metadata(&history.0).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_with_too_many_entries_or_bytes_is_shortened() {
        let folder = tempfile::tempdir().unwrap();
        let history = HistoryFile(folder.path().join("h"));
        let many: String = (0..MAX_ENTRIES + 10).map(|number| format!("\"{number}\"\n")).collect();
        std::fs::write(&history.0, format!("broken\n{many}")).unwrap();
        let entries = history.load().unwrap();
        assert_eq!((entries.len(), entries[0].as_str()), (MAX_ENTRIES, "10"));
        assert_eq!(std::fs::read_to_string(&history.0).unwrap().lines().count(), MAX_ENTRIES);
        let long = format!("\"{}\"\n", "x".repeat(10_000));
        std::fs::write(&history.0, long.repeat(200)).unwrap();
        assert_eq!(history.load().unwrap().len() as u64, MAX_BYTES / long.len() as u64);
        assert!(std::fs::metadata(&history.0).unwrap().len() <= MAX_BYTES);
    }
}
