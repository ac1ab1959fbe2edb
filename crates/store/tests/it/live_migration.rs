//! A store is upgraded while a process of an older version uses it.

use contract::scope::Scope;
use sqlx::{AnyConnection, Connection, Executor, Row};
use store::{Change, Durability, Location, NewTurn, RunState, Store, StoreError, TurnChange};

use crate::world::{NOW, Place, everywhere, keys, new_schema};

/// The tables of schema version 2, and the statements of a program of that version.
const SCHEMA_2: &str = include_str!("schema_2.sql");
const INSERT_RUN: &str = "INSERT INTO runs (run_id, agent_id, session_id, agent_run_id, tool_call_id, state, sequence, \
    fence, holder, lease_until, created_at, updated_at, expires_at, catalog, definition, progress) \
    VALUES ($1, 'a', 's', 'r', 't', 'running', 1, 1, 'old', 0, 0, 0, 9000000000000, 'c', '{}', '')";
const INSERT_CATALOG: &str = "INSERT INTO catalogs (hash, tables) VALUES ('c', $1) ON CONFLICT (hash) DO NOTHING";
const INSERT_CALL: &str = "INSERT INTO calls (run_id, call, leg, method, target, payload, input_hash, state, attempt, since, \
    parent) VALUES ($1, 1, 0, 'call', 't', '{}', 'h', 'requested', 0, 0, '')";
const SUSPEND_RUN: &str = "UPDATE runs SET sequence = sequence + 1, state = 'waiting' WHERE run_id = $1 \
    AND sequence = 1 AND fence = 1";

struct Older {
    connection: AnyConnection,
}

impl Older {
    async fn connect(location: &Location) -> Self {
        sqlx::any::install_default_drivers();
        let mut connection = match location {
            Location::File(path) => {
                AnyConnection::connect(&format!("sqlite://{}?mode=rwc", path.display())).await.unwrap()
            }
            Location::Postgres(url) => AnyConnection::connect(url).await.unwrap(),
            Location::Memory => panic!("an in-memory store cannot be shared"),
        };
        if let Location::File(_) = location {
            connection.execute("PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 10000").await.unwrap();
        }
        Self { connection }
    }

    async fn create_tables(&mut self, location: &Location) {
        let sql = match location {
            Location::Postgres(_) => SCHEMA_2.replace("BLOB", "BYTEA"),
            Location::File(_) | Location::Memory => SCHEMA_2.to_owned(),
        };
        self.connection.execute(sql.as_str()).await.unwrap();
    }

    /// Starts a run and suspends it, in two transactions.
    async fn run_and_suspend(&mut self, number: usize) {
        let run_id = format!("old_{number}");
        let mut transaction = self.connection.begin().await.unwrap();
        sqlx::query(INSERT_CATALOG).bind(vec![1_u8]).execute(&mut *transaction).await.unwrap();
        sqlx::query(INSERT_RUN).bind(run_id.clone()).execute(&mut *transaction).await.unwrap();
        sqlx::query(INSERT_CALL).bind(run_id.clone()).execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        let suspended = sqlx::query(SUSPEND_RUN).bind(run_id).execute(&mut self.connection).await.unwrap();
        assert_eq!(suspended.rows_affected(), 1);
    }
}

