//! A log file of bounded size that several processes can append to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use contract::limits::{MAX_LOG_FILE_BYTES, MAX_LOG_LINE_BYTES};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

/// The file that is written to, and the one before it.
const CURRENT: &str = "cellmate.log";
const PREVIOUS: &str = "cellmate.log.1";

/// The current log file. When it is full it becomes the previous one, which is replaced.
#[derive(Debug)]
pub(super) struct LogFile {
    folder: PathBuf,
    open: Mutex<File>,
}

impl LogFile {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let open = Mutex::new(append_to(&folder.join(CURRENT))?);
        Ok(Self { folder: folder.to_owned(), open })
    }

    /// Appends one line. A failure to log is not reported: there is nowhere to report it to.
    pub(super) fn append(&self, line: &str) {
        let mut file = self.open.lock();
        if let Ok(Some(next)) = self.rotated(&file) {
            *file = next;
        }
        let written = if line.len() > MAX_LOG_LINE_BYTES {
            let dropped =
                serde_json::json!({"level": "WARN", "message": "an event was too long to log", "bytes": line.len()});
            file.write_all(format!("{dropped}\n").as_bytes())
        } else {
            file.write_all(line.as_bytes())
        };
        written.ok();
    }

    /// Returns the file to write to if it is no longer `file`: because that is full, or another process rotated it.
    fn rotated(&self, file: &File) -> io::Result<Option<File>> {
        let path = self.folder.join(CURRENT);
        let ours = file.metadata()?;
        let is_current = fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino()));
        if !is_current {
            return append_to(&path).map(Some);
        }
        if ours.len() < MAX_LOG_FILE_BYTES {
            return Ok(None);
        }
        // Processes that find the file full at once take turns, so that only the first renames it.
        flock(file, FlockOperation::LockExclusive)?;
        let still_current = fs::metadata(&path).is_ok_and(|now| now.ino() == ours.ino());
        if still_current {
            fs::rename(&path, self.folder.join(PREVIOUS))?;
        }
        let next = append_to(&path);
        flock(file, FlockOperation::Unlock)?;
        next.map(Some)
    }
}

/// The paths of both log files in the order in which they were written.
pub(super) fn paths(folder: &Path) -> [PathBuf; 2] {
    [folder.join(PREVIOUS), folder.join(CURRENT)]
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use contract::limits::{MAX_LOG_FILE_BYTES, MAX_LOG_LINE_BYTES};

    use super::{CURRENT, LogFile, PREVIOUS};

    #[test]
    fn a_full_file_becomes_the_previous_one_and_both_stay_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (LogFile::open(folder.path()).unwrap(), LogFile::open(folder.path()).unwrap());
        let line = format!("{}\n", "x".repeat(MAX_LOG_LINE_BYTES - 1));
        let lines = 3 * MAX_LOG_FILE_BYTES as usize / line.len();
        for number in 0..lines {
            if number % 2 == 0 { first.append(&line) } else { second.append(&line) }
        }
        let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
        let max = MAX_LOG_FILE_BYTES + MAX_LOG_LINE_BYTES as u64;
        assert!((1..=max).contains(&size(CURRENT)) && (1..=max).contains(&size(PREVIOUS)));
        first.append("last\n");
        assert!(std::fs::read_to_string(folder.path().join(CURRENT)).unwrap().ends_with("last\n"));
    }

    #[test]
    fn a_line_that_is_too_long_is_replaced_by_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let file = LogFile::open(folder.path()).unwrap();
        file.append(&"x".repeat(MAX_LOG_LINE_BYTES + 1));
        let text = std::fs::read_to_string(folder.path().join(CURRENT)).unwrap();
        assert!(text.contains("too long to log") && text.len() < 200, "{text}");
    }
}
