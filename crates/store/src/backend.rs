//! The connections to where the rows are: a file, memory, or a Postgres server.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::config::{Quotas, Retention};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{Any, AnyConnection, AnyPool, Connection, Database, Executor, Row, TransactionManager};

use crate::commit::Durability;
use crate::fault;
use crate::keys::Keys;
use crate::location::{Location, sqlite_url};
use crate::private::make_private;
use crate::quota::DeferredBytes;
use crate::tls::{self, WeakTls};
use crate::{Millis, migrations};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store failed: {0}")]
    Sql(#[from] sqlx::Error),
    #[error("the store holds what this program cannot read: {0}")]
    Corrupt(String),
    #[error("the store was written by a newer program (schema {found}, this one knows {known}); upgrade it")]
    TooNew { found: i64, known: i64 },
    #[error(
        "{cells} of the store's cells are sealed with another key {id} than this one; give the key file that the store's other processes use (`--key-file`), or wait until those cells have expired"
    )]
    OtherKey { id: u32, cells: u64 },
    #[error(transparent)]
    WeakTls(#[from] WeakTls),
    #[error("`{path}` cannot be made, or cannot be kept from others: {source}; choose a file of your own")]
    Exposed { path: PathBuf, source: io::Error },
}

impl From<tls::Problem> for StoreError {
    fn from(problem: tls::Problem) -> Self {
        match problem {
            tls::Problem::Weak(weak) => Self::WeakTls(weak),
            tls::Problem::Sql(error) => Self::Sql(error),
        }
    }
}

/// A handle to the rows; clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) dialect: Dialect,
    /// Commits reach the disk before they return.
    durable: AnyPool,
    /// Commits survive the process, and a loss of power only once something durable follows.
    relaxed: AnyPool,
    readers: AnyPool,
    /// A connection that nobody uses. Memory lasts as long as a connection to it, and a pool closes one that was being
    /// handed to somebody who went away.
    keeper: Option<AnyPool>,
    pub(crate) location: Location,
    pub(crate) keys: Arc<Keys>,
    pub(crate) retention: Retention,
    pub(crate) quotas: Quotas,
    pub(crate) deferred_bytes: Arc<DeferredBytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// Readers of a file beside its writers; connections to a server.
const READERS: u32 = 4;
const SERVER_CONNECTIONS: u32 = 16;

/// A server that cannot be reached for so long is away, and whoever asks is told so.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

