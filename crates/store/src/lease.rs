//! Leases of runs and turns: which process holds one, and until when if it does not renew the lease.

use std::fmt::Display;

use sqlx::{Any, Row, Transaction};

use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::sql::placeholders;

/// Why a run or a turn cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("no such run or turn, or it has ended")]
    Unknown,
    #[error("another process is working on the run or turn")]
    HeldElsewhere { until: Millis },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for LeaseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The most rows per statement.
const ROWS_PER_STATEMENT: usize = 500;

/// A table whose rows processes hold by leases. It has the columns `sequence`, `fence`, `holder`, `lease_until` and
/// `state`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedTable {
    name: &'static str,
    /// The column of the ids.
    id: &'static str,
    /// The condition under which the process `$1` has lost a row.
    is_lost: &'static str,
}

pub(crate) const RUNS: LeasedTable =
    LeasedTable { name: "runs", id: "run_id", is_lost: "(holder <> $1 OR state NOT IN ('running', 'waiting'))" };

/// A turn that its holder has ended is not lost: its driver must be able to report the end.
pub(crate) const TURNS: LeasedTable = LeasedTable { name: "turns", id: "turn_id", is_lost: "holder <> $1" };

impl LeasedTable {
    /// Gives a row to a process, unless the row has ended or another process has a valid lease. Returns whether it did.
    pub(crate) async fn take(
        self,
        transaction: &mut Transaction<'_, Any>,
        id: &str,
        holder: &str,
        now: Millis,
        lease_until: Millis,
    ) -> Result<bool, sqlx::Error> {
        let Self { name, id: column, .. } = self;
        let sql = format!(
            "UPDATE {name} SET sequence = sequence + 1, fence = fence + 1, holder = $1, lease_until = $2 \
             WHERE {column} = $3 AND state IN ('running', 'waiting') AND (lease_until < $4 OR holder = $1)"
        );
        let query = sqlx::query(&sql).bind(holder.to_owned()).bind(lease_until).bind(id.to_owned()).bind(now);
        Ok(query.execute(&mut **transaction).await?.rows_affected() == 1)
    }

    /// Renews the leases of a holder's rows and returns how many were renewed.
    pub(crate) async fn renew(
        self,
        backend: &Backend,
        holder: &str,
        ids: &[impl Display],
        lease_until: Millis,
    ) -> Result<u64, StoreError> {
        let Self { name, id, .. } = self;
        let mut renewed = 0;
        for batch in ids.chunks(ROWS_PER_STATEMENT) {
            let sql = format!(
                "UPDATE {name} SET lease_until = $1 WHERE {id} IN ({}) AND holder = $2 AND lease_until > 0 \
                 AND state IN ('running', 'waiting')",
                placeholders(3, batch.len())
            );
            let query = sqlx::query(&sql).bind(lease_until).bind(holder.to_owned());
            let query = batch.iter().fold(query, |query, id| query.bind(id.to_string()));
            renewed += query.execute(backend.writer(Durability::Relaxed)).await?.rows_affected();
        }
        Ok(renewed)
    }

    /// Returns which of these rows a process has lost.
    pub(crate) async fn lost<Id: Display + From<String>>(
        self,
        backend: &Backend,
        holder: &str,
        ids: &[Id],
    ) -> Result<Vec<Id>, StoreError> {
        let Self { name, id, is_lost } = self;
        let mut lost = Vec::new();
        for batch in ids.chunks(ROWS_PER_STATEMENT) {
            let sql = format!("SELECT {id} FROM {name} WHERE {id} IN ({}) AND {is_lost}", placeholders(2, batch.len()));
            let query = sqlx::query(&sql).bind(holder.to_owned());
            let query = batch.iter().fold(query, |query, id| query.bind(id.to_string()));
            for row in query.fetch_all(backend.reader()).await? {
                lost.push(row.try_get::<String, _>(0)?.into());
            }
        }
        Ok(lost)
    }

    /// Releases all rows of a holder and returns how many.
    pub(crate) async fn release(self, backend: &Backend, holder: &str) -> Result<u64, StoreError> {
        let sql = format!("UPDATE {} SET lease_until = 0 WHERE holder = $1 AND lease_until > 0", self.name);
        let released = sqlx::query(&sql).bind(holder.to_owned()).execute(backend.writer(Durability::Relaxed)).await?;
        Ok(released.rows_affected())
    }
}
