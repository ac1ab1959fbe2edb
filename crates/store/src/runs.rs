//! A run's own row: made, taken, moved on, read back.

use contract::scope::Scope;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::{Change, CommitError, Durability};
use crate::rows::{CallRow, CallState, LegRow, RunRow, RunState};
use crate::seal::{Sealed, Unsealable};

/// A run that is under way and not yet in the store. Its first commit writes it.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub run_id: String,
    pub scope: Scope,
    pub tool_call_id: String,
    pub holder: String,
    pub lease_until: Millis,
    pub expires_at: Millis,
    pub catalog: String,
    pub tables: std::sync::Arc<[u8]>,
    pub definition: String,
}

/// The right to change a run, for as long as nobody takes it over.
#[derive(Clone, Debug)]
pub struct Held {
    pub run_id: String,
    pub scope: Scope,
    pub(crate) sequence: i64,
    pub(crate) fence: i64,
    definition: String,
    unwritten: Option<NewRun>,
}

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("no such run")]
    Unknown,
    #[error("another process works on the run")]
    HeldElsewhere { until: Millis },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for LeaseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

const COLUMNS: &str = "run_id, agent_id, session_id, agent_run_id, tool_call_id, state, created_at, expires_at, catalog, \
                       definition, progress, snapshot_leg, snapshot, result";

impl Held {
    pub fn new(run: NewRun) -> Self {
        Self {
            run_id: run.run_id.clone(),
            scope: run.scope.clone(),
            sequence: 0,
            fence: 1,
            definition: run.definition.clone(),
            unwritten: Some(run),
        }
    }

    /// Whether anybody could find the run yet.
    pub fn is_written(&self) -> bool {
        self.unwritten.is_none()
    }

    pub(crate) fn binding(&self, leg: i64) -> Sealed<'_> {
        Sealed {
            run_id: &self.run_id,
            agent_id: &self.scope.agent_id,
            session_id: &self.scope.session_id,
            leg,
            definition: &self.definition,
        }
    }

    pub(crate) async fn move_on(
        &mut self,
        connection: &mut AnyConnection,
        change: &Change,
        sealed: Option<(i64, Vec<u8>)>,
        now: Millis,
    ) -> Result<(), CommitError> {
        match self.unwritten.clone() {
            Some(run) => {
                insert(connection, &run, change, sealed, now).await?;
                self.unwritten = None;
                Ok(())
            }
            None => self.update(connection, change, sealed, now).await,
        }
    }

    async fn update(
        &self,
        connection: &mut AnyConnection,
        change: &Change,
        sealed: Option<(i64, Vec<u8>)>,
        now: Millis,
    ) -> Result<(), CommitError> {
        let (leg, snapshot) = sealed.unzip();
        // A run that is over keeps no snapshot.
        let over = change.state.is_some_and(RunState::is_over);
        let updated = sqlx::query(
            "UPDATE runs SET sequence = sequence + 1, updated_at = $1, state = COALESCE($2, state), \
             expires_at = COALESCE($3, expires_at), progress = COALESCE($4, progress), \
             snapshot_leg = COALESCE($5, snapshot_leg), \
             snapshot = CASE WHEN $6 = 1 THEN NULL ELSE COALESCE($7, snapshot) END, \
             result = COALESCE($8, result), lease_until = CASE WHEN $9 = 1 THEN 0 ELSE lease_until END \
             WHERE run_id = $10 AND sequence = $11 AND fence = $12 AND state IN ('running', 'waiting')",
        )
        .bind(now)
        .bind(change.state.map(RunState::as_str))
        .bind(change.expires_at)
        .bind(change.progress.clone())
        .bind(leg)
        .bind(i64::from(over))
        .bind(snapshot)
        .bind(change.result.clone())
        .bind(i64::from(change.release || over))
        .bind(self.run_id.clone())
        .bind(self.sequence)
        .bind(self.fence)
        .execute(&mut *connection)
        .await?;
        if updated.rows_affected() == 1 { Ok(()) } else { Err(CommitError::Fenced) }
    }
}

