//! A store is opened as it is, brought up to date, or refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use store::{Location, Store, StoreError};

use crate::world::{everywhere, keys, new_schema};

#[tokio::test]
async fn what_was_written_is_there_when_it_is_opened_again() {
    for place in everywhere().await {
        let held = place.run(1, store::Change::default()).await;
        let again = place.again().await;
        assert!(again.run(&held.run_id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_was_written_outlives_those_who_went_away_while_they_asked_for_it() {
    for place in everywhere().await {
        let held = place.run(1, store::Change::default()).await;
        for patience in 0..30 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            tokio::select! {
                biased;
                run = place.store.run(&held.run_id) => assert!(run.unwrap().is_some()),
                () = turns(patience) => {}
            }
        }
        assert!(place.store.run(&held.run_id).await.unwrap().is_some());
    }
}

async fn turns(number: u32) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_open_a_new_store_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut locations = vec![Location::File(folder.path().join("store.db"))];
    locations.extend(new_schema().await);
    for location in locations {
        let opening = (0..6).map(|_| {
            let location = location.clone();
            tokio::spawn(async move { Store::open(&location, keys()).await.map(drop) })
        });
        for opened in opening.collect::<Vec<_>>() {
            opened.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn one_of_a_newer_program_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let location = Location::File(path.clone());
    Store::open(&location, keys()).await.unwrap().close().await;
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}", path.display());
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("UPDATE schema_version SET version = 99").execute(&pool).await.unwrap();
    let refused = Store::open(&location, keys()).await;
    assert!(matches!(refused, Err(StoreError::TooNew { found: 99, .. })), "{refused:?}");
    let row: (i64,) = sqlx::query_as("SELECT version FROM schema_version").fetch_one(&pool).await.unwrap();
    assert_eq!(row.0, 99);
}

#[tokio::test]
async fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&path).status().unwrap().success());
    assert!(Store::open(&Location::File(path), keys()).await.is_err());
}

#[tokio::test]
async fn a_file_and_what_is_beside_it_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mode = |name: &str| {
        let found = std::fs::metadata(folder.path().join(name));
        found.map(|found| found.permissions().mode() & 0o777).ok()
    };
    let location = Location::File(path.clone());
    for round in 0..2 {
        let store = Store::open(&location, keys()).await.unwrap();
        for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
            assert_eq!(mode(name), Some(0o600), "{name}, round {round}");
        }
        store.close().await;
        // As an older version left it.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
}

#[tokio::test]
async fn a_remote_server_is_not_talked_to_without_being_verified() {
    for mode in ["require", "prefer", "allow"] {
        let url = format!("postgres://me:hunter2@db.invalid/x?sslmode={mode}");
        let refused = Store::open(&Location::Postgres(url.clone()), keys()).await.unwrap_err();
        assert!(matches!(refused, StoreError::WeakTls(_)), "{refused}");
        assert!(!refused.to_string().contains("hunter2") && refused.to_string().contains("verify-full"), "{refused}");
        let looked = store::StoreProbe::at(&Location::Postgres(url)).await.unwrap_err();
        assert!(matches!(looked, StoreError::WeakTls(_)), "{looked}");
    }
}
