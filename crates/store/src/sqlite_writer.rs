//! The connection that writes an SQLite file: it executes whole transactions whose steps are known in advance.
//!
//! A connection of sqlx hands every statement to its own thread and waits for the result, so a transaction of eight
//! statements switches threads sixteen times. Here a thread executes whole transactions, which switch threads twice.
//! Transactions that arrive while another one is committed are committed together, with one write to the disk; each is a
//! savepoint of its own, so one that is refused does not affect the others.
//!
//! A small transaction is executed by its caller, without any switch, if the connection is not in use, and if it need not
//! wait for the disk or the disk has been fast. See [`Sharing`].
//!
//! Transactions that must read before they know what to write use sqlx.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::durability::Durability;
use crate::error::StoreError;
use crate::statement::{Mismatch, Step, StepError, StepExecutor};

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

/// The most steps, and bytes of values, of a transaction that its caller executes.
const MAX_CALLER_STEPS: usize = 96;
const MAX_CALLER_BYTES: usize = 64 << 10;

/// The most transactions that callers execute before the thread executes one. Together they write less to the log than
/// the pages after which the thread copies it.
const MAX_CALLER_TRANSACTIONS: usize = 128;

/// How many transactions the thread executes after several were waiting for it, before callers may execute theirs.
const RESERVED_AFTER_GROUP: usize = 64;

/// A synchronised transaction that takes longer shows that the disk is slow. A caller blocks a thread of the runtime for
/// that long.
const SLOW_SYNC: Duration = Duration::from_millis(1);

/// How many synchronised transactions the thread executes when the store is opened and after a slow one, before callers
/// may execute theirs.
const FAST_SYNCS: usize = 16;

/// The settings of a connection that [`open`] returns.
const NEW_CONNECTION: Settings = Settings { durability: Durability::Relaxed, executor: Executor::Thread };

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
pub(crate) struct Program<'a> {
    pub(crate) steps: Vec<Step<'a>>,
    pub(crate) durability: Durability,
}

impl Program<'_> {
    /// Whether the transaction takes so little processor time that a task may execute it on its own thread.
    fn is_short(&self) -> bool {
        self.steps.len() <= MAX_CALLER_STEPS
            && self.steps.iter().map(Step::value_bytes).sum::<usize>() <= MAX_CALLER_BYTES
    }

    /// Returns a program with copies of what this one borrows, for the writing thread.
    fn into_owned(self) -> Program<'static> {
        Program { steps: self.steps.into_iter().map(Step::into_owned).collect(), durability: self.durability }
    }
}

struct Job {
    program: Program<'static>,
    reply: oneshot::Sender<Result<(), WriteError>>,
}

struct Thread {
    jobs: mpsc::Sender<Job>,
    handle: JoinHandle<()>,
}

/// The handle of the writing connection and of its thread, which starts when it is needed. Clones share both; the thread
/// ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct SqliteWriter {
    writer: Arc<Mutex<Writer>>,
    thread: Arc<Mutex<Option<Thread>>>,
}

impl std::fmt::Debug for SqliteWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteWriter").finish_non_exhaustive()
    }
}

impl SqliteWriter {
    pub(crate) fn new(path: &Path) -> Self {
        Self { writer: Arc::new(Mutex::new(Writer::new(path))), thread: Arc::default() }
    }

    /// Executes a transaction and commits it.
    pub(crate) async fn write(&self, program: Program<'_>) -> Result<(), WriteError> {
        if let Some(result) = self.write_here(&program) {
            return result;
        }
        let (reply, received) = oneshot::channel();
        self.send(Job { program: program.into_owned(), reply })
            .map_err(|error| WriteError::BeforeCommit(error.into()))?;
        // The thread answers every job that it takes, unless the process ends.
        received.await.unwrap_or_else(|_| Err(WriteError::AtCommit(sqlx::Error::WorkerCrashed.into())))
    }

    /// Executes a transaction on this thread; `None` if the writing thread must do it.
    fn write_here(&self, program: &Program<'_>) -> Option<Result<(), WriteError>> {
        let may_wait = program.durability == Durability::Relaxed || runtime_has_other_threads();
        if may_wait && program.is_short() { self.writer.try_lock()?.write_for_caller(program) } else { None }
    }

    fn send(&self, job: Job) -> Result<(), sqlx::Error> {
        let mut thread = self.thread.lock();
        let running = match &mut *thread {
            Some(running) => running,
            none => none.insert(start(Arc::clone(&self.writer))?),
        };
        running.jobs.send(job).map_err(|_| sqlx::Error::WorkerCrashed)
    }