async fn insert(
    connection: &mut AnyConnection,
    run: &NewRun,
    change: &Change,
    sealed: Option<(i64, Vec<u8>)>,
    now: Millis,
) -> Result<(), CommitError> {
    let over = change.state.is_some_and(RunState::is_over);
    let (leg, snapshot) = sealed.unzip();
    if !over {
        // What is over is never thawed again, so its tables are not wanted.
        let packed = zstd::bulk::compress(&run.tables, 1).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        sqlx::query("INSERT INTO catalogs (hash, tables) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING")
            .bind(run.catalog.clone())
            .bind(packed)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query(
        "INSERT INTO runs (run_id, agent_id, session_id, agent_run_id, tool_call_id, state, sequence, fence, holder, \
         lease_until, created_at, updated_at, expires_at, catalog, definition, progress, snapshot_leg, snapshot, \
         result) VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16)",
    )
    .bind(run.run_id.clone())
    .bind(run.scope.agent_id.clone())
    .bind(run.scope.session_id.clone())
    .bind(run.scope.agent_run_id.clone())
    .bind(run.tool_call_id.clone())
    .bind(change.state.unwrap_or(RunState::Running).as_str())
    .bind(run.holder.clone())
    .bind(if change.release || over { 0 } else { run.lease_until })
    .bind(now)
    .bind(change.expires_at.unwrap_or(run.expires_at))
    .bind(run.catalog.clone())
    .bind(run.definition.clone())
    .bind(change.progress.clone().unwrap_or_default())
    .bind(leg)
    .bind(snapshot.filter(|_| !over))
    .bind(change.result.clone())
    .execute(&mut *connection)
    .await?;
    Ok(())
}

impl Store {
    /// A run as it stands, its snapshot still sealed. Who may see it is for the caller to check.
    pub async fn run(&self, run_id: &str) -> Result<Option<RunRow>, StoreError> {
        let row = sqlx::query(&format!("SELECT {COLUMNS} FROM runs WHERE run_id = $1"))
            .bind(run_id.to_owned())
            .fetch_optional(self.reader())
            .await?;
        row.map(|row| read_run(&row)).transpose()
    }

    /// Takes a run over: whoever held it before can change nothing any more.
    pub async fn take(&self, run_id: &str, holder: &str, now: Millis, lease_until: Millis) -> Result<Held, LeaseError> {
        let mut transaction = self.writer(Durability::Relaxed).begin().await?;
        let taken = sqlx::query(
            "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, holder = $1, lease_until = $2 \
             WHERE run_id = $3 AND state IN ('running', 'waiting') AND (lease_until < $4 OR holder = $1)",
        )
        .bind(holder.to_owned())
        .bind(lease_until)
        .bind(run_id.to_owned())
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        let row = sqlx::query(
            "SELECT sequence, fence, definition, agent_id, session_id, agent_run_id, lease_until, state FROM runs \
             WHERE run_id = $1",
        )
        .bind(run_id.to_owned())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else { return Err(LeaseError::Unknown) };
        if taken.rows_affected() != 1 {
            let over = RunState::parse(&row.try_get::<String, _>(7)?)?.is_over();
            return Err(if over { LeaseError::Unknown } else { LeaseError::HeldElsewhere { until: row.try_get(6)? } });
        }
        transaction.commit().await?;
        Ok(Held {
            run_id: run_id.to_owned(),
            scope: Scope {
                agent_id: row.try_get(3)?,
                session_id: row.try_get(4)?,
                agent_run_id: row.try_get(5)?,
                ..Scope::default()
            },
            sequence: row.try_get(0)?,
            fence: row.try_get(1)?,
            definition: row.try_get(2)?,
            unwritten: None,
        })
    }

    /// Prolongs what a holder works on.
    pub async fn renew(&self, holder: &str, lease_until: Millis) -> Result<u64, StoreError> {
        let renewed = sqlx::query(
            "UPDATE runs SET lease_until = $1 WHERE holder = $2 AND lease_until > 0 AND state IN ('running', 'waiting')",
        )
        .bind(lease_until)
        .bind(holder.to_owned())
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(renewed.rows_affected())
    }

    /// Opens a run's snapshot.
    pub fn open_snapshot(&self, held: &Held, row: &RunRow) -> Result<Option<Vec<u8>>, Unsealable> {
        match (&row.snapshot, row.snapshot_leg) {
            (Some(sealed), Some(leg)) => self.keys.open(sealed, &held.binding(leg)).map(Some),
            _ => Ok(None),
        }
    }

    pub async fn tables(&self, hash: &str, max_bytes: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let row = sqlx::query("SELECT tables FROM catalogs WHERE hash = $1")
            .bind(hash.to_owned())
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let packed: Vec<u8> = row.try_get(0)?;
        let tables =
            zstd::bulk::decompress(&packed, max_bytes).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Some(tables))
    }

    pub async fn legs(&self, run_id: &str) -> Result<Vec<LegRow>, StoreError> {
        let rows = sqlx::query("SELECT leg, clock_us, replies FROM legs WHERE run_id = $1 ORDER BY leg")
            .bind(run_id.to_owned())
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(read_leg).collect()
    }

    pub async fn calls(&self, run_id: &str) -> Result<Vec<CallRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT call, leg, method, target, payload, input_hash, tool_id, tool_hash, input, state, attempt, due_at, since, \
             settle_order, outcome, reply FROM calls WHERE run_id = $1 ORDER BY call",
        )
        .bind(run_id.to_owned())
        .fetch_all(self.reader())
        .await?;
        rows.iter().map(read_call).collect()
    }

    /// Runs under way or waiting.
    pub async fn live_runs(&self) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM runs WHERE state IN ('running', 'waiting')")
            .fetch_one(self.reader())
            .await?;
        Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
    }

    /// The live runs of a session, which end with it.
    pub async fn runs_of_session(&self, session_id: &str) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query("SELECT run_id FROM runs WHERE session_id = $1 AND state IN ('running', 'waiting')")
            .bind(session_id.to_owned())
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

