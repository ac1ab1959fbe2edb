//! A snapshot opens only for the run and the leg it was taken for.

use std::os::unix::fs::PermissionsExt;

use contract::ids::RunId;
use store::{Change, Durability, Keys, Location, RunRow, RunState, SealError, Store, StoreError};

use crate::world::{NOW, Place, everywhere};

fn frozen(leg: i64, state: &[u8]) -> Change {
    Change { snapshot: Some((leg, state.to_vec())), ..Change::default() }
}

async fn row(place: &Place, run_id: &RunId) -> RunRow {
    place.store.run(run_id).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_snapshot_is_stored_encrypted_and_can_be_opened() {
    for place in everywhere().await {
        let held = place.run(1, frozen(3, b"a cell's memory")).await;
        let row = row(&place, &held.run_id).await;
        let sealed = row.snapshot.clone().unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"memory"));
        assert_eq!(row.snapshot_leg, Some(3));
        assert_eq!(place.store.open_snapshot(&held, &row).unwrap().unwrap(), b"a cell's memory");
    }
}

#[tokio::test]
async fn a_swapped_or_rolled_back_snapshot_is_rejected() {
    for place in everywhere().await {
        let mut held = place.run(1, frozen(1, b"older")).await;
        let older = row(&place, &held.run_id).await;
        place.store.commit(&mut held, &frozen(2, b"newer"), Durability::Synced, NOW).await.unwrap();
        let newer = row(&place, &held.run_id).await;
        let other = place.run(2, frozen(2, b"another's")).await;
        let others = row(&place, &other.run_id).await;
        for (what, sealed) in [("rolled back", older.snapshot), ("swapped", others.snapshot)] {
            let forged = RunRow { snapshot: sealed, ..newer.clone() };
            assert_eq!(place.store.open_snapshot(&held, &forged), Err(SealError::Damaged), "{what}");
        }
        let mut flipped = newer.clone();
        flipped.snapshot.as_mut().unwrap()[40] ^= 1;
        assert_eq!(place.store.open_snapshot(&held, &flipped), Err(SealError::Damaged));
        assert_eq!(place.store.open_snapshot(&held, &newer).unwrap().unwrap(), b"newer");
    }
}

#[tokio::test]
async fn a_store_opens_old_snapshots_only_if_it_has_the_old_key() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("store.db"));
    let store = Store::open(&location, Keys::new(1, [1; 32])).await.unwrap();
    let places = everywhere().await;
    let mut held = places[0].new_run(1);
    store.commit(&mut held, &frozen(0, b"state"), Durability::Synced, NOW).await.unwrap();
    let row = store.run(&held.run_id).await.unwrap().unwrap();
    let rotated = Store::open(&location, Keys::new(2, [2; 32])).await.unwrap();
    assert_eq!(rotated.open_snapshot(&held, &row), Err(SealError::UnknownKey { id: 1 }));
    let path = folder.path().join("key");
    std::fs::write(&path, format!("1 {} 0\n2 {} 0\n", "01".repeat(32), "02".repeat(32))).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let with_both = Store::open(&location, Keys::of_file(&path).unwrap()).await.unwrap();
    assert_eq!(with_both.open_snapshot(&held, &row).unwrap().unwrap(), b"state");
}

#[tokio::test]
async fn a_different_key_with_the_number_of_a_key_in_use_is_rejected() {
    for place in everywhere().await.into_iter().skip(1) {
        place.store.check_keys(NOW).await.unwrap();
        place.store.check_keys(NOW).await.unwrap();
        let waits = Change { state: Some(RunState::Waiting), release: true, ..frozen(0, b"state") };
        place.run(1, waits).await;
        assert_eq!(place.store.cells_sealed_with(1, NOW).await.unwrap(), 1);
        assert_eq!(place.store.cells_sealed_with(2, NOW).await.unwrap(), 0);
        let stranger = Store::open(&place.location, Keys::new(1, [8; 32])).await.unwrap();
        let refused = stranger.check_keys(NOW).await;
        assert!(matches!(refused, Err(StoreError::OtherKey { id: 1, cells: 1 })), "{refused:?}");
        // The key is accepted under another number, and under the same number once the cell has expired.
        Store::open(&place.location, Keys::new(2, [8; 32])).await.unwrap().check_keys(NOW).await.unwrap();
        stranger.check_keys(NOW + 10_000).await.unwrap();
    }
}
