//! A whole store in one file, and back: from either engine into either.

mod check;
mod format;
mod restore;
mod write;

use std::io;

use crate::backend::StoreError;

pub use check::{Checked, check};
pub use restore::Restoring;

/// Every table but two: how much each principal has is counted anew, and the schema is the program's.
pub const TABLES: [&str; 8] = ["catalogs", "runs", "legs", "calls", "approvals", "rules", "transcript", "sealing_keys"];

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("the backup cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("the backup cannot be written: {0}")]
    Write(#[source] io::Error),
    #[error("this is no backup of cellmate's")]
    NotABackup,
    #[error("the backup ends before its end: it was cut, or never finished; take another")]
    Cut,
    #[error("the backup is damaged ({0}); take another")]
    Damaged(&'static str),
    #[error("the backup is of a format this program does not know ({found}); upgrade it")]
    Format { found: u32 },
    #[error("the backup is of a newer program (schema {found}, this one knows {known}); upgrade this one")]
    TooNew { found: i64, known: i64 },
    #[error("the store is not empty; `--replace` puts the backup in place of what it holds")]
    NotEmpty,
    #[error("the backup is another than the one that was checked; nothing was changed")]
    Changed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