fn read_run(row: &AnyRow) -> Result<RunRow, StoreError> {
    Ok(RunRow {
        run_id: row.try_get(0)?,
        scope: Scope {
            agent_id: row.try_get(1)?,
            session_id: row.try_get(2)?,
            agent_run_id: row.try_get(3)?,
            ..Scope::default()
        },
        tool_call_id: row.try_get(4)?,
        state: RunState::parse(&row.try_get::<String, _>(5)?)?,
        created_at: row.try_get(6)?,
        expires_at: row.try_get(7)?,
        catalog: row.try_get(8)?,
        definition: row.try_get(9)?,
        progress: row.try_get(10)?,
        snapshot_leg: row.try_get(11)?,
        snapshot: row.try_get(12)?,
        result: row.try_get(13)?,
    })
}

fn read_leg(row: &AnyRow) -> Result<LegRow, StoreError> {
    let replies: String = row.try_get(2)?;
    let replies: Result<Vec<u32>, _> = replies.split(',').filter(|part| !part.is_empty()).map(str::parse).collect();
    Ok(LegRow {
        leg: row.try_get(0)?,
        clock_us: u64::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0),
        replies: replies.map_err(|_| StoreError::Corrupt("the order of replies".to_owned()))?,
    })
}

fn read_call(row: &AnyRow) -> Result<CallRow, StoreError> {
    let reply: Option<String> = row.try_get(15)?;
    let reply = reply.map(|text| serde_json::from_str(&text)).transpose();
    Ok(CallRow {
        call: u32::try_from(row.try_get::<i64, _>(0)?)
            .map_err(|_| StoreError::Corrupt("a call's number".to_owned()))?,
        leg: row.try_get(1)?,
        method: row.try_get(2)?,
        target: row.try_get(3)?,
        payload: row.try_get(4)?,
        input_hash: row.try_get(5)?,
        tool_id: row.try_get(6)?,
        tool_hash: row.try_get(7)?,
        input: row.try_get(8)?,
        state: CallState::parse(&row.try_get::<String, _>(9)?)?,
        attempt: row.try_get(10)?,
        due_at: row.try_get(11)?,
        since: row.try_get(12)?,
        settle_order: row.try_get(13)?,
        outcome: row.try_get(14)?,
        reply: reply.map_err(|_| StoreError::Corrupt("a call's reply".to_owned()))?,
    })
}
