//! The thread that writes an SQLite file: it executes whole transactions whose steps are known in advance.
//!
//! A connection of sqlx hands every statement to its own thread and waits for the result, so a transaction of eight
//! statements switches threads sixteen times. Here a transaction switches threads twice. Transactions that arrive while
//! another one is committed are committed together, with one write to the disk; each is a savepoint of its own, so one
//! that is refused does not affect the others.
//!
//! Transactions that must read before they know what to write use sqlx.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use crate::durability::Durability;
use crate::error::StoreError;
use crate::statement::{Mismatch, Step, StepError};

/// The most transactions that are committed together.
const MAX_GROUP: usize = 64;

/// How long a transaction waits for the write lock of the file, as on connections of sqlx.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Prepared statements that are kept: more than the writer has.
const PREPARED_STATEMENTS: usize = 128;

/// The most memory that cached pages take. Every commit changes pages of many indexes.
const CACHE_KIB: u32 = 8 << 10;

/// The length of the write-ahead log, in pages of 4 KiB, from which a commit copies it to the file. A page that many
/// commits have changed is copied once.
const CHECKPOINT_PAGES: u32 = 4_000;

/// Why a transaction was not committed, or may not have been.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// Nothing was written: a statement did not find what it requires.
    Mismatch(Mismatch),
    /// Nothing was written.
    BeforeCommit(StoreError),
    /// COMMIT failed, so the transaction may have been written.
    AtCommit(StoreError),
}

impl From<StepError> for WriteError {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Mismatch(mismatch) => Self::Mismatch(mismatch),
            StepError::Store(error) => Self::BeforeCommit(error),
        }
    }
}

/// A transaction: the steps that are executed in order, all or none.
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) durability: Durability,
}

struct Job {
    program: Program,
    reply: oneshot::Sender<Result<(), WriteError>>,
}

struct Thread {
    jobs: mpsc::Sender<Job>,
    handle: JoinHandle<()>,
}

/// The handle of the writing thread, which starts with the first transaction. Clones share the thread; it ends when the
/// last one is dropped.
#[derive(Clone)]
pub(crate) struct SqliteWriter {
    path: Arc<Path>,
    thread: Arc<Mutex<Option<Thread>>>,
}

impl std::fmt::Debug for SqliteWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteWriter {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: Arc::from(path), thread: Arc::default() }
    }

    /// Executes a transaction and commits it.
    pub(crate) async fn write(&self, program: Program) -> Result<(), WriteError> {
        let (reply, received) = oneshot::channel();
        self.send(Job { program, reply }).map_err(|error| WriteError::BeforeCommit(error.into()))?;
        // The thread answers every job that it takes, unless the process ends.
        received.await.unwrap_or_else(|_| Err(WriteError::AtCommit(sqlx::Error::WorkerCrashed.into())))
    }

    fn send(&self, job: Job) -> Result<(), sqlx::Error> {
        let mut thread = self.thread.lock();
        let running = match &mut *thread {
            Some(running) => running,
            none => none.insert(start(self.path.to_path_buf())?),
        };
        running.jobs.send(job).map_err(|_| sqlx::Error::WorkerCrashed)
    }

    /// Waits for accepted transactions and closes the connection. A later transaction opens it again.
    pub(crate) async fn close(&self) {
        let Some(Thread { jobs, handle }) = self.thread.lock().take() else { return };
        drop(jobs);
        if !matches!(tokio::task::spawn_blocking(move || handle.join()).await, Ok(Ok(()))) {
            tracing::error!("the thread that writes the store has panicked");
        }
    }
}

fn start(path: PathBuf) -> Result<Thread, sqlx::Error> {
    let (jobs, received) = mpsc::channel();
    let run = move || Writer { path, open: None, durability: Durability::Relaxed }.run(&received);
    let handle = std::thread::Builder::new().name("store-writer".to_owned()).spawn(run)?;
    Ok(Thread { jobs, handle })
}

/// The state of the writing thread.
struct Writer {
    path: PathBuf,
    /// `None` before the first transaction, and after an error that may have broken the connection.
    open: Option<Connection>,
    /// What the connection is set to.
    durability: Durability,
}

