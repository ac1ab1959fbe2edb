//! Errors of the store, in two forms: the whole cause for logs, and a safe sentence for models and clients.

use std::io;
use std::path::PathBuf;

use crate::tls::{self, WeakTls};

/// Why the store cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store failed: {0}")]
    Sql(#[from] sqlx::Error),
    /// An error of the thread that writes an SQLite file.
    #[error("the store failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the store contains data that this program cannot read: {0}")]
    Corrupt(String),
    #[error(
        "the store was written by a newer version of this program (schema {found}; this version supports up to {known}); upgrade this program"
    )]
    TooNew { found: i64, known: i64 },
    #[error(
        "key {id} of the key file is not the key {id} that {cells} suspended cells in the store are sealed with; use the key file of the store's other processes (`--key-file` on the command line), or wait until those cells have expired"
    )]
    OtherKey { id: u32, cells: u64 },
    #[error("an output is larger than {limit} bytes and is not stored; ask the tool for less at once")]
    OutputTooLarge { limit: u64 },
    #[error("an output that should be text is not valid UTF-8 and is not stored")]
    InvalidText,
    #[error("an output was deleted, or written by another process, before it was complete")]
    OutputLost,
    #[error("{limit} tokens are in force already; revoke some of them with `cellmate tokens revoke ID`")]
    TooManyTokens { limit: usize },
    #[error(transparent)]
    Injected(#[from] fault::InjectedFault),
    #[error(transparent)]
    WeakTls(#[from] WeakTls),
    #[error(
        "cannot create `{path}` or restrict its permissions to its owner: {source}; choose a path where you may create files"
    )]
    Exposed { path: PathBuf, source: io::Error },
}

impl From<tls::AddressError> for StoreError {
    fn from(problem: tls::AddressError) -> Self {
        match problem {
            tls::AddressError::Weak(weak) => Self::WeakTls(weak),
            tls::AddressError::Sql(error) => Self::Sql(error),
        }
    }
}

impl StoreError {
    /// Returns a sentence for models and clients. It contains no SQL, paths, addresses or stored values; log the error
    /// itself.
    pub fn public(&self) -> &'static str {
        const UNREADABLE: &str = "the store holds data that this version cannot read";
        match self {
            Self::Sql(
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::TypeNotFound { .. },
            )
            | Self::Corrupt(_) => UNREADABLE,
            Self::OutputTooLarge { .. } => "the output is too large to be stored; ask the tool for less at once",
            Self::InvalidText => "the output is not valid text and was not stored",
            Self::OutputLost => "the output was not stored completely; call the tool again",
            Self::TooManyTokens { .. } => "too many tokens are in force",
            Self::Sql(_) | Self::Sqlite(_) | Self::Injected(_) => "the store is unavailable; try again",
            Self::TooNew { .. } => "the store was written by a newer version of this program",
            Self::OtherKey { .. } => "the store's cells are sealed with a key that this process does not have",
            Self::WeakTls(_) | Self::Exposed { .. } => {
                "the store cannot be opened because of its configuration; ask the operator to check it"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use sqlx::{AnyConnection, Connection, Executor};

    use super::StoreError;
    use crate::tls::WeakTls;

    #[tokio::test]
    async fn the_public_sentence_contains_no_sql_paths_or_values() {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect("sqlite::memory:").await.unwrap();
        let failed = connection.execute("SELECT hunter2 FROM hunter2_table").await.unwrap_err();
        let errors = [
            StoreError::Sql(failed),
            StoreError::Sql(sqlx::Error::Protocol("hunter2".to_owned())),
            StoreError::Sql(sqlx::Error::Io(io::Error::other("hunter2"))),
            StoreError::Sql(sqlx::Error::ColumnNotFound("hunter2".to_owned())),
            StoreError::Sql(sqlx::Error::Decode("hunter2".into())),
            StoreError::Corrupt("run state `hunter2`".to_owned()),
            StoreError::WeakTls(WeakTls { host: "hunter2".to_owned(), mode: "prefer".to_owned() }),
            StoreError::Exposed { path: PathBuf::from("/home/hunter2/runs.db"), source: io::Error::other("denied") },
        ];
        for error in errors {
            assert!(error.to_string().contains("hunter2"), "{error}");
            let public = error.public();
            assert!(!public.contains("hunter2") && !public.contains("SELECT") && !public.contains('/'), "{public}");
        }
    }

    #[test]
    fn unreadable_data_and_an_unavailable_server_have_different_sentences() {
        let unavailable = StoreError::Sql(sqlx::Error::PoolTimedOut).public();
        let unreadable = StoreError::Corrupt(String::new()).public();
        assert_eq!(unavailable, "the store is unavailable; try again");
        assert_eq!(unreadable, StoreError::Sql(sqlx::Error::ColumnNotFound(String::new())).public());
        assert_ne!(unavailable, unreadable);
    }
}
