//! Growth of the store on disk while a cell runs.

use std::path::{Path, PathBuf};

/// How much one cell may add to the files of the store. It is room for the journal, for a snapshot of the largest size
/// that a hostile cell configures, and for what a database needs around them: pages, indexes, the write-ahead log.
const MAX_STORE_GROWTH_BYTES: u64 = 2 * (contract::limits::MAX_JOURNAL_BYTES as u64) + (96 << 20);

/// The growth of a SQLite store on disk, its write-ahead log included.
#[derive(Debug)]
pub(super) struct StoreGrowth {
    files: [PathBuf; 2],
    start: u64,
}

impl StoreGrowth {
    /// Measures the growth from now on.
    pub(super) fn start(database: &Path) -> Self {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let mut growth = Self { files: [database.to_owned(), log.into()], start: 0 };
        growth.start = growth.size();
        growth
    }

    /// Returns a message if the store has grown by more than one cell may add.
    pub(super) fn problem(&self) -> Option<String> {
        let grown = self.size().saturating_sub(self.start);
        (grown > MAX_STORE_GROWTH_BYTES)
            .then(|| format!("the store has grown by {} MiB of {}", grown >> 20, MAX_STORE_GROWTH_BYTES >> 20))
    }

    /// Returns the current size of the files.
    fn size(&self) -> u64 {
        self.files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum()
    }
}