impl Writer {
    fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let mut group = vec![first];
            group.extend(jobs.try_iter().take(MAX_GROUP - 1));
            self.write_group(group);
        }
    }

    /// Commits transactions together. If one of them fails because of the database, each is committed alone, so that
    /// only those fail that must.
    fn write_group(&mut self, group: Vec<Job>) {
        let programs: Vec<&Program> = group.iter().map(|job| &job.program).collect();
        let mut results = self.try_group(&programs);
        if group.len() > 1 && results.iter().any(|result| matches!(result, Err(WriteError::BeforeCommit(_)))) {
            results = programs.iter().flat_map(|program| self.try_group(&[*program])).collect();
        }
        for (job, result) in group.into_iter().zip(results) {
            // The caller may be gone.
            drop(job.reply.send(result));
        }
    }

    /// Executes transactions as savepoints of one, and returns their results. If one is [`WriteError::BeforeCommit`], it
    /// is the last, and nothing was written.
    fn try_group(&mut self, programs: &[&Program]) -> Vec<Result<(), WriteError>> {
        let synced = programs.iter().any(|program| program.durability == Durability::Synced);
        match self.take_connection(if synced { Durability::Synced } else { Durability::Relaxed }) {
            Ok(connection) => {
                let results = transaction(&connection, programs);
                // SQLite may have rolled back by itself, for example because the disk is full. A connection that cannot
                // be rolled back is closed.
                if connection.is_autocommit() || execute(&connection, "ROLLBACK").is_ok() {
                    self.open = Some(connection);
                }
                results
            }
            Err(cause) => for_all(programs, WriteError::BeforeCommit, &cause),
        }
    }

    /// Takes the open connection, or opens one, and sets it to commit with this durability.
    fn take_connection(&mut self, wanted: Durability) -> rusqlite::Result<Connection> {
        let connection = match self.open.take() {
            Some(connection) => connection,
            None => {
                self.durability = Durability::Relaxed;
                open(&self.path)?
            }
        };
        if self.durability != wanted {
            let synchronous = match wanted {
                Durability::Synced => "FULL",
                Durability::Relaxed => "NORMAL",
            };
            connection.pragma_update(None, "synchronous", synchronous)?;
            self.durability = wanted;
        }
        Ok(connection)
    }
}

/// Executes programs in one transaction. The transaction is still open if it was not committed.
fn transaction(connection: &Connection, programs: &[&Program]) -> Vec<Result<(), WriteError>> {
    if let Err(cause) = execute(connection, "BEGIN IMMEDIATE") {
        return for_all(programs, WriteError::BeforeCommit, &cause);
    }
    let mut results = Vec::with_capacity(programs.len());
    for program in programs {
        let result = match programs.len() {
            // Without a savepoint: if it is refused, the caller rolls back the transaction.
            1 => execute_steps(connection, program),
            _ => in_savepoint(connection, program),
        };
        let has_failed = matches!(result, Err(WriteError::BeforeCommit(_)));
        results.push(result);
        if has_failed {
            return results;
        }
    }
    if results.iter().all(Result::is_err) {
        return results;
    }
    if let Err(cause) = execute(connection, "COMMIT") {
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            *result = Err(WriteError::AtCommit(copy(&cause).into()));
        }
    }
    results
}

/// Returns the same error for each program.
fn for_all(
    programs: &[&Program],
    kind: fn(StoreError) -> WriteError,
    cause: &rusqlite::Error,
) -> Vec<Result<(), WriteError>> {
    programs.iter().map(|_| Err(kind(copy(cause).into()))).collect()
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    connection.execute_batch(&format!(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; \
         PRAGMA cache_size = -{CACHE_KIB}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
    ))?;
    Ok(connection)
}

fn execute_steps(connection: &Connection, program: &Program) -> Result<(), WriteError> {
    program.steps.iter().try_for_each(|step| step.execute_here(connection)).map_err(WriteError::from)
}

fn in_savepoint(connection: &Connection, program: &Program) -> Result<(), WriteError> {
    execute(connection, "SAVEPOINT program").map_err(before_commit)?;
    let executed = execute_steps(connection, program);
    match &executed {
        Ok(()) => execute(connection, "RELEASE program").map_err(before_commit)?,
        // The caller rolls everything back.
        Err(WriteError::BeforeCommit(_) | WriteError::AtCommit(_)) => {}
        Err(WriteError::Mismatch(_)) => {
            execute(connection, "ROLLBACK TO program").map_err(before_commit)?;
            execute(connection, "RELEASE program").map_err(before_commit)?;
        }
    }
    executed
}

