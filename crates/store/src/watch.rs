//! Detects changes of runs by other processes: Postgres sends notifications, an SQLite file is polled.

use std::time::Duration;

use contract::ids::RunId;
use sqlx::postgres::PgListener;
use sqlx::{AnyConnection, Connection, Row};

use crate::backend::{Backend, Dialect};
use crate::location::{Location, sqlite_url};

/// How often an SQLite file is polled. One poll reads a counter.
const POLL_EVERY: Duration = Duration::from_millis(150);

/// How long to wait for a notification before [`RunChange::Unknown`] is reported: a broken connection may not report an
/// error.
const NOTIFY_TIMEOUT: Duration = Duration::from_millis(700);

const CHANNEL: &str = "cellmate_runs";

/// A change that a [`Watch`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunChange {
    /// A run has changed, or an outcome or decision for it was stored.
    Run(RunId),
    /// Any run may have changed; callers that wait for a change must check the store.
    Unknown,
}

/// Reports changes that other processes make. A change may be reported twice, and is reported within a second.
#[derive(Debug)]
pub struct Watch {
    location: Location,
    source: WatchSource,
}

#[derive(Debug)]
enum WatchSource {
    Disconnected,
    Server(Box<PgListener>),
    File { connection: Box<AnyConnection>, version: i64 },
}

pub(crate) fn watch(backend: &Backend) -> Watch {
    Watch { location: backend.location.clone(), source: WatchSource::Disconnected }
}

/// Notifies other processes of a change of the run when the transaction commits.
pub(crate) async fn notify_others(
    backend: &Backend,
    connection: &mut AnyConnection,
    run_id: &RunId,
) -> Result<(), sqlx::Error> {
    if backend.dialect == Dialect::Postgres {
        sqlx::query("SELECT 1 FROM (SELECT pg_notify($1, $2)) AS notified")
            .bind(CHANNEL)
            .bind(run_id.to_string())
            .execute(connection)
            .await?;
    }
    Ok(())
}

impl Watch {
    /// Waits for the next change. If the future is dropped, a later call still reports the change.
    pub async fn next(&mut self) -> RunChange {
        match self.listen().await {
            Ok(change) => change,
            Err(error) => {
                // Attempts to reconnect fail for as long as the database is unavailable, so only the first is a warning.
                if let WatchSource::Disconnected = self.source {
                    tracing::debug!(%error, "cannot watch the store for changes");
                } else {
                    tracing::warn!(%error, "lost the connection that watches the store; polling until it is back");
                }
                self.source = WatchSource::Disconnected;
                tokio::time::sleep(POLL_EVERY).await;
                RunChange::Unknown
            }
        }
    }

    async fn listen(&mut self) -> Result<RunChange, sqlx::Error> {
        if let WatchSource::Disconnected = self.source {
            self.source = match &self.location {
                // No other process can use this database, but clones of the store can.
                Location::Memory => {
                    tokio::time::sleep(NOTIFY_TIMEOUT).await;
                    return Ok(RunChange::Unknown);
                }
                Location::File(path) => {
                    let url = sqlite_url(path, "rw");
                    let connection = fault::run_in_turn(AnyConnection::connect(&url)).await?;
                    WatchSource::File { connection: Box::new(connection), version: 0 }
                }
                Location::Postgres(url) => {
                    let mut listener = PgListener::connect(url).await?;
                    listener.listen(CHANNEL).await?;
                    WatchSource::Server(Box::new(listener))
                }
            };
            return Ok(RunChange::Unknown);
        }
        match &mut self.source {
            WatchSource::Disconnected => Ok(RunChange::Unknown),
            WatchSource::Server(listener) => match tokio::time::timeout(NOTIFY_TIMEOUT, listener.try_recv()).await {
                Ok(received) => {
                    let notification = received?;
                    Ok(notification.map_or(RunChange::Unknown, |sent| RunChange::Run(sent.payload().into())))
                }
                Err(_) => Ok(RunChange::Unknown),
            },
            WatchSource::File { connection, version } => loop {
                tokio::time::sleep(POLL_EVERY).await;
                let row = fault::run_in_turn(sqlx::query("PRAGMA data_version").fetch_one(&mut **connection)).await?;
                let current: i64 = row.try_get(0)?;
                if current != *version {
                    *version = current;
                    return Ok(RunChange::Unknown);
                }
            },
        }
    }
}
