//! A look at a store that changes nothing: whether it answers, how old it is, what time it has.

use std::time::Duration;

use sqlx::{AnyConnection, Connection, Executor, Row};

use crate::backend::StoreError;
use crate::location::{Location, sqlite_url};
use crate::{Millis, migrations};

/// A server that says nothing for so long is away.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreProbe {
    /// None where there is no store yet.
    pub schema: Option<i64>,
    /// What this program makes of a store that is older.
    pub known_schema: i64,
    /// The server's own time; a file has none.
    pub clock: Option<Millis>,
}

impl StoreProbe {
    pub async fn at(location: &Location) -> Result<Self, StoreError> {
        match tokio::time::timeout(PATIENCE, look(location)).await {
            Ok(looked) => looked,
            Err(_) => Err(StoreError::Sql(sqlx::Error::PoolTimedOut)),
        }
    }
}

async fn look(location: &Location) -> Result<StoreProbe, StoreError> {
    sqlx::any::install_default_drivers();
    let known_schema = migrations::VERSION;
    let (url, is_there, clock) = match &location.secured()? {
        Location::File(path) if path.exists() => (
            sqlite_url(path, "ro"),
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'",
            None,
        ),
        Location::Memory | Location::File(_) => return Ok(StoreProbe { schema: None, known_schema, clock: None }),
        Location::Postgres(url) => (
            url.clone(),
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() \
             AND table_name = 'schema_version'",
            Some("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"),
        ),
    };
    let mut connection = AnyConnection::connect(&url).await?;
    let is_there: i64 = connection.fetch_one(is_there).await?.try_get(0)?;
    let schema = match is_there {
        0 => None,
        _ => Some(connection.fetch_one("SELECT version FROM schema_version").await?.try_get(0)?),
    };
    let clock = match clock {
        Some(clock) => Some(connection.fetch_one(clock).await?.try_get(0)?),
        None => None,
    };
    connection.close().await?;
    Ok(StoreProbe { schema, known_schema, clock })
}
