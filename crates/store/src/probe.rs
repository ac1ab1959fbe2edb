//! A read-only probe of a store: whether it can be reached, its schema version, its clock.

use std::time::Duration;

use sqlx::{AnyConnection, Connection, Executor, Row};

use crate::error::StoreError;
use crate::key_check::NEWEST_KEY;
use crate::location::{Location, sqlite_url};
use crate::{Millis, migrations};

const TIMEOUT: Duration = Duration::from_secs(3);

/// The result of probing a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreProbe {
    /// The store's schema version; `None` if the store does not exist yet.
    pub schema: Option<i64>,
    /// The schema version that this program upgrades older stores to.
    pub known_schema: i64,
    /// The Postgres server's clock; `None` for SQLite.
    pub clock: Option<Millis>,
    /// The number of the newest key that a process with this store has had; `None` if there is none, or if the store
    /// has an older schema.
    pub newest_key: Option<i64>,
}

impl StoreProbe {
    /// Probes the store without changing it. Fails if the server does not answer within three seconds.
    pub async fn at(location: &Location) -> Result<Self, StoreError> {
        match tokio::time::timeout(TIMEOUT, probe(location)).await {
            Ok(probed) => probed,
            Err(_) => Err(StoreError::Sql(sqlx::Error::PoolTimedOut)),
        }
    }
}

async fn probe(location: &Location) -> Result<StoreProbe, StoreError> {
    sqlx::any::install_default_drivers();
    let known_schema = migrations::VERSION;
    let (url, table_count, clock) = match &location.secured()? {
        Location::File(path) if path.exists() => (
            sqlite_url(path, "ro"),
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'",
            None,
        ),
        Location::Memory | Location::File(_) => {
            return Ok(StoreProbe { schema: None, known_schema, clock: None, newest_key: None });
        }
        Location::Postgres(url) => (
            url.clone(),
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() \
             AND table_name = 'schema_version'",
            Some("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"),
        ),
    };
    let mut connection = AnyConnection::connect(&url).await?;
    let table_count: i64 = connection.fetch_one(table_count).await?.try_get(0)?;
    let schema = match table_count {
        0 => None,
        _ => Some(connection.fetch_one("SELECT version FROM schema_version").await?.try_get(0)?),
    };
    let clock = match clock {
        Some(clock) => Some(connection.fetch_one(clock).await?.try_get(0)?),
        None => None,
    };
    let newest_key = match schema {
        Some(schema) if schema == known_schema => connection.fetch_one(NEWEST_KEY).await?.try_get(0)?,
        Some(_) | None => None,
    };
    connection.close().await?;
    Ok(StoreProbe { schema, known_schema, clock, newest_key })
}
