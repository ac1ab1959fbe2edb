//! News of runs from other processes: told by the server where there is one, looked for where there is not.

use std::time::Duration;

use sqlx::postgres::PgListener;
use sqlx::{AnyConnection, Connection, Row};

use crate::backend::{Dialect, Store};
use crate::fault;
use crate::location::{Location, sqlite_url};

/// How often a file is looked at. One read of a counter.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// How long a silent server is believed. A connection may be dead without a word.
const BELIEVED: Duration = Duration::from_millis(700);

const CHANNEL: &str = "cellmate_runs";

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunChange {
    /// Something came for this run, or became of it.
    Of(String),
    /// Something may have: whoever waits looks for itself.
    Perhaps,
}

/// Hears of changes that other processes make. Some are heard of twice, none is missed for a second.
#[derive(Debug)]
pub struct Watch {
    location: Location,
    ear: WatchSource,
}

#[derive(Debug)]
enum WatchSource {
    Deaf,
    Server(Box<PgListener>),
    File { connection: Box<AnyConnection>, version: i64 },
}

impl Store {
    pub fn watch(&self) -> Watch {
        Watch { location: self.location.clone(), ear: WatchSource::Deaf }
    }

    /// Lets other processes hear of a run when the transaction is written.
    pub(crate) async fn tell_others(&self, connection: &mut AnyConnection, run_id: &str) -> Result<(), sqlx::Error> {
        if self.dialect == Dialect::Postgres {
            sqlx::query("SELECT 1 FROM (SELECT pg_notify($1, $2)) AS told")
                .bind(CHANNEL)
                .bind(run_id.to_owned())
                .execute(connection)
                .await?;
        }
        Ok(())
    }
}

impl Watch {
    /// The next news. Dropped while it waits, it has missed nothing that is not looked for anyway.
    pub async fn next(&mut self) -> RunChange {
        match self.listen().await {
            Ok(news) => news,
            Err(_) => {
                self.ear = WatchSource::Deaf;
                tokio::time::sleep(LOOK_EVERY).await;
                RunChange::Perhaps
            }
        }
    }

    async fn listen(&mut self) -> Result<RunChange, sqlx::Error> {
        if let WatchSource::Deaf = self.ear {
            self.ear = match &self.location {
                // Nobody else has this memory; clones of its store may.
                Location::Memory => {
                    tokio::time::sleep(BELIEVED).await;
                    return Ok(RunChange::Perhaps);
                }
                Location::File(path) => {
                    let url = sqlite_url(path, "rw");
                    let connection = fault::alone(AnyConnection::connect(&url)).await?;
                    WatchSource::File { connection: Box::new(connection), version: 0 }
                }
                Location::Postgres(url) => {
                    let mut listener = PgListener::connect(url).await?;
                    listener.listen(CHANNEL).await?;
                    WatchSource::Server(Box::new(listener))
                }
            };
            return Ok(RunChange::Perhaps);
        }
        match &mut self.ear {
            WatchSource::Deaf => Ok(RunChange::Perhaps),
            WatchSource::Server(listener) => match tokio::time::timeout(BELIEVED, listener.try_recv()).await {
                Ok(heard) => Ok(heard?.map_or(RunChange::Perhaps, |heard| RunChange::Of(heard.payload().to_owned()))),
                Err(_) => Ok(RunChange::Perhaps),
            },
            WatchSource::File { connection, version } => loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let row = fault::alone(sqlx::query("PRAGMA data_version").fetch_one(&mut **connection)).await?;
                let now: i64 = row.try_get(0)?;
                if now != *version {
                    *version = now;
                    return Ok(RunChange::Perhaps);
                }
            },
        }
    }
}