async fn places() -> (Vec<Location>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut places = vec![Location::File(folder.path().join("store.db"))];
    places.extend(new_schema().await);
    (places, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_process_keeps_working_while_newer_ones_upgrade_the_store() {
    let (places, _folder) = places().await;
    for location in places {
        let mut older = Older::connect(&location).await;
        older.create_tables(&location).await;
        for number in 0..20 {
            older.run_and_suspend(number).await;
        }
        let working = tokio::spawn(async move {
            for number in 20..200 {
                older.run_and_suspend(number).await;
            }
            older
        });
        let newer: Vec<_> = (0..3)
            .map(|_| {
                let location = location.clone();
                tokio::spawn(async move { Store::open(&location, keys()).await.unwrap() })
            })
            .collect();
        let mut stores = Vec::new();
        for opened in newer {
            stores.push(opened.await.unwrap());
        }
        let mut older = working.await.unwrap();
        let row = older.connection.fetch_one("SELECT COUNT(*) FROM runs WHERE state = 'waiting'").await.unwrap();
        assert_eq!(row.try_get::<i64, _>(0).unwrap(), 200, "nothing is lost");
        // The newer processes can resume runs that the older one wrote before and after the upgrade, and the older one
        // can still write.
        for number in [3, 199] {
            let run_id = format!("old_{number}").into();
            let mut held = stores[0].take(&run_id, "new", NOW, NOW + 1000).await.unwrap();
            assert_eq!(stores[1].calls(&run_id).await.unwrap().len(), 1);
            assert_eq!(held.scope.client, "", "a run of the older version belongs to no client");
            let end = Change { state: Some(RunState::Completed), ..Change::default() };
            stores[0].commit(&mut held, &end, Durability::Synced, NOW).await.unwrap();
        }
        older.run_and_suspend(900).await;
    }
}

#[tokio::test]
async fn an_upgraded_store_keeps_turns_and_finds_older_runs_by_their_control_calls() {
    let (places, _folder) = places().await;
    for location in places {
        let mut older = Older::connect(&location).await;
        older.create_tables(&location).await;
        older.run_and_suspend(1).await;
        let store = Store::open(&location, keys()).await.unwrap();
        let [agent_id, session_id, agent_run_id] = ["a", "s", "r"].map(str::to_owned);
        let scope = Scope { agent_id, session_id, agent_run_id, ..Scope::default() };
        assert_eq!(store.run_of_tool_call(&scope, "t").await.unwrap(), Some("old_1".into()));
        let turn = NewTurn {
            turn_id: "turn_1".into(),
            principal: "p".to_owned(),
            agent_id: "a".to_owned(),
            session_id: "s".to_owned(),
            parent: None,
            wire: "chat".to_owned(),
            request_digest: "d".to_owned(),
            expires_at: NOW,
        };
        store.create_turn(&turn, &TurnChange::default(), "one", NOW, NOW).await.unwrap();
        assert!(store.turn_by_request("p", "d", NOW).await.unwrap().is_some());
        older.run_and_suspend(2).await;
    }
}

/// Changes that a future version may make: it adds columns.
const NEWER: [&str; 3] = [
    "ALTER TABLE runs ADD COLUMN mood TEXT",
    "ALTER TABLE calls ADD COLUMN weight BIGINT NOT NULL DEFAULT 1",
    "UPDATE schema_version SET version = version + 1",
];

async fn store_and_take_run(place: &Place, number: u32) {
    let mut held = place.run(number, Change { state: Some(RunState::Waiting), ..Change::default() }).await;
    place
        .store
        .commit(&mut held, &Change { release: true, ..Change::default() }, Durability::Synced, NOW)
        .await
        .unwrap();
    place.store.take(&held.run_id, "two", NOW, NOW).await.unwrap();
    assert!(place.store.run(&held.run_id).await.unwrap().is_some());
    assert_eq!(place.store.calls(&held.run_id).await.unwrap(), []);
}

#[tokio::test]
async fn an_open_store_keeps_working_after_a_newer_version_upgrades_it_but_cannot_be_reopened() {
    for place in everywhere().await.into_iter().skip(1) {
        store_and_take_run(&place, 1).await;
        let mut newer = Older::connect(&place.location).await;
        let mut transaction = newer.connection.begin().await.unwrap();
        for step in NEWER {
            transaction.execute(step).await.unwrap();
        }
        transaction.commit().await.unwrap();
        store_and_take_run(&place, 2).await;
        let refused = Store::open(&place.location, keys()).await;
        assert!(matches!(refused, Err(StoreError::TooNew { .. })), "{refused:?}");
        store_and_take_run(&place, 3).await;
    }
}
