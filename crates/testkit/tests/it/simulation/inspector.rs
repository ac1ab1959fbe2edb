//! Reads the store from outside while no node runs, and creates stores that break a rule on purpose.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use contract::ids::{RunId, TurnId};
use serde_json::Value;
use sqlx::{Connection, Executor, SqliteConnection};
use store::{
    Approval, CallRow, DeliveryRow, Durability, HeldTurn, Keys, LegRow, Location, NewStep, RunRow, RunSummary,
    SessionKey, Store, TurnChange, TurnRow, TurnStep,
};
use tokio::runtime::Runtime;

use super::requests::scope;

/// A separate connection to the store of a history.
pub(super) struct StoreInspector {
    runtime: Runtime,
    store: Store,
}

impl StoreInspector {
    pub(super) fn open(path: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(Store::open(&Location::File(path.to_owned()), Keys::new(1, [7; 32]))).unwrap();
        Self { runtime, store }
    }

    /// Returns the run of an agent run, which has at most one.
    pub(super) fn run_of(&self, agent_run: &str) -> Option<RunSummary> {
        self.runtime.block_on(self.store.recent_runs(&scope(agent_run), 0, 2)).unwrap().pop()
    }

    pub(super) fn row(&self, run: &RunId) -> RunRow {
        self.runtime.block_on(self.store.run(run)).unwrap().unwrap()
    }

    pub(super) fn legs(&self, run: &RunId) -> Vec<LegRow> {
        self.runtime.block_on(self.store.legs(run)).unwrap()
    }

    pub(super) fn calls(&self, run: &RunId) -> Vec<CallRow> {
        self.runtime.block_on(self.store.calls(run)).unwrap()
    }

    /// Returns a value of the session that all cells belong to.
    pub(super) fn session_value(&self, key: &str) -> Option<Value> {
        let session = SessionKey::from(&scope(""));
        let found = self.runtime.block_on(self.store.session_value(&session, key)).unwrap()?;
        Some(serde_json::from_str(&found.value).unwrap())
    }

    pub(super) fn approvals(&self, run: &RunId) -> Vec<Approval> {
        self.runtime.block_on(self.store.approvals_of_run(run)).unwrap()
    }
}

/// A connection of its own, for tables that the store has no list of.
pub(super) struct TurnInspector {
    connection: SqliteConnection,
}

impl TurnInspector {
    pub(super) fn open(inspector: &StoreInspector, path: &Path) -> Self {
        let url = format!("sqlite://{}", path.display());
        Self { connection: inspector.runtime.block_on(SqliteConnection::connect(&url)).unwrap() }
    }

    /// Returns the ids of all turns, in the order in which they were created.
    pub(super) fn turns(&mut self, inspector: &StoreInspector) -> Vec<TurnId> {
        let all = sqlx::query_scalar("SELECT turn_id FROM turns ORDER BY rowid").fetch_all(&mut self.connection);
        let all: Vec<String> = inspector.runtime.block_on(all).unwrap();
        all.into_iter().map(TurnId::new).collect()
    }
}

impl StoreInspector {
    pub(super) fn turn(&self, turn_id: &TurnId) -> TurnRow {
        self.runtime.block_on(self.store.turn(turn_id)).unwrap().unwrap()
    }

    pub(super) fn turn_steps(&self, turn_id: &TurnId) -> Vec<TurnStep> {
        self.runtime.block_on(self.store.turn_steps(turn_id)).unwrap()
    }

    /// Returns the calls for clients with these ids.
    pub(super) fn deliveries(&self, principal: &str, call_ids: &[String]) -> Vec<DeliveryRow> {
        self.runtime.block_on(self.store.deliveries(principal, call_ids)).unwrap()
    }

    pub(super) fn deliveries_of_turn(&self, turn_id: &TurnId) -> Vec<DeliveryRow> {
        self.runtime.block_on(self.store.deliveries_of_turn(turn_id)).unwrap()
    }

    /// Takes a turn whose lease is over, like a process that then stalls.
    pub(super) fn take_turn(&self, turn_id: &TurnId, holder: &str, now: i64) -> Option<HeldTurn> {
        self.runtime.block_on(self.store.take_turn(turn_id, holder, now, now + 1)).ok()
    }

    /// Writes a step of a turn that was taken before. Returns whether the store accepts it.
    pub(super) fn write_step(&self, held: &mut HeldTurn, step: NewStep, now: i64) -> bool {
        let change = TurnChange { steps: vec![step], ..TurnChange::default() };
        self.runtime.block_on(self.store.commit_turn(held, &change, Durability::Synced, now)).is_ok()
    }
}

impl Drop for StoreInspector {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.close());
    }
}

