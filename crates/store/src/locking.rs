//! Transactions that take their locks first: the write lock of an SQLite file, or table locks on a Postgres server.

use std::time::{Duration, Instant};

use sqlx::{Any, Executor, Transaction};

use crate::backend::{Backend, Dialect, Durability};
use crate::sql::is_transient;

/// Limits each wait for a table lock, because later requests for the table queue behind a waiting `LOCK TABLE`. After a
/// timeout the transaction is rolled back and tried again. Postgres checks for deadlocks only after one second, so a
/// deadlock always ends by this timeout first.
const SET_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '100ms'";
const PAUSE: Duration = Duration::from_millis(50);
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Begins a transaction that will write. SQLite's write lock is taken at once: SQLite fails a transaction that
/// first reads and then writes, if another connection wrote in between.
pub(crate) async fn begin_write(
    backend: &Backend,
    durability: Durability,
) -> Result<Transaction<'static, Any>, sqlx::Error> {
    match backend.dialect {
        Dialect::Sqlite => backend.writer(durability).begin_with("BEGIN IMMEDIATE").await,
        Dialect::Postgres => backend.writer(durability).begin().await,
    }
}

/// Begins a transaction and locks the tables in `mode`. Concurrent callers take turns through an advisory lock. An
/// SQLite file needs no table locks: it has only one writer at a time.
pub(crate) async fn begin_with_locks(
    backend: &Backend,
    tables: &[&str],
    mode: &str,
) -> Result<Transaction<'static, Any>, sqlx::Error> {
    let began = Instant::now();
    loop {
        let mut transaction = begin_write(backend, Durability::Synced).await?;
        if backend.dialect == Dialect::Sqlite {
            return Ok(transaction);
        }
        transaction.execute("SELECT 1 FROM (SELECT pg_advisory_xact_lock(7251)) AS turn").await?;
        if tables.is_empty() {
            return Ok(transaction);
        }
        transaction.execute(SET_LOCK_TIMEOUT).await?;
        let lock = format!("LOCK TABLE {} IN {mode} MODE", tables.join(", "));
        match transaction.execute(lock.as_str()).await {
            Ok(_) => {
                transaction.execute("SET LOCAL lock_timeout = 0").await?;
                return Ok(transaction);
            }
            Err(error) if is_transient(&error) && began.elapsed() < RETRY_TIMEOUT => {
                transaction.rollback().await?;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the SQL that skips rows locked by another process, so that concurrent sweeps do not wait for each other.
pub(crate) fn skip_locked(backend: &Backend) -> &'static str {
    match backend.dialect {
        Dialect::Sqlite => "",
        Dialect::Postgres => " FOR UPDATE SKIP LOCKED",
    }
}
