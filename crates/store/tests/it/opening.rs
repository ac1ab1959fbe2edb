//! Opening a store: an existing one, a new one, or one that is rejected.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use store::{Location, Store, StoreError};

use crate::world::{everywhere, keys, new_schema};

#[tokio::test]
async fn a_stored_run_is_found_after_reopening() {
    for place in everywhere().await {
        let held = place.run(1, store::Change::default()).await;
        let again = place.reopen().await;
        assert!(again.run(&held.run_id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_stored_run_survives_reads_that_are_dropped() {
    for place in everywhere().await {
        let held = place.run(1, store::Change::default()).await;
        for yields in 0..30 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            tokio::select! {
                biased;
                run = place.store.run(&held.run_id) => assert!(run.unwrap().is_some()),
                () = yield_times(yields) => {}
            }
        }
        assert!(place.store.run(&held.run_id).await.unwrap().is_some());
    }
}

async fn yield_times(number: u32) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_store_can_be_opened_concurrently() {
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
async fn a_store_of_a_newer_version_is_rejected_and_unchanged() {
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
async fn a_file_that_is_not_a_store_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&path).status().unwrap().success());
    assert!(Store::open(&Location::File(path), keys()).await.is_err());
}

#[tokio::test]
async fn only_the_owner_can_read_the_store_and_its_companion_files() {
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
        // The permissions that an older version created it with.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
}

#[tokio::test]
async fn an_sslmode_that_does_not_verify_a_remote_server_is_rejected() {
    for mode in ["require", "prefer", "allow"] {
        let url = format!("postgres://me:hunter2@db.invalid/x?sslmode={mode}");
        let refused = Store::open(&Location::Postgres(url.clone()), keys()).await.unwrap_err();
        assert!(matches!(refused, StoreError::WeakTls(_)), "{refused}");
        assert!(!refused.to_string().contains("hunter2") && refused.to_string().contains("verify-full"), "{refused}");
        let probed = store::StoreProbe::at(&Location::Postgres(url)).await.unwrap_err();
        assert!(matches!(probed, StoreError::WeakTls(_)), "{probed}");
    }
}
