//! A parked call's outcome, brought by anybody, at any time, from anywhere.

use crate::backend::{Store, StoreError};
use crate::commit::Durability;

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
    /// The first outcome counts; the order of outcomes is the order they came in.
    pub async fn settle(&self, run_id: &str, call: u32, outcome: &str) -> Result<Settled, SettleRefused> {
        let written = sqlx::query(
            "UPDATE calls SET state = 'settled', outcome = $1, settle_order = \
             (SELECT COALESCE(MAX(settle_order), 0) + 1 FROM calls WHERE run_id = $2) \
             WHERE run_id = $2 AND call = $3 AND state IN ('parked', 'away', 'dispatched') AND outcome IS NULL",
        )
        .bind(outcome.to_owned())
        .bind(run_id.to_owned())
        .bind(i64::from(call))
        .execute(self.writer(Durability::Synced))
        .await?;
        if written.rows_affected() != 1 {
            return Err(SettleRefused::NotParked);
        }
        match self.run(run_id).await? {
            Some(run) if !run.state.is_over() => Ok(Settled::Taken),
            _ => Ok(Settled::Late),
        }
    }
}
