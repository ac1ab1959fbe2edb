//! Connections to the database: an SQLite file, an SQLite database in memory, or a Postgres server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::config::{Quotas, Retention};
use parking_lot::Mutex;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{Any, AnyConnection, AnyPool, Connection, Database, Executor, Row, TransactionManager};
use tokio::time::Instant;

use crate::Millis;
use crate::error::StoreError;
use crate::keys::Keys;
use crate::location::{Location, make_private, sqlite_url};
use crate::quota::DeferredBytes;
use crate::sqlite_writer::SqliteWriter;

pub use crate::durability::Durability;

/// The connections to the database, and the settings that operations on it need. Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) dialect: Dialect,
    /// Commits are on disk when they return.
    durable: AnyPool,
    /// Commits survive a crash of the process at once, and a power loss after the next durable commit.
    relaxed: AnyPool,
    readers: AnyPool,
    /// Writes transactions whose steps are known in advance. Only files have one.
    sqlite_writer: Option<SqliteWriter>,
    /// An unused connection that keeps an in-memory database alive: the database lasts only while a connection to it is
    /// open, and a pool closes a connection if the task that was acquiring it is dropped.
    keep_alive: Option<AnyPool>,
    pub(crate) location: Location,
    pub(crate) keys: Arc<Keys>,
    pub(crate) retention: Retention,
    pub(crate) quotas: Quotas,
    pub(crate) deferred_bytes: Arc<DeferredBytes>,
    /// The session whose transcript the sweep has looked at last; empty before the first one.
    pub(crate) swept_session: Arc<Mutex<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// Read connections to an SQLite file, in addition to its two write connections.
const READERS: u32 = 4;

/// Connections to a Postgres server.
const SERVER_CONNECTIONS: u32 = 16;

/// How long an operation waits for a server connection before it fails.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

impl Backend {
    /// Connects to the database. An SQLite file is created if it does not exist.
    pub(crate) async fn connect(location: &Location, keys: Keys) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let (keys, location) = (Arc::new(keys), location.secured()?);
        Ok(match &location {
            Location::Memory => {
                let options: AnyConnectOptions = unique_memory_url().parse()?;
                let keep_alive = sqlite("OFF", 1).connect_with(options.clone()).await?;
                let pool = sqlite("OFF", 1).connect_with(options).await?;
                let backend = Self::new(Dialect::Sqlite, [pool.clone(), pool.clone(), pool], location, keys);
                Self { keep_alive: Some(keep_alive), ..backend }
            }
            Location::File(path) => {
                make_private(path).map_err(|source| StoreError::Exposed { path: path.clone(), source })?;
                let url = sqlite_url(path, "rwc");
                check_file(&url).await?;
                let options: AnyConnectOptions = url.parse()?;
                let durable = without_broken_connections(sqlite("FULL", 1)).connect_with(options.clone()).await?;
                let relaxed = without_broken_connections(sqlite("NORMAL", 1)).connect_with(options.clone()).await?;
                let readers = without_broken_connections(sqlite("NORMAL", READERS)).connect_with(options).await?;
                // A simulation decides on its own thread what every step does.
                let sqlite_writer = fault::time().is_none().then(|| SqliteWriter::new(path));
                let backend = Self::new(Dialect::Sqlite, [durable, relaxed, readers], location.clone(), keys);
                Self { sqlite_writer, ..backend }
            }
            Location::Postgres(url) => {
                let options: AnyConnectOptions = url.parse()?;
                let pool = AnyPoolOptions::new()
                    .max_connections(SERVER_CONNECTIONS)
                    .acquire_timeout(SERVER_TIMEOUT)
                    .connect_with(options)
                    .await;
                let pool = match pool {
                    Err(sqlx::Error::PoolTimedOut) => return Err(connection_error(url).await.into()),
                    pool => pool?,
                };
                Self::new(Dialect::Postgres, [pool.clone(), pool.clone(), pool], location, keys)
            }
        })
    }

    fn new(dialect: Dialect, [durable, relaxed, readers]: [AnyPool; 3], location: Location, keys: Arc<Keys>) -> Self {
        let (retention, quotas) = (Retention::DEFAULT, Quotas::DEFAULT);
        Self {
            dialect,
            durable,
            relaxed,
            readers,
            sqlite_writer: None,
            keep_alive: None,
            location,
            keys,
            retention,
            quotas,
            deferred_bytes: Arc::default(),
            swept_session: Arc::default(),
        }
    }

    /// Returns the Postgres server's clock; `None` for SQLite.
    pub(crate) async fn server_clock(&self) -> Result<Option<Millis>, StoreError> {
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

    pub(crate) fn sqlite_writer(&self) -> Option<&SqliteWriter> {
        self.sqlite_writer.as_ref()
    }

    pub(crate) fn reader(&self) -> &AnyPool {
        &self.readers
    }

    /// Returns the number of connections that are checked out of the pools.
    #[cfg(feature = "faults")]
    pub(crate) fn connections_in_use(&self) -> usize {
        let in_use = |pool: &AnyPool| (pool.size() as usize).saturating_sub(pool.num_idle());
        in_use(&self.durable) + in_use(&self.relaxed) + in_use(&self.readers)
    }

    /// Waits for running operations and closes every connection.
    pub(crate) async fn close(&self) {
        if let Some(writer) = &self.sqlite_writer {
            writer.close().await;
        }
        self.durable.close().await;
        self.relaxed.close().await;
        self.readers.close().await;
        if let Some(keep_alive) = &self.keep_alive {
            keep_alive.close().await;
        }
    }
}

