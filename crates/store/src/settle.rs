//! A parked call's outcome, brought by anybody, at any time, from anywhere; or by whoever holds the run, and then only
//! for as long as they do.

use sqlx::AnyConnection;

use crate::backend::{Store, StoreError};
use crate::commit::{CommitError, Durability};
use crate::fault;
use crate::runs::FencedRun;

/// What became of an outcome that was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Its cell will get it.
    Taken,
    /// The run had ended before: it is written down, and no cell will ever see it.
    Late,
}

#[derive(Debug, thiserror::Error)]
pub enum SettleRefused {
    #[error("no call of that name waits for an outcome")]
    NotParked,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for SettleRefused {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// The first outcome counts; the order of outcomes is the order they came in. Where the store's answer is lost,
    /// the outcome is looked for: whoever brought it is told whether it counts.
    pub async fn settle(&self, run_id: &str, call: u32, outcome: &str) -> Result<Settled, SettleRefused> {
        let mut transaction = self.writer(Durability::Synced).begin().await?;
        // In the order of every commit: the run first, then its calls.
        sqlx::query("UPDATE runs SET journal_bytes = journal_bytes + $1 WHERE run_id = $2")
            .bind(i64::try_from(outcome.len()).unwrap_or(i64::MAX))
            .bind(run_id.to_owned())
            .execute(&mut *transaction)
            .await?;
        if !write(&mut transaction, run_id, call, outcome).await? {
            return Err(SettleRefused::NotParked);
        }
        self.tell_others(&mut transaction, run_id).await?;
        fault::point("settle.before_commit")?;
        if let Err(error) = fault::answered(transaction.commit().await)
            && !self.has_outcome(run_id, call, outcome).await?
        {
            return Err(error.into());
        }
        fault::point("settle.after_commit")?;
        match self.run(run_id).await? {
            Some(run) if !run.state.is_over() => Ok(Settled::Taken),
            _ => Ok(Settled::Late),
        }
    }

    /// The same by whoever holds the run; who has lost it writes nothing. False where another outcome counts.
    pub async fn settle_held(&self, held: &FencedRun, call: u32, outcome: &str) -> Result<bool, CommitError> {
        let mut transaction = self.writer(Durability::Synced).begin().await?;
        // Keeps every other process from taking the run before this is written.
        let ours = sqlx::query(
            "UPDATE runs SET journal_bytes = journal_bytes + $1 \
             WHERE run_id = $2 AND fence = $3 AND state IN ('running', 'waiting')",
        )
        .bind(i64::try_from(outcome.len()).unwrap_or(i64::MAX))
        .bind(held.run_id.clone())
        .bind(held.fence)
        .execute(&mut *transaction)
        .await?;
        if ours.rows_affected() != 1 {
            return Err(CommitError::Fenced);
        }
        if !write(&mut transaction, &held.run_id, call, outcome).await? {
            return Ok(false);
        }
        fault::point("settle.before_commit")?;
        if let Err(error) = fault::answered(transaction.commit().await)
            && !self.has_outcome(&held.run_id, call, outcome).await?
        {
            return Err(error.into());
        }
        fault::point("settle.after_commit")?;
        Ok(true)
    }

    async fn has_outcome(&self, run_id: &str, call: u32, outcome: &str) -> Result<bool, StoreError> {
        let row = self.call(run_id, call).await?;
        Ok(row.is_some_and(|row| row.outcome.as_deref() == Some(outcome)))
    }
}

/// Whether it was the first.
async fn write(connection: &mut AnyConnection, run_id: &str, call: u32, outcome: &str) -> Result<bool, sqlx::Error> {
    let written = sqlx::query(
        "UPDATE calls SET state = 'settled', outcome = $1, settle_order = \
         (SELECT COALESCE(MAX(settle_order), 0) + 1 FROM calls WHERE run_id = $2) \
         WHERE run_id = $2 AND call = $3 AND state IN ('parked', 'away', 'dispatched') AND outcome IS NULL",
    )
    .bind(outcome.to_owned())
    .bind(run_id.to_owned())
    .bind(i64::from(call))
    .execute(connection)
    .await?;
    Ok(written.rows_affected() == 1)
}
