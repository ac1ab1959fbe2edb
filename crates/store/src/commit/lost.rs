//! Commits that failed: whether they are written all the same, and whether to try again.

use std::time::Duration;

use sqlx::Row;
use tokio::time::Instant;

use super::CommitError;
use crate::backend::{Dialect, Store, StoreError};
use crate::runs::FencedRun;

/// How long a server that is away, or a commit that may be in it, is waited for: longer than a restart takes. Where a
/// lease runs out meanwhile, the fence still guards what is written.
const PATIENCE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);

/// How long the look for a lost commit waits for the transaction that may still be under way.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '2s'";

/// Why one attempt came to nothing, or seems to have.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing was committed.
    Before(CommitError),
    /// COMMIT was sent, or was about to be: it may have happened.
    AtItsEnd(sqlx::Error),
}

impl<E: Into<CommitError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Before(error.into())
    }
}

pub(super) enum Found {
    Written,
    /// It is not there, and never will be: it can be written.
    Nothing,
}

/// How long has been waited, and whether any attempt so far may have been written.
pub(super) struct Patience {
    began: Instant,
    unsure: bool,
}

impl Patience {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), unsure: false }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= PATIENCE
    }
}

impl Store {
    /// Looks by run, sequence and fence for what an attempt may have written.
    pub(super) async fn look_for(
        &self,
        held: &FencedRun,
        failed: Failed,
        patience: &mut Patience,
    ) -> Result<Found, CommitError> {
        let error = match failed {
            Failed::Before(error) => error,
            Failed::AtItsEnd(error) => {
                patience.unsure = true;
                CommitError::from(error)
            }
        };
        let CommitError::Store(StoreError::Sql(cause)) = &error else { return Err(error) };
        let again = passes(cause) && !patience.is_over();
        if !again && !patience.unsure {
            return Err(error);
        }
        loop {
            match self.sequence_and_fence(held).await {
                Ok(found) if found == Some((held.sequence + 1, held.fence)) => return Ok(Found::Written),
                Ok(Some(found)) if found != (held.sequence, held.fence) => return Err(CommitError::Fenced),
                Ok(_) if again => {
                    tokio::time::sleep(PAUSE).await;
                    return Ok(Found::Nothing);
                }
                Err(unread) if passes(&unread) && !patience.is_over() => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(_) => return Err(error),
            }
        }
    }

    /// Where a run stands. On a server this waits for whoever is writing it, so that what it finds is final.
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

/// Whether what failed may work in a moment: the server is away, starts up, or was asked too much at once.
pub(crate) fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            let class = code.get(..2).unwrap_or_default();
            code.len() == SQLSTATE_LETTERS && (matches!(class, "08" | "57" | "53" | "40") || code == LOCK_NOT_AVAILABLE)
        }),
        _ => false,
    }
}

/// SQLite's codes are numbers, and none of its errors passes: it has waited for its turn already.
const SQLSTATE_LETTERS: usize = 5;
const LOCK_NOT_AVAILABLE: &str = "55P03";
