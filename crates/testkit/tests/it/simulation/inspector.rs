//! Reads the store from outside while no node runs, and creates stores that break a rule on purpose.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use contract::ids::RunId;
use serde_json::Value;
use sqlx::{Connection, Executor, SqliteConnection};
use store::{Approval, CallRow, Keys, LegRow, Location, RunRow, RunSummary, SessionKey, Store};
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
