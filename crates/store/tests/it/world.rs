//! Stores to test, and runs to store in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::ids::CallId;
use contract::scope::Scope;
use sqlx::{AnyConnection, Connection, Executor};
use store::{
    ApprovalRequest, CallRow, CallState, Change, Durability, EntryKind, FencedRun, Keys, Location, NewEntry, NewRun,
    Store,
};
use tempfile::TempDir;

/// The current time of the tests.
pub(crate) const NOW: i64 = 1_000_000;

/// A store for one test, and a unique name for its rows.
pub(crate) struct Place {
    pub store: Store,
    pub name: String,
    pub location: Location,
    _folder: Option<TempDir>,
}

impl Place {
    async fn at(location: Location, folder: Option<TempDir>) -> Self {
        let store = Store::open(&location, keys()).await.unwrap();
        Self { store, name: unused_name(), location, _folder: folder }
    }

    /// Opens the same store again, as another process would. An in-memory store cannot be opened twice.
    pub(crate) async fn reopen(&self) -> Store {
        match self.location {
            Location::Memory => self.store.clone(),
            Location::File(_) | Location::Postgres(_) => Store::open(&self.location, keys()).await.unwrap(),
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope {
            agent_id: format!("agent-{}", self.name),
            session_id: format!("session-{}", self.name),
            agent_run_id: "run".to_owned(),
            ..Scope::default()
        }
    }

    /// Returns a run that is not stored yet, leased until `NOW + 1000`, expiring at `NOW + 10_000`.
    pub(crate) fn new_run(&self, number: u32) -> FencedRun {
        self.new_run_of(number, self.scope())
    }

    pub(crate) fn new_run_of(&self, number: u32, scope: Scope) -> FencedRun {
        FencedRun::new(self.definition(number, scope))
    }

    fn definition(&self, number: u32, scope: Scope) -> NewRun {
        NewRun {
            run_id: format!("cm_{}_{number}", self.name).into(),
            scope,
            tool_call_id: "exec-1".to_owned(),
            holder: "one".to_owned(),
            lease_until: NOW + 1000,
            expires_at: NOW + 10_000,
            catalog: format!("catalog-{}", self.name),
            tables: Arc::from(*b"tables"),
            definition: "{}".to_owned(),
        }
    }

    /// Stores a run with its first change.
    /// Stores a direct tool call, which has neither a cell nor a holder.
    pub(crate) async fn direct_call(&self, number: u32) -> FencedRun {
        let mut held = FencedRun::new(NewRun { holder: String::new(), ..self.definition(number, self.scope()) });
        self.store
            .commit(&mut held, &Change { release: true, ..Change::default() }, Durability::Synced, NOW)
            .await
            .unwrap();
        held
    }

    pub(crate) async fn run(&self, number: u32, change: Change) -> FencedRun {
        let mut held = self.new_run(number);
        self.store.commit(&mut held, &change, Durability::Synced, NOW).await.unwrap();
        held
    }
}

/// Creates a schema on the Postgres server in `CELLMATE_TEST_POSTGRES`; `None` if the variable is not set.
pub(crate) async fn new_schema() -> Option<Location> {
    let server = std::env::var("CELLMATE_TEST_POSTGRES").ok()?;
    let schema = unused_name();
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(&server).await.unwrap();
    connection.execute(format!("CREATE SCHEMA {schema}").as_str()).await.unwrap();
    let separator = if server.contains('?') { '&' } else { '?' };
    Some(Location::Postgres(format!("{server}{separator}options=-c%20search_path%3D{schema}")))
}

fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    format!("t{since}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn keys() -> Keys {
    Keys::new(1, [7; 32])
}

/// Returns a store of each kind: in memory, in a file, and on a server if `CELLMATE_TEST_POSTGRES` is set.
pub(crate) async fn everywhere() -> Vec<Place> {
    let folder = tempfile::tempdir().unwrap();
    let file = Location::File(folder.path().join("store.db"));
    let mut places = vec![Place::at(Location::Memory, None).await, Place::at(file, Some(folder)).await];
    if let Some(server) = new_schema().await {
        places.push(Place::at(server, None).await);
    }
    places
}

pub(crate) fn call(number: u32, state: CallState) -> CallRow {
    CallRow {
        call: CallId(number),
        leg: 0,
        method: "call".to_owned(),
        target: "openclaw:core:read".to_owned(),
        payload: "{}".to_owned(),
        input_hash: "hash".to_owned(),
        tool_id: None,
        input: None,
        tool_hash: None,
        state,
        attempt: 0,
        due_at: None,
        since: NOW,
        settle_order: None,
        outcome: None,
        reply: None,
        parent: "exec-1".to_owned(),
        ticket: None,
    }
}

pub(crate) fn approval_request(place: &Place, number: u32) -> ApprovalRequest {
    ApprovalRequest {
        approval_id: format!("apr_{}_{number}", place.name).into(),
        call: CallId(number),
        tool_id: format!("openclaw:core:{}", place.name),
        tool_hash: "tool".to_owned(),
        source_identity: Some("server".to_owned()),
        input: serde_json::json!({"n": number}),
        input_hash: "input".to_owned(),
        reason: "it pays".to_owned(),
        requested_at: NOW,
        expires_at: NOW + 5000,
        question: None,
    }
}

pub(crate) fn entry(text: &str) -> NewEntry {
    NewEntry::new(NOW, EntryKind::Note, &serde_json::json!({ "text": text }))
}
