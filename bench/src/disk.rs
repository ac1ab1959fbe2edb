//! The time that the disk takes for one synchronised write: the least that a commit costs which must survive a power
//! failure.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use figures::Samples;

use crate::Result;
use crate::stats::us_since;

/// The bytes of one write: one page of the store's write-ahead log.
const BLOCK_BYTES: usize = 4096;

/// The blocks of the file, which are written in turn.
const BLOCKS: u64 = 256;

/// A file whose blocks exist already, so that a write changes no metadata, as in a write-ahead log that is reused.
pub(crate) struct SyncedFile {
    file: File,
    next: u64,
}

impl SyncedFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path)?;
        for block in 0..BLOCKS {
            file.write_all_at(&[0; BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
        }
        file.sync_all()?;
        Ok(Self { file, next: 0 })
    }

    /// Writes blocks one by one and waits for each. The samples are in microseconds.
    pub(crate) fn write(&mut self, count: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..count {
            let from = Instant::now();
            self.file.write_all_at(&[1; BLOCK_BYTES], (self.next % BLOCKS) * BLOCK_BYTES as u64)?;
            self.file.sync_data()?;
            samples.push(us_since(from));
            self.next += 1;
        }
        Ok(samples)
    }
}
