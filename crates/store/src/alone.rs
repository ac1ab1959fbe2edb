//! The right to write, asked for before anything is read; and all tables for oneself, without standing in anybody's way.

use std::time::{Duration, Instant};

use sqlx::{Any, Executor, Transaction};

use crate::backend::{Dialect, Store};
use crate::commit::{Durability, passes};

/// Whoever waits for a table has everybody behind itself who wants it later. So it waits for no longer than this at a time,
/// gives back what it has, and comes again. A server looks for deadlocks after a second: none lives as long.
const WAIT: &str = "SET LOCAL lock_timeout = '100ms'";
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);

impl Store {
    /// A file refuses to let somebody write who has read what another has changed since.
    pub(crate) async fn begin_to_write(
        &self,
        durability: Durability,
    ) -> Result<Transaction<'static, Any>, sqlx::Error> {
        match self.dialect {
            Dialect::Sqlite => self.writer(durability).begin_with("BEGIN IMMEDIATE").await,
            Dialect::Postgres => self.writer(durability).begin().await,
        }
    }

    /// These tables, locked as `mode` says, before anybody else who asks like this. A file has one writer anyway.
    pub(crate) async fn begin_alone(
        &self,
        tables: &[&str],
        mode: &str,
    ) -> Result<Transaction<'static, Any>, sqlx::Error> {
        let began = Instant::now();
        loop {
            let mut transaction = self.begin_to_write(Durability::Synced).await?;
            if self.dialect == Dialect::Sqlite {
                return Ok(transaction);
            }
            transaction.execute("SELECT 1 FROM (SELECT pg_advisory_xact_lock(7251)) AS turn").await?;
            if tables.is_empty() {
                return Ok(transaction);
            }
            transaction.execute(WAIT).await?;
            let lock = format!("LOCK TABLE {} IN {mode} MODE", tables.join(", "));
            match transaction.execute(lock.as_str()).await {
                Ok(_) => {
                    transaction.execute("SET LOCAL lock_timeout = 0").await?;
                    return Ok(transaction);
                }
                Err(error) if passes(&error) && began.elapsed() < PATIENCE => {
                    transaction.rollback().await?;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