/// A rule that a store breaks on purpose, by a trigger in its database, so that the oracle must detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    None,
    /// The intent to dispatch a call is not stored.
    NoIntent,
    /// The outcome of a parked call is deleted when its run is next claimed.
    LostOutcome,
    /// The use of an approval is not stored.
    UnusedApproval,
    /// A session value that replaces another is not stored.
    LostValue,
    /// The last step of a turn is deleted when its next process takes it.
    LostStep,
    /// A call for a client is not stored.
    LostDelivery,
    /// The result that a client sends for a call is not recorded.
    LostAnswer,
    /// A process that takes a turn does not invalidate the former holder.
    NoFence,
    /// The end of a turn is stored, but the turn stays in progress.
    OpenEnd,
}

impl Sabotage {
    fn sql(self) -> &'static str {
        match self {
            Self::None => "SELECT 1",
            Self::NoIntent => {
                "CREATE TRIGGER no_intent AFTER UPDATE OF state ON calls WHEN NEW.state = 'dispatched' \
                 BEGIN UPDATE calls SET state = 'requested' WHERE run_id = NEW.run_id AND call = NEW.call; END; \
                 CREATE TRIGGER no_first_intent AFTER INSERT ON calls WHEN NEW.state = 'dispatched' \
                 BEGIN UPDATE calls SET state = 'requested' WHERE run_id = NEW.run_id AND call = NEW.call; END"
            }
            Self::LostOutcome => {
                "CREATE TRIGGER lost_outcome AFTER UPDATE OF fence ON runs WHEN NEW.fence > OLD.fence \
                 BEGIN UPDATE calls SET state = 'parked', outcome = NULL, settle_order = NULL WHERE run_id = NEW.run_id \
                 AND state = 'settled' AND reply IS NULL; END"
            }
            Self::LostValue => {
                "CREATE TRIGGER lost_value AFTER UPDATE OF value ON session_values WHEN NEW.version <> OLD.version \
                 BEGIN UPDATE session_values SET value = OLD.value WHERE agent_id = NEW.agent_id \
                 AND session_id = NEW.session_id AND client = NEW.client AND key = NEW.key; END"
            }
            Self::LostStep => {
                "CREATE TRIGGER lost_step AFTER UPDATE OF fence ON turns WHEN NEW.fence > OLD.fence AND NEW.steps > 1 \
                 BEGIN DELETE FROM turn_steps WHERE turn_id = NEW.turn_id AND step = NEW.steps - 1; END"
            }
            Self::LostDelivery => {
                "CREATE TRIGGER lost_delivery AFTER INSERT ON deliveries \
                 BEGIN DELETE FROM deliveries WHERE call_id = NEW.call_id; END"
            }
            Self::LostAnswer => {
                "CREATE TRIGGER lost_answer AFTER UPDATE OF answered_at ON deliveries WHEN NEW.answered_at NOT NULL \
                 BEGIN UPDATE deliveries SET answered_at = NULL WHERE call_id = NEW.call_id; END"
            }
            Self::NoFence => {
                "CREATE TRIGGER no_fence AFTER UPDATE OF fence ON turns WHEN NEW.fence > OLD.fence \
                 BEGIN UPDATE turns SET fence = OLD.fence, sequence = OLD.sequence WHERE turn_id = NEW.turn_id; END"
            }
            Self::OpenEnd => {
                "CREATE TRIGGER open_end AFTER UPDATE OF state ON turns WHEN NEW.state = 'completed' \
                 BEGIN UPDATE turns SET state = 'running' WHERE turn_id = NEW.turn_id; END"
            }
            Self::UnusedApproval => {
                "CREATE TRIGGER unused_approval AFTER UPDATE OF state ON approvals WHEN NEW.state = 'used' \
                 BEGIN UPDATE approvals SET state = 'approved' WHERE approval_id = NEW.approval_id; END"
            }
        }
    }
}

/// Empty stores as bytes: copying one is faster than creating it.
static EMPTY: Mutex<Vec<(Sabotage, Vec<u8>)>> = Mutex::new(Vec::new());

/// Creates an empty store, in memory if the system has `/dev/shm`.
pub(super) fn empty_store(sabotage: Sabotage) -> (tempfile::TempDir, PathBuf) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.unwrap();
    let path = folder.path().join("store.db");
    let mut empty = EMPTY.lock().unwrap_or_else(PoisonError::into_inner);
    match empty.iter().find(|(made, _)| *made == sabotage) {
        Some((_, bytes)) => std::fs::write(&path, bytes).unwrap(),
        None => {
            drop(StoreInspector::open(&path));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
                connection.execute(sabotage.sql()).await.unwrap();
                connection.close().await.unwrap();
            });
            empty.push((sabotage, std::fs::read(&path).unwrap()));
        }
    }
    (folder, path)
}
