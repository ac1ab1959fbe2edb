//! Resolves failed commits: whether the change was written anyway, and whether to retry.

use std::time::Duration;

use sqlx::Row;
use tokio::time::Instant;

use super::CommitError;
use crate::backend::{Dialect, Store, StoreError};
use crate::runs::FencedRun;

/// How long to retry while the server is unavailable or a commit's fate is unknown; longer than a server restart takes.
/// If the lease runs out in this time, the fence still prevents a wrong write.
const RETRY_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);

/// How long the search for a lost commit waits for the transaction, which may still be running on the server.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '2s'";

/// The error of one attempt to commit.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// The attempt failed before COMMIT, so nothing was written.
    BeforeCommit(CommitError),
    /// COMMIT failed, so the change may have been written.
    AtCommit(sqlx::Error),
}

impl<E: Into<CommitError>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::BeforeCommit(error.into())
    }
}

/// Whether the change of a failed attempt is in the store.
pub(super) enum CommitStatus {
    Written,
    /// The change is not in the store, and the attempt can no longer write it, so it can be retried.
    NotWritten,
}

/// When the first attempt began, and whether any attempt may have been written.
pub(super) struct RetryState {
    began: Instant,
    unsure: bool,
}

impl RetryState {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), unsure: false }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= RETRY_TIMEOUT
    }
}

impl Store {
    /// Finds out by run, sequence and fence whether a failed attempt was written. Fails if it was not and retrying
    /// cannot help.
    pub(super) async fn resolve_attempt(
        &self,
        held: &FencedRun,
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
        let CommitError::Store(StoreError::Sql(cause)) = &error else { return Err(error) };
        let again = is_transient(cause) && !retry.is_over();
        if !again && !retry.unsure {
            return Err(error);
        }
        loop {
            match self.sequence_and_fence(held).await {
                Ok(found) if found == Some((held.sequence + 1, held.fence)) => return Ok(CommitStatus::Written),
                Ok(Some(found)) if found != (held.sequence, held.fence) => return Err(CommitError::Fenced),
                Ok(_) if again => {
                    tokio::time::sleep(PAUSE).await;
                    return Ok(CommitStatus::NotWritten);
                }
                Err(unread) if is_transient(&unread) && !retry.is_over() => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(_) => return Err(error),
            }
        }
    }

    /// Reads a run's sequence and fence. On Postgres this waits for a transaction that is writing the run, so that the
    /// result is final.
    async fn sequence_and_fence(&self, held: &FencedRun) -> Result<Option<(i64, i64)>, sqlx::Error> {
        let mut transaction = self.reader().begin().await?;
        let lock = match self.dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => {
                sqlx::query(LOCK_TIMEOUT).execute(&mut *transaction).await?;
                " FOR UPDATE"
            }
        };
        let row = sqlx::query(&format!("SELECT sequence, fence FROM runs WHERE run_id = $1{lock}"))
            .bind(held.run_id.clone())
            .fetch_optional(&mut *transaction)
            .await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }
}

/// Whether a retry may succeed: the server is unavailable, starting up or overloaded.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            let class = code.get(..2).unwrap_or_default();
            code.len() == SQLSTATE_LETTERS && (matches!(class, "08" | "57" | "53" | "40") || code == LOCK_NOT_AVAILABLE)
        }),
        _ => false,
    }
}

/// The length of a Postgres error code. SQLite's codes are shorter numbers; none of its errors is transient, because
/// its `busy_timeout` has already waited for the lock.
const SQLSTATE_LETTERS: usize = 5;
const LOCK_NOT_AVAILABLE: &str = "55P03";