impl Store {
    pub async fn open(location: &Location, keys: Keys) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let (keys, location) = (Arc::new(keys), location.secured()?);
        let store = match &location {
            Location::Memory => {
                let options: AnyConnectOptions = fresh_memory().parse()?;
                let keeper = sqlite("OFF", 1).connect_with(options.clone()).await?;
                let only = sqlite("OFF", 1).connect_with(options).await?;
                let store = Self::of(Dialect::Sqlite, [only.clone(), only.clone(), only], location, keys);
                Self { keeper: Some(keeper), ..store }
            }
            Location::File(path) => {
                make_private(path).map_err(|source| StoreError::Exposed { path: path.clone(), source })?;
                let url = sqlite_url(path, "rwc");
                look_at(&url).await?;
                let options: AnyConnectOptions = url.parse()?;
                let durable = unharmed(sqlite("FULL", 1)).connect_with(options.clone()).await?;
                let relaxed = unharmed(sqlite("NORMAL", 1)).connect_with(options.clone()).await?;
                let readers = unharmed(sqlite("NORMAL", READERS)).connect_with(options).await?;
                Self::of(Dialect::Sqlite, [durable, relaxed, readers], location, keys)
            }
            Location::Postgres(url) => {
                let options: AnyConnectOptions = url.parse()?;
                let pool = AnyPoolOptions::new()
                    .max_connections(SERVER_CONNECTIONS)
                    .acquire_timeout(SERVER_TIMEOUT)
                    .connect_with(options)
                    .await;
                let pool = match pool {
                    Err(sqlx::Error::PoolTimedOut) => return Err(why_away(url).await.into()),
                    pool => pool?,
                };
                Self::of(Dialect::Postgres, [pool.clone(), pool.clone(), pool], location, keys)
            }
        };
        migrations::apply(&store).await?;
        Ok(store)
    }

    fn of(dialect: Dialect, [durable, relaxed, readers]: [AnyPool; 3], location: Location, keys: Arc<Keys>) -> Self {
        let (retention, quotas) = (Retention::DEFAULT, Quotas::DEFAULT);
        let deferred_bytes = Arc::default();
        Self { dialect, durable, relaxed, readers, keeper: None, location, keys, retention, quotas, deferred_bytes }
    }

    /// Keeps what is over for so long, and lets one principal have so much.
    #[must_use]
    pub fn bounded(mut self, retention: Retention, quotas: Quotas) -> Self {
        (self.retention, self.quotas) = (retention, quotas);
        self
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What time a server has; a file has none of its own.
    pub async fn server_clock(&self) -> Result<Option<Millis>, StoreError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(None);
        }
        let clock = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        let row = sqlx::query(clock).fetch_one(self.reader()).await?;
        Ok(Some(row.try_get(0)?))
    }

    pub(crate) fn writer(&self, durability: Durability) -> &AnyPool {
        match durability {
            Durability::Synced => &self.durable,
            Durability::Relaxed => &self.relaxed,
        }
    }

    pub(crate) fn reader(&self) -> &AnyPool {
        &self.readers
    }

    /// Connections that somebody has.
    #[cfg(feature = "faults")]
    pub fn connections_in_use(&self) -> usize {
        let in_use = |pool: &AnyPool| (pool.size() as usize).saturating_sub(pool.num_idle());
        in_use(&self.durable) + in_use(&self.relaxed) + in_use(&self.readers)
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        self.durable.close().await;
        self.relaxed.close().await;
        self.readers.close().await;
        if let Some(keeper) = &self.keeper {
            keeper.close().await;
        }
    }
}

/// The name of a memory that no other store of this process has.
fn fresh_memory() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("sqlite:file:cellmate-{}?mode=memory", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A pool tries again for half a minute what can never work; this says at once that the file is no store.
async fn look_at(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = AnyConnection::connect(url).await?;
    connection.execute("PRAGMA busy_timeout = 10000; SELECT COUNT(*) FROM sqlite_master").await?;
    let pages: i64 = sqlx::query("PRAGMA page_count").fetch_one(&mut connection).await?.try_get(0)?;
    if pages == 0 {
        // A file that gives back what it does not need any more is made as such. Not said again: that would be a write
        // by everybody who connects.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL").await?;
    }
    connection.close().await
}

/// A pool says only that it has waited; a single connection says what is wrong.
async fn why_away(url: &str) -> sqlx::Error {
    match tokio::time::timeout(SERVER_TIMEOUT, AnyConnection::connect(url)).await {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}

/// A transaction that failed on a full disk has rolled itself back, and its connection does not know: it would open
/// the next one inside what it takes for the last, and never commit it. Such a connection is not used again.
fn unharmed(options: AnyPoolOptions) -> AnyPoolOptions {
    options.before_acquire(|connection, _| {
        Box::pin(async move {
            fault::turn_of_connection().await;
            Ok(<Any as Database>::TransactionManager::get_transaction_depth(connection) == 0)
        })
    })
}

fn sqlite(synchronous: &'static str, connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new().max_connections(connections).idle_timeout(None).max_lifetime(None).after_connect(
        move |connection, _| {
            Box::pin(async move {
                let pragmas = format!(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA busy_timeout = 10000; \
                     PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;"
                );
                connection.execute(pragmas.as_str()).await?;
                fault::turn_of_connection().await;
                Ok(())
            })
        },
    )
}
