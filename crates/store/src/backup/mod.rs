//! Backs up a whole store into one file, and restores it. A backup of one engine can be restored into the other.

mod check;
mod format;
mod restore;
mod write;

use std::io;

use crate::backend::StoreError;

pub use check::{Checked, check};
pub use restore::Restoring;

/// The tables in a backup: all except `usage`, which is counted again, and `schema_version`, which is the program's.
pub const TABLES: [&str; 8] = ["catalogs", "runs", "legs", "calls", "approvals", "rules", "transcript", "sealing_keys"];

/// Why a backup cannot be written, checked or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("cannot read the backup: {0}")]
    Read(#[source] io::Error),
    #[error("cannot write the backup: {0}")]
    Write(#[source] io::Error),
    #[error("the file is not a Cellmate backup; check its path")]
    NotABackup,
    #[error("the backup is truncated; use another backup")]
    Cut,
    #[error("the backup is damaged ({0}); use another backup")]
    Damaged(&'static str),
    #[error("the backup has an unknown format ({found}); upgrade this program")]
    Format { found: u32 },
    #[error(
        "the backup was written by a newer version of this program (schema {found}; this version supports up to {known}); upgrade this program"
    )]
    TooNew { found: i64, known: i64 },
    #[error("the store is not empty; pass `--replace` to replace its contents with the backup")]
    NotEmpty,
    #[error("the backup changed after it was checked, so nothing was restored; try again")]
    Changed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