fn before_commit(error: rusqlite::Error) -> WriteError {
    WriteError::BeforeCommit(error.into())
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Returns the error for another transaction of the group.
fn copy(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR),
            Some(other.to_string()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, Durability, Job, Mismatch, Program, SqliteWriter, WriteError, Writer};
    use crate::statement::{Statement, Step};
    use tempfile::TempDir;
    use tokio::sync::oneshot;

    fn database() -> (TempDir, Writer) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
            .unwrap();
        (folder, Writer { path, open: None, durability: Durability::Relaxed })
    }

    fn insert(id: i64) -> Step {
        Step::Execute(Statement::new("INSERT INTO t (id, text) VALUES ($1, $2)").bind(id).bind("new"))
    }

    fn update(id: i64) -> Step {
        let update = Statement::new("UPDATE t SET text = 'changed' WHERE id = $1").bind(id);
        Step::ChangeOne(update, Mismatch::Fenced)
    }

    fn write(writer: &mut Writer, programs: Vec<Vec<Step>>) -> Vec<Result<(), WriteError>> {
        let job = |steps| {
            let (reply, received) = oneshot::channel();
            (Job { program: Program { steps, durability: Durability::Synced }, reply }, received)
        };
        let (jobs, received): (Vec<_>, Vec<_>) = programs.into_iter().map(job).unzip();
        writer.write_group(jobs);
        received.into_iter().map(|mut received| received.try_recv().unwrap()).collect()
    }

    fn ids(writer: &Writer) -> Vec<i64> {
        let connection = Connection::open(&writer.path).unwrap();
        let mut query = connection.prepare("SELECT id FROM t ORDER BY id").unwrap();
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_refused_transaction_of_a_group_writes_nothing_and_the_others_are_committed() {
        let (_folder, mut writer) = database();
        let results = write(&mut writer, vec![vec![insert(1)], vec![insert(2), update(9)], vec![insert(3), update(1)]]);
        assert!(matches!(results[..], [Ok(()), Err(WriteError::Mismatch(Mismatch::Fenced)), Ok(())]), "{results:?}");
        assert_eq!(ids(&writer), [1, 3]);
    }

    #[test]
    fn a_failing_statement_of_a_group_fails_only_its_own_transaction() {
        let (_folder, mut writer) = database();
        let results = write(&mut writer, vec![vec![insert(1)], vec![insert(2), insert(1)], vec![insert(3)]]);
        assert!(matches!(results[..], [Ok(()), Err(WriteError::BeforeCommit(_)), Ok(())]), "{results:?}");
        assert_eq!(ids(&writer), [1, 3]);
    }

    #[test]
    fn a_missing_file_fails_every_transaction_and_later_ones_succeed_when_it_is_back() {
        let (folder, mut writer) = database();
        let moved = folder.path().join("moved.db");
        std::fs::rename(&writer.path, &moved).unwrap();
        let results = write(&mut writer, vec![vec![insert(1)], vec![insert(2)]]);
        assert!(results.iter().all(|result| matches!(result, Err(WriteError::BeforeCommit(_)))), "{results:?}");
        std::fs::rename(&moved, &writer.path).unwrap();
        assert!(matches!(write(&mut writer, vec![vec![insert(3)]])[..], [Ok(())]));
        assert_eq!(ids(&writer), [3]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn transactions_of_many_tasks_are_all_written_and_closing_waits_for_them() {
        let (_folder, writer) = database();
        let handle = SqliteWriter::new(&writer.path);
        let mut tasks = tokio::task::JoinSet::new();
        for id in 0..500 {
            let handle = handle.clone();
            let durability = if id % 7 == 0 { Durability::Synced } else { Durability::Relaxed };
            tasks.spawn(async move { handle.write(Program { steps: vec![insert(id), update(id)], durability }).await });
        }
        for result in tasks.join_all().await {
            result.unwrap();
        }
        handle.close().await;
        assert_eq!(ids(&writer), (0..500).collect::<Vec<i64>>());
        handle.write(Program { steps: vec![insert(500)], durability: Durability::Relaxed }).await.unwrap();
        assert_eq!(ids(&writer).len(), 501);
    }
}
