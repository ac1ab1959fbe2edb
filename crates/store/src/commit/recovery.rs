//! Resolves failed commits: whether the change was written anyway, and whether to retry.

use sqlx::Row;
use tokio::time::Instant;

use super::CommitError;
use crate::backend::{Backend, Dialect};
use crate::error::StoreError;
use crate::sql::{PAUSE, RETRY_TIMEOUT, is_transient};
use crate::sqlite_writer::WriteError;
use crate::statement::{Mismatch, StepError};

/// Limits how long the search for a lost commit waits for its transaction, which may still be running on the server.
const SET_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '2s'";

/// The error of one attempt to commit.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The attempt failed before COMMIT, so nothing was written.
    BeforeCommit(CommitError),
    /// COMMIT failed, so the change may have been written.
    AtCommit(StoreError),
}

impl From<CommitError> for AttemptError {
    fn from(error: CommitError) -> Self {
        Self::BeforeCommit(error)
    }
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> Self {
        Self::BeforeCommit(error.into())
    }
}

impl From<sqlx::Error> for AttemptError {
    fn from(error: sqlx::Error) -> Self {
        Self::BeforeCommit(error.into())
    }
}

impl From<fault::InjectedFault> for AttemptError {
    fn from(error: fault::InjectedFault) -> Self {
        Self::BeforeCommit(StoreError::from(error).into())
    }
}

impl From<StepError> for AttemptError {
    fn from(error: StepError) -> Self {
        WriteError::from(error).into()
    }
}

impl From<WriteError> for AttemptError {
    fn from(error: WriteError) -> Self {
        match error {
            // `commit::write` handles `Missing` itself: it writes what is missing. If it occurs anyway, nothing was
            // written, and a retry cannot help, as with `Fenced`.
            WriteError::Mismatch(Mismatch::Fenced | Mismatch::Missing) => Self::BeforeCommit(CommitError::Fenced),
            WriteError::Mismatch(Mismatch::UsedId) => {
                StoreError::Corrupt("another row has the id of a new one".to_owned()).into()
            }
            WriteError::BeforeCommit(error) => Self::BeforeCommit(error.into()),
            WriteError::AtCommit(error) => Self::AtCommit(error),
        }
    }
}

/// Whether the change of a failed attempt is in the store.
pub(crate) enum CommitStatus {
    Written,
    /// The change is not in the store, and the attempt can no longer write it, so it can be retried.
    NotWritten,
}

/// When the first attempt began, and whether any attempt may have been written.
pub(crate) struct RetryState {
    began: Instant,
    unsure: bool,
}

impl RetryState {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), unsure: false }
    }

    /// Returns when the first attempt began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Whether to give up: the attempts have taken too long. If the lease runs out before, the fence still prevents a
    /// wrong write.
    fn has_timed_out(&self) -> bool {
        self.began.elapsed() >= RETRY_TIMEOUT
    }
}

/// The row that an attempt writes first, as it was before the attempt. Each commit increments its sequence.
pub(crate) struct AttemptedRow<'a> {
    pub(crate) table: &'static str,
    pub(crate) id_column: &'static str,
    pub(crate) id: &'a str,
    pub(crate) sequence: i64,
    pub(crate) fence: i64,
}

/// Finds out by id, sequence and fence whether a failed attempt was written. Fails if it was not and retrying cannot
/// help. Waits before it returns `NotWritten`. Fails with [`CommitError::Fenced`] if another writer changed the row.
pub(crate) async fn resolve_attempt(
    backend: &Backend,
    row: &AttemptedRow<'_>,
    attempt: AttemptError,
    retry: &mut RetryState,
) -> Result<CommitStatus, CommitError> {
    let error = match attempt {
        AttemptError::BeforeCommit(error) => error,
        AttemptError::AtCommit(error) => {
            retry.unsure = true;
            CommitError::from(error)
        }
    };
    let again = match &error {
        CommitError::Store(StoreError::Sql(cause)) => is_transient(cause) && !retry.has_timed_out(),
        // SQLite's writer has already waited for the file's lock.
        CommitError::Store(StoreError::Sqlite(_)) => false,
        _ => return Err(error),
    };
    if !again && !retry.unsure {
        return Err(error);
    }
    loop {
        match sequence_and_fence(backend, row).await {
            Ok(found) if found == Some((row.sequence + 1, row.fence)) => return Ok(CommitStatus::Written),
            Ok(Some(found)) if found != (row.sequence, row.fence) => return Err(CommitError::Fenced),
            Ok(_) if again => {
                tokio::time::sleep(PAUSE).await;
                return Ok(CommitStatus::NotWritten);
            }
            Err(unread) if is_transient(&unread) && !retry.has_timed_out() => tokio::time::sleep(PAUSE).await,
            Ok(_) | Err(_) => return Err(error),
        }
    }
}

/// Reads a row's sequence and fence. On Postgres this waits for a transaction that is writing the row, so that the
/// result is final.
async fn sequence_and_fence(backend: &Backend, row: &AttemptedRow<'_>) -> Result<Option<(i64, i64)>, sqlx::Error> {
    let mut transaction = backend.reader().begin().await?;
    let lock = match backend.dialect {
        Dialect::Sqlite => "",
        Dialect::Postgres => {
            sqlx::query(SET_LOCK_TIMEOUT).execute(&mut *transaction).await?;
            " FOR UPDATE"
        }
    };
    let sql = format!("SELECT sequence, fence FROM {} WHERE {} = $1{lock}", row.table, row.id_column);
    let row = sqlx::query(&sql).bind(row.id.to_owned()).fetch_optional(&mut *transaction).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}
