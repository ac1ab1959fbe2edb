//! Backup and restore within and between engines, and invalid backups.

use std::collections::BTreeSet;

use sqlx::{AnyConnection, Connection, Row};
use store::{
    ApprovalScope, ApprovalState, BACKED_UP, BackupError, CallState, Change, CommitError, Decision, Durability, LegRow,
    Location, NewToken, RestoreOptions, RunState, check_backup,
};

use crate::world::{NOW, Place, approval_request, call, entry, everywhere};

const INTO_EMPTY: RestoreOptions = RestoreOptions { replace: false, end_runs: false };
const OVER: RestoreOptions = RestoreOptions { replace: true, end_runs: false };

/// Writes rows to every table, including a waiting run that can be resumed.
async fn fill(place: &Place) {
    place.store.check_keys(NOW).await.unwrap();
    let waits = Change {
        state: Some(RunState::Waiting),
        release: true,
        snapshot: Some((0, vec![7; 5_000])),
        approvals: vec![approval_request(place, 1), approval_request(place, 2)],
        legs: vec![LegRow::begun(0, 1, vec![])],
        calls: vec![call(1, CallState::Approval), call(2, CallState::Approval)],
        entries: vec![entry("ä \u{1F980}"), entry(&"long ".repeat(1_000))],
        ..Change::default()
    };
    let token = NewToken {
        token_id: "tok_1".to_owned(),
        name: "ada".to_owned(),
        hash: "00".repeat(32),
        scopes: "execute".to_owned(),
        created_at: NOW,
        expires_at: None,
    };
    place.store.create_token(&token).await.unwrap();
    place.run(1, waits).await;
    place.run(2, Change { state: Some(RunState::Completed), result: Some("{}".to_owned()), ..Change::default() }).await;
    let yes = Decision::Approve { edited_input: None, reach: ApprovalScope::Agent };
    place.store.decide(&approval_request(place, 1).approval_id, &yes, "ada", NOW).await.unwrap();
}

async fn backup(place: &Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    place.store.backup(&mut bytes, None).await.unwrap();
    bytes
}

async fn restore(place: &Place, bytes: &[u8], how: RestoreOptions) -> Result<(), BackupError> {
    let checked = check_backup(&mut &bytes[..])?;
    place.store.restore(&mut &bytes[..], &checked, how, NOW).await
}

/// Returns pairs of a store to back up and a store to restore into.
async fn pairs() -> Vec<(Place, Place)> {
    let (from, mut into) = (everywhere().await, everywhere().await);
    // Each kind into the same kind, and into the next.
    let mut pairs: Vec<(Place, Place)> = from.into_iter().zip(into.drain(..)).collect();
    let (from, mut into) = (everywhere().await, everywhere().await);
    into.rotate_left(1);
    pairs.extend(from.into_iter().zip(into));
    pairs
}

#[tokio::test]
async fn a_backup_restores_everything_into_the_same_or_another_engine() {
    for (from, into) in pairs().await {
        fill(&from).await;
        let bytes = backup(&from).await;
        restore(&into, &bytes, INTO_EMPTY).await.unwrap();
        let session = from.scope().session_id;
        assert_eq!(into.store.transcript(&session).await.unwrap(), from.store.transcript(&session).await.unwrap());
        assert_eq!(into.store.tokens().await.unwrap(), from.store.tokens().await.unwrap());
        assert_eq!(into.store.rules().await.unwrap(), from.store.rules().await.unwrap());
        for number in [1, 2] {
            let run_id = from.new_run(number).run_id;
            let (was, is) =
                (from.store.run(&run_id).await.unwrap().unwrap(), into.store.run(&run_id).await.unwrap().unwrap());
            assert_eq!((was.state, was.snapshot, was.result), (is.state, is.snapshot.clone(), is.result.clone()));
            assert_eq!(into.store.calls(&run_id).await.unwrap(), from.store.calls(&run_id).await.unwrap());
            assert_eq!(into.store.legs(&run_id).await.unwrap(), from.store.legs(&run_id).await.unwrap());
            let approvals = into.store.approvals_of_run(&run_id).await.unwrap();
            assert_eq!(approvals, from.store.approvals_of_run(&run_id).await.unwrap());
        }
        // The run can be resumed: taken over, opened with the same key, completed.
        let run_id = from.new_run(1).run_id;
        let mut held = into.store.take(&run_id, "two", NOW, NOW + 1000).await.unwrap();
        let row = into.store.run(&run_id).await.unwrap().unwrap();
        assert_eq!(into.store.open_snapshot(&held, &row).unwrap().unwrap(), vec![7; 5_000]);
        assert!(into.store.tables(&row.catalog, 100).await.unwrap().is_some());
        let end = Change { state: Some(RunState::Completed), ..Change::default() };
        into.store.commit(&mut held, &end, Durability::Synced, NOW).await.unwrap();
        // Another backup of the same store is identical.
        assert_eq!(backup(&from).await, bytes);
    }
}