    /// Waits for accepted transactions and closes the connection. A later transaction opens it again.
    pub(crate) async fn close(&self) {
        let thread = self.thread.lock().take();
        if let Some(Thread { jobs, handle }) = thread {
            drop(jobs);
            if !matches!(tokio::task::spawn_blocking(move || handle.join()).await, Ok(Ok(()))) {
                tracing::error!("the thread that writes the store has panicked");
            }
        }
        self.writer.lock().open = None;
    }
}

/// Whether other tasks can proceed while this one blocks its thread.
fn runtime_has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
    })
}

fn start(writer: Arc<Mutex<Writer>>) -> Result<Thread, sqlx::Error> {
    let (jobs, received) = mpsc::channel::<Job>();
    let run = move || {
        while let Ok(first) = received.recv() {
            let mut group = vec![first];
            group.extend(received.try_iter().take(MAX_GROUP - 1));
            writer.lock().write_group(group);
        }
    };
    let handle = std::thread::Builder::new().name("store-writer".to_owned()).spawn(run)?;
    Ok(Thread { jobs, handle })
}

/// Who executes a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    /// The writing thread. It may wait: for the write lock of another process, and for the write-ahead log to be copied
    /// to the file.
    Thread,
    /// The task that wants the transaction. It waits only for a disk that has been fast.
    Caller,
}

/// What the connection is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    durability: Durability,
    executor: Executor,
}

/// Decides who executes the next transaction, so that callers do not take transactions from the thread that it would
/// commit together, so that the thread copies the write-ahead log in time, and so that callers do not wait for a slow
/// disk.
#[derive(Debug)]
struct Sharing {
    /// How many transactions the thread executes before callers may do so again.
    reserved: usize,
    /// How many transactions callers have executed since the thread's last one.
    by_callers: usize,
    /// How many synchronised transactions must be fast before callers may execute some.
    awaited_syncs: usize,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { reserved: 0, by_callers: 0, awaited_syncs: FAST_SYNCS }
    }
}

impl Sharing {
    fn may_caller_execute(&self, durability: Durability) -> bool {
        let may_wait = durability == Durability::Relaxed || self.awaited_syncs == 0;
        may_wait && self.reserved == 0 && self.by_callers < MAX_CALLER_TRANSACTIONS
    }

    /// Records how long a synchronised transaction took.
    fn synced(&mut self, duration: Duration) {
        self.awaited_syncs = if duration > SLOW_SYNC { FAST_SYNCS } else { self.awaited_syncs.saturating_sub(1) };
    }

    fn caller_executed(&mut self) {
        self.by_callers += 1;
    }

    fn thread_executed(&mut self, transactions: usize) {
        self.by_callers = 0;
        self.reserved =
            if transactions > 1 { RESERVED_AFTER_GROUP } else { self.reserved.saturating_sub(transactions) };
    }
}

/// The connection that writes the file.
struct Writer {
    path: PathBuf,
    /// `None` before the first transaction, and after an error that may have broken the connection.
    open: Option<Connection>,
    settings: Settings,
    sharing: Sharing,
}

