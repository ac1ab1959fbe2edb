//! Runs expire and old runs are deleted.

use contract::ids::RunId;
use store::{ApprovalState, CallState, Change, Durability, LeaseError, LegRow, RunState};

use crate::world::{NOW, Place, approval_request, call, entry, everywhere};

fn waiting(place: &Place, number: u32) -> Change {
    Change {
        state: Some(RunState::Waiting),
        release: true,
        snapshot: Some((0, b"state".to_vec())),
        approvals: vec![approval_request(place, number)],
        legs: vec![LegRow::begun(0, 1, vec![])],
        calls: vec![call(1, CallState::Approval)],
        entries: vec![entry("kept")],
        ..Change::default()
    }
}

async fn state(place: &Place, run_id: &RunId) -> Option<RunState> {
    place.store.run(run_id).await.unwrap().map(|row| row.state)
}

#[tokio::test]
async fn expiry_deletes_the_snapshot_and_voids_the_approvals_of_a_run() {
    for place in everywhere().await {
        let held = place.run(1, waiting(&place, 1)).await;
        place.store.expire(NOW + 9_999).await.unwrap();
        assert_eq!(state(&place, &held.run_id).await, Some(RunState::Waiting));
        place.store.expire(NOW + 10_000).await.unwrap();
        let row = place.store.run(&held.run_id).await.unwrap().unwrap();
        assert_eq!((row.state, row.snapshot), (RunState::Expired, None));
        assert_eq!(place.store.approvals_of_run(&held.run_id).await.unwrap()[0].state, ApprovalState::Void);
        let taken = place.store.take(&held.run_id, "two", NOW + 20_000, NOW + 30_000).await;
        assert!(matches!(taken, Err(LeaseError::Unknown)), "{taken:?}");
        assert_eq!(place.store.expire(NOW + 10_000).await.unwrap(), 0, "a run expires once");
    }
}

#[tokio::test]
async fn a_run_with_a_valid_lease_does_not_expire() {
    for place in everywhere().await {
        // A process that died leaves a running or waiting run with a lease. A direct call without a cell has no lease.
        let direct = place.direct_call(3).await;
        let running = place.run(1, Change::default()).await;
        let waiting = place.run(2, Change { release: false, ..waiting(&place, 2) }).await;
        let runs = [running.run_id.clone(), waiting.run_id.clone()];
        place.store.renew("one", &runs, NOW + 20_000).await.unwrap();
        place.store.expire(NOW + 10_000).await.unwrap();
        for run in [&running, &waiting] {
            assert!(!state(&place, &run.run_id).await.unwrap().is_over());
        }
        place.store.expire(NOW + 20_000).await.unwrap();
        for run in [&running, &waiting] {
            assert_eq!(state(&place, &run.run_id).await, Some(RunState::Expired));
        }
        assert_eq!(state(&place, &direct.run_id).await, Some(RunState::Running));
    }
}

#[tokio::test]
async fn a_running_run_that_its_process_released_at_shutdown_expires() {
    for place in everywhere().await {
        let running = place.run(1, Change::default()).await;
        assert_eq!(place.store.release("one").await.unwrap(), 1);
        place.store.expire(NOW + 10_000).await.unwrap();
        assert_eq!(state(&place, &running.run_id).await, Some(RunState::Expired));
    }
}

#[tokio::test]
async fn the_expiry_of_a_run_can_be_postponed_but_not_brought_forward() {
    for place in everywhere().await {
        let held = place.run(1, waiting(&place, 1)).await;
        place.store.prolong(&held.run_id, NOW + 50_000).await.unwrap();
        place.store.prolong(&held.run_id, NOW + 1).await.unwrap();
        place.store.expire(NOW + 49_999).await.unwrap();
        assert_eq!(state(&place, &held.run_id).await, Some(RunState::Waiting));
        place.store.expire(NOW + 50_000).await.unwrap();
        place.store.prolong(&held.run_id, NOW + 90_000).await.unwrap();
        assert_eq!(state(&place, &held.run_id).await, Some(RunState::Expired));
    }
}

#[tokio::test]
async fn old_runs_are_deleted_and_their_transcripts_kept() {
    for place in everywhere().await {
        let live = place.run(1, waiting(&place, 1)).await;
        let mut over = place.run(2, waiting(&place, 2)).await;
        let end = Change { state: Some(RunState::Completed), ..Change::default() };
        place.store.commit(&mut over, &end, Durability::Synced, NOW + 100).await.unwrap();
        place.store.delete_runs_before(NOW + 100).await.unwrap();
        assert!(state(&place, &over.run_id).await.is_some(), "not yet");
        place.store.delete_runs_before(NOW + 101).await.unwrap();
        assert_eq!(state(&place, &over.run_id).await, None);
        assert_eq!(place.store.calls(&over.run_id).await.unwrap(), []);
        assert_eq!(place.store.legs(&over.run_id).await.unwrap(), []);
        assert_eq!(place.store.approvals_of_run(&over.run_id).await.unwrap(), []);
        assert_eq!(place.store.transcript(&over.scope.session_id).await.unwrap().len(), 2);
        // The waiting run still has its catalog and calls.
        let row = place.store.run(&live.run_id).await.unwrap().unwrap();
        assert!(place.store.tables(&row.catalog, 100).await.unwrap().is_some());
        assert_eq!(place.store.calls(&live.run_id).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn live_runs_are_counted_and_found_by_their_session() {
    for place in everywhere().await {
        let before = place.store.live_runs().await.unwrap();
        let held = place.run(1, waiting(&place, 1)).await;
        place.run(2, Change { state: Some(RunState::Failed), ..Change::default() }).await;
        let session = &held.scope.session_id;
        assert_eq!(place.store.runs_of_session(session).await.unwrap(), [held.run_id.as_str()]);
        assert_eq!(place.store.runs_of_session("unknown session").await.unwrap(), [""; 0]);
        assert_eq!((before, place.store.live_runs().await.unwrap()), (0, 1));
    }
}

#[tokio::test]
async fn waiting_runs_are_found_by_scope_and_definition_until_they_expire() {
    for place in everywhere().await {
        let held = place.run(1, waiting(&place, 1)).await;
        let running = place.run(2, Change { state: Some(RunState::Running), ..waiting(&place, 2) }).await;
        let definition = place.store.run(&held.run_id).await.unwrap().unwrap().definition;
        let found = |definition: String, now| {
            let (store, scope) = (place.store.clone(), place.scope());
            async move { store.waiting_runs(&scope, &definition, now).await.unwrap() }
        };
        let waiting = found(definition.clone(), NOW).await;
        assert!(waiting.contains(&held.run_id) && !waiting.contains(&running.run_id), "{waiting:?}");
        assert!(found(format!("{definition} "), NOW).await.is_empty());
        assert!(found(definition.clone(), NOW + 10_000).await.is_empty(), "expired");
        let other = contract::scope::Scope { agent_id: "another".to_owned(), ..place.scope() };
        assert!(place.store.waiting_runs(&other, &definition, NOW).await.unwrap().is_empty());
    }
}