/// SQLite's code for a file that another connection has locked.
const BUSY: &str = "5";
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);
const PREPARE_PAUSE: Duration = Duration::from_millis(20);

/// Returns the address of a new in-memory database that no other store of this process uses.
fn unique_memory_url() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("sqlite:file:cellmate-{}?mode=memory", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Checks that the file is an SQLite database, and prepares a new one. A pool would retry for 30 seconds before it
/// reports that it is not a database. If another process prepares the same file, this waits for it: SQLite does not wait
/// by itself for the lock that a change of the journal mode needs.
async fn check_file(url: &str) -> Result<(), sqlx::Error> {
    let began = Instant::now();
    loop {
        match prepare_file(url).await {
            Err(sqlx::Error::Database(error))
                if error.code().as_deref() == Some(BUSY) && began.elapsed() < PREPARE_TIMEOUT =>
            {
                tokio::time::sleep(PREPARE_PAUSE).await;
            }
            prepared => return prepared,
        }
    }
}

async fn prepare_file(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = AnyConnection::connect(url).await?;
    connection.execute("PRAGMA busy_timeout = 10000; SELECT COUNT(*) FROM sqlite_master").await?;
    let pages: i64 = sqlx::query("PRAGMA page_count").fetch_one(&mut connection).await?.try_get(0)?;
    if pages == 0 {
        // `auto_vacuum` must be set when the file is created. Setting it on every connection would be a write each
        // time.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL").await?;
    }
    connection.close().await
}

/// Returns why the server cannot be reached: a pool reports only a timeout, a single connection reports the cause.
async fn connection_error(url: &str) -> sqlx::Error {
    match tokio::time::timeout(SERVER_TIMEOUT, AnyConnection::connect(url)).await {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}

/// Makes the pool discard a connection that still counts an open transaction. SQLite rolls a transaction back by itself
/// when the disk is full, and the driver does not notice: it would nest the next transaction in it and never commit.
fn without_broken_connections(options: AnyPoolOptions) -> AnyPoolOptions {
    options.before_acquire(|connection, _| {
        Box::pin(async move {
            fault::wait_for_turn_holding_connection().await;
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
                fault::wait_for_turn_holding_connection().await;
                Ok(())
            })
        },
    )
}