impl Writer {
    fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), open: None, settings: NEW_CONNECTION, sharing: Sharing::default() }
    }

    /// Executes a transaction for the task that wants it; `None` if nothing was written, and the thread must do it.
    fn write_for_caller(&mut self, program: &Program<'_>) -> Option<Result<(), WriteError>> {
        // The thread opens the connection, too, because that reads the file.
        if self.open.is_none() || !self.sharing.may_caller_execute(program.durability) {
            return None;
        }
        self.sharing.caller_executed();
        let result = self.try_group(&[program], Executor::Caller).pop()?;
        match &result {
            Err(WriteError::BeforeCommit(StoreError::Sqlite(error))) if is_busy(error) => None,
            _ => Some(result),
        }
    }

    /// Commits transactions together. If one of them fails because of the database, each is committed alone, so that
    /// only those fail that must.
    fn write_group(&mut self, group: Vec<Job>) {
        let programs: Vec<&Program<'_>> = group.iter().map(|job| &job.program).collect();
        self.sharing.thread_executed(programs.len());
        let mut results = self.try_group(&programs, Executor::Thread);
        if group.len() > 1 && results.iter().any(|result| matches!(result, Err(WriteError::BeforeCommit(_)))) {
            results = programs.iter().flat_map(|program| self.try_group(&[*program], Executor::Thread)).collect();
        }
        for (job, result) in group.into_iter().zip(results) {
            // The caller may be gone.
            drop(job.reply.send(result));
        }
    }

    /// Executes transactions as savepoints of one, and returns their results. If one is [`WriteError::BeforeCommit`], it
    /// is the last, and nothing was written.
    fn try_group(&mut self, programs: &[&Program<'_>], executor: Executor) -> Vec<Result<(), WriteError>> {
        let synced = programs.iter().any(|program| program.durability == Durability::Synced);
        let durability = if synced { Durability::Synced } else { Durability::Relaxed };
        match self.take_connection(Settings { durability, executor }) {
            Ok(connection) => {
                let began = Instant::now();
                let results = transaction(&connection, programs);
                // A transaction that was refused has not waited for the disk.
                if synced && results.iter().any(Result::is_ok) {
                    self.sharing.synced(began.elapsed());
                }
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

    /// Takes the open connection, or opens one, with these settings.
    fn take_connection(&mut self, wanted: Settings) -> rusqlite::Result<Connection> {
        let connection = match self.open.take() {
            Some(connection) => connection,
            None => {
                self.settings = NEW_CONNECTION;
                open(&self.path)?
            }
        };
        if self.settings.durability != wanted.durability {
            let synchronous = match wanted.durability {
                Durability::Synced => "FULL",
                Durability::Relaxed => "NORMAL",
            };
            connection.pragma_update(None, "synchronous", synchronous)?;
        }
        if self.settings.executor != wanted.executor {
            let (timeout, checkpoint_pages) = match wanted.executor {
                Executor::Thread => (BUSY_TIMEOUT, CHECKPOINT_PAGES),
                Executor::Caller => (Duration::ZERO, 0),
            };
            connection.busy_timeout(timeout)?;
            connection.pragma_update(None, "wal_autocheckpoint", checkpoint_pages)?;
        }
        self.settings = wanted;
        Ok(connection)
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Executes programs in one transaction. The transaction is still open if it was not committed.
fn transaction(connection: &Connection, programs: &[&Program<'_>]) -> Vec<Result<(), WriteError>> {
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
    programs: &[&Program<'_>],
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

fn execute_steps(connection: &Connection, program: &Program<'_>) -> Result<(), WriteError> {
    let mut executor = StepExecutor::new(connection);
    program.steps.iter().try_for_each(|step| executor.step(step)).map_err(WriteError::from)
}

fn in_savepoint(connection: &Connection, program: &Program<'_>) -> Result<(), WriteError> {
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
    use super::{
        Connection, Durability, Duration, Executor, FAST_SYNCS, Job, MAX_CALLER_TRANSACTIONS, Mismatch, Program,
        RESERVED_AFTER_GROUP, SLOW_SYNC, Sharing, SqliteWriter, WriteError, Writer, runtime_has_other_threads,
    };
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
        (folder, Writer::new(&path))
    }

    fn insert(id: i64) -> Step<'static> {
        Step::Execute(Statement::new("INSERT INTO t (id, text) VALUES ($1, $2)").bind(id).bind("new"))
    }

    fn update(id: i64) -> Step<'static> {
        let update = Statement::new("UPDATE t SET text = 'changed' WHERE id = $1").bind(id);
        Step::ChangeOne(update, Mismatch::Fenced)
    }

    fn write(writer: &mut Writer, programs: Vec<Vec<Step<'static>>>) -> Vec<Result<(), WriteError>> {
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
    fn an_insert_of_several_rows_that_fails_writes_none_of_them() {
        let (_folder, mut writer) = database();
        let rows = || Step::Execute(Statement::new("INSERT INTO t (id, text) VALUES (2, 'a'), (3, 'b'), (1, 'c')"));
        assert!(matches!(write(&mut writer, vec![vec![insert(1)]])[..], [Ok(())]));
        let refused = writer.write_for_caller(&relaxed(vec![insert(5), rows()]));
        assert!(matches!(refused, Some(Err(WriteError::BeforeCommit(_)))), "{refused:?}");
        for programs in [vec![vec![rows()]], vec![vec![rows()], vec![insert(4)]]] {
            let results = write(&mut writer, programs);
            assert!(matches!(results[0], Err(WriteError::BeforeCommit(_))), "{results:?}");
        }
        assert_eq!(ids(&writer), [1, 4]);
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

    fn relaxed(steps: Vec<Step<'static>>) -> Program<'static> {
        Program { steps, durability: Durability::Relaxed }
    }

    #[test]
    fn callers_leave_transactions_to_the_thread_after_a_group_and_after_many_of_their_own() {
        let mut sharing = Sharing::default();
        for _ in 0..MAX_CALLER_TRANSACTIONS {
            assert!(sharing.may_caller_execute(Durability::Relaxed));
            sharing.caller_executed();
        }
        assert!(!sharing.may_caller_execute(Durability::Relaxed));
        sharing.thread_executed(1);
        assert!(sharing.may_caller_execute(Durability::Relaxed));
        sharing.thread_executed(2);
        for _ in 0..RESERVED_AFTER_GROUP {
            assert!(!sharing.may_caller_execute(Durability::Relaxed));
            sharing.thread_executed(1);
        }
        assert!(sharing.may_caller_execute(Durability::Relaxed));
    }

    #[test]
    fn callers_execute_synchronised_transactions_only_while_the_disk_is_fast() {
        let (fast, slow) = (SLOW_SYNC, SLOW_SYNC + Duration::from_micros(1));
        let mut sharing = Sharing::default();
        for first in [fast, slow, fast] {
            sharing.synced(first);
            let missing = if first == slow { FAST_SYNCS } else { FAST_SYNCS - 1 };
            for _ in 0..missing {
                assert!(!sharing.may_caller_execute(Durability::Synced));
                assert!(sharing.may_caller_execute(Durability::Relaxed));
                sharing.synced(fast);
            }
            assert!(sharing.may_caller_execute(Durability::Synced));
            sharing.synced(slow);
        }
    }

    #[test]
    fn callers_block_only_runtimes_with_other_threads() {
        use tokio::runtime::Builder;
        let blocks = |builder: &mut Builder| builder.build().unwrap().block_on(async { runtime_has_other_threads() });
        assert!(blocks(Builder::new_multi_thread().worker_threads(2)));
        assert!(!blocks(Builder::new_multi_thread().worker_threads(1)));
        assert!(!blocks(&mut Builder::new_current_thread()));
        assert!(!runtime_has_other_threads());
    }

    #[test]
    fn only_short_transactions_are_executed_by_their_callers() {
        assert!(relaxed(vec![insert(1)]).is_short());
        assert!(!relaxed((0..100).map(insert).collect()).is_short());
        let large = Statement::new("INSERT INTO t (text) VALUES ($1)").bind("a".repeat(100_000));
        assert!(!relaxed(vec![large.into()]).is_short());
    }

    #[test]
    fn a_caller_writes_by_itself_and_does_not_wait_for_the_lock_of_another_process() {
        let (_folder, mut writer) = database();
        assert!(writer.write_for_caller(&relaxed(vec![insert(1)])).is_none(), "the connection is not open yet");
        assert!(matches!(write(&mut writer, vec![vec![insert(1)]])[..], [Ok(())]));
        assert!(matches!(writer.write_for_caller(&relaxed(vec![insert(2)])), Some(Ok(()))));
        assert_eq!(writer.settings.executor, Executor::Caller);
        let refused = writer.write_for_caller(&relaxed(vec![insert(3), update(9)]));
        assert!(matches!(refused, Some(Err(WriteError::Mismatch(Mismatch::Fenced)))), "{refused:?}");
        let synced = |id| Program { steps: vec![update(id)], durability: Durability::Synced };
        assert!(writer.write_for_caller(&synced(2)).is_none(), "the disk is not known to be fast");
        let awaited = writer.sharing.awaited_syncs;
        assert!(matches!(write(&mut writer, vec![vec![update(9)]])[..], [Err(WriteError::Mismatch(_))]));
        assert_eq!(writer.sharing.awaited_syncs, awaited, "a refused transaction says nothing about the disk");
        writer.sharing.awaited_syncs = 0;
        assert!(matches!(writer.write_for_caller(&synced(2)), Some(Ok(()))));
        assert_eq!(writer.settings.durability, Durability::Synced);

        let other = Connection::open(&writer.path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let began = std::time::Instant::now();
        assert!(writer.write_for_caller(&relaxed(vec![insert(4)])).is_none());
        assert!(began.elapsed().as_secs() < 5, "it waited for {:?}", began.elapsed());
        other.execute_batch("ROLLBACK").unwrap();
        assert!(matches!(write(&mut writer, vec![vec![insert(5)]])[..], [Ok(())]));
        assert_eq!(writer.settings.executor, Executor::Thread);
        assert_eq!(ids(&writer), [1, 2, 5]);
    }
}