#[tokio::test]
async fn a_backup_is_consistent_while_other_processes_write() {
    for place in everywhere().await.into_iter().skip(1) {
        fill(&place).await;
        let other = place.reopen().await;
        let writing = tokio::spawn({
            let runs: Vec<_> = (10..60).map(|number| place.new_run(number)).collect();
            async move {
                for mut held in runs {
                    let change = Change { calls: vec![call(1, CallState::Requested)], ..Change::default() };
                    other.commit(&mut held, &change, Durability::Relaxed, NOW).await.unwrap();
                }
            }
        });
        for _ in 0..5 {
            let checked = check_backup(&mut &backup(&place).await[..]).unwrap();
            // The first run has two calls, the second none, and each later run one.
            assert_eq!(checked.row_counts["runs"] - 2, checked.row_counts["calls"] - 2, "{:?}", checked.row_counts);
        }
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn a_process_that_held_a_run_before_a_restore_can_no_longer_write_it() {
    for place in everywhere().await {
        fill(&place).await;
        let bytes = backup(&place).await;
        let run_id = place.new_run(1).run_id;
        // The run is taken over and changed several times after the backup.
        let mut held = place.store.take(&run_id, "one", NOW, NOW + 100_000).await.unwrap();
        for _ in 0..3 {
            place.store.commit(&mut held, &Change::default(), Durability::Relaxed, NOW).await.unwrap();
        }
        let refused = restore(&place, &bytes, INTO_EMPTY).await;
        assert!(matches!(refused, Err(BackupError::NotEmpty)), "{refused:?}");
        restore(&place, &bytes, OVER).await.unwrap();
        assert!(!place.store.extend_lease(&held, NOW + 100_000).await.unwrap());
        assert_eq!(place.store.lost("one", std::slice::from_ref(&run_id)).await.unwrap(), [run_id.as_str()]);
        let written = place.store.commit(&mut held, &Change::default(), Durability::Relaxed, NOW).await;
        assert!(matches!(written, Err(CommitError::Fenced)), "{written:?}");
        // The restored run has no lease, so any process can take it over.
        let mut held = place.store.take(&run_id, "two", NOW, NOW + 1000).await.unwrap();
        place.store.commit(&mut held, &Change::default(), Durability::Relaxed, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_restore_can_abort_live_runs() {
    for place in everywhere().await {
        fill(&place).await;
        let bytes = backup(&place).await;
        restore(&place, &bytes, RestoreOptions { replace: true, end_runs: true }).await.unwrap();
        let row = place.store.run(&place.new_run(1).run_id).await.unwrap().unwrap();
        assert_eq!((row.state, row.snapshot), (RunState::Aborted, None));
        let approvals = place.store.approvals_of_run(&row.run_id).await.unwrap();
        assert!(approvals.iter().all(|approval| approval.state == ApprovalState::Void), "{approvals:?}");
        assert_eq!(place.store.live_runs().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_truncated_or_changed_backup_is_rejected_and_changes_nothing() {
    let places = everywhere().await;
    let (from, into) = (&places[0], &places[1]);
    fill(from).await;
    let bytes = backup(from).await;
    let expected = check_backup(&mut &bytes[..]).unwrap();
    assert_eq!(expected.sealed_with, BTreeSet::from([1]));
    // Each place of the header, and every third of the rest.
    let positions = || (0..64).chain((64..bytes.len()).step_by(3));
    for cut in positions() {
        assert!(check_backup(&mut &bytes[..cut]).is_err(), "cut at {cut}");
    }
    for place in positions() {
        let mut flipped = bytes.clone();
        flipped[place] ^= 1 << (place % 8);
        assert!(check_backup(&mut &flipped[..]).is_err(), "flipped at {place}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(check_backup(&mut &longer[..]).is_err());
    // A length that claims half a gigabyte, and one that claims four.
    for length in [400_u32 << 20, u32::MAX] {
        let mut huge = bytes.clone();
        huge[29..33].copy_from_slice(&length.to_le_bytes());
        assert!(matches!(check_backup(&mut &huge[..]), Err(BackupError::Cut | BackupError::Damaged(_))));
    }
    assert!(matches!(check_backup(&mut &b"SQLite format 3"[..]), Err(BackupError::NotABackup)));
    assert!(matches!(check_backup(&mut &b""[..]), Err(BackupError::NotABackup)));
    // Changed between the check and the restore.
    let mut swapped = Vec::new();
    fill(into).await;
    into.store.backup(&mut swapped, None).await.unwrap();
    let before = backup(into).await;
    let refused = into.store.restore(&mut &swapped[..], &expected, OVER, NOW).await;
    assert!(matches!(refused, Err(BackupError::Changed)), "{refused:?}");
    let mut cut = &bytes[..bytes.len() - 1];
    assert!(into.store.restore(&mut cut, &expected, OVER, NOW).await.is_err());
    assert_eq!(backup(into).await, before, "nothing was changed");
}

#[tokio::test]
async fn a_backup_of_a_newer_version_is_rejected() {
    let places = everywhere().await;
    let mut bytes = backup(&places[0]).await;
    bytes[20..28].copy_from_slice(&99_i64.to_le_bytes());
    assert!(matches!(check_backup(&mut &bytes[..]), Err(BackupError::TooNew { found: 99, .. })));
    bytes[16] = 2;
    assert!(matches!(check_backup(&mut &bytes[..]), Err(BackupError::Format { found: 2 })));
}

#[tokio::test]
async fn a_backup_has_every_table_except_schema_version_and_usage() {
    let places = everywhere().await;
    let Location::File(path) = &places[1].location else { panic!() };
    let mut connection = AnyConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let rows =
        sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table'").fetch_all(&mut connection).await.unwrap();
    let tables: BTreeSet<String> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
    let expected = BACKED_UP.iter().chain(&["schema_version", "usage"]).map(|name| (*name).to_owned());
    assert_eq!(tables, expected.collect());
}
