//! Only the process that holds a run can change it.

use contract::ids::CallId;
use store::{CallState, Change, CommitError, Durability, LeaseError, LegRow, RunState};

use crate::world::{NOW, approval_request, call, entry, everywhere};

fn everything(place: &crate::world::Place) -> Change {
    Change {
        progress: Some("stale".to_owned()),
        legs: vec![LegRow::begun(9, 1, vec![])],
        calls: vec![call(9, CallState::Dispatched)],
        approvals: vec![approval_request(place, 9)],
        entries: vec![entry("stale")],
        ..Change::default()
    }
}

#[tokio::test]
async fn the_first_commit_writes_the_run_and_its_journal() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        assert!(place.store.run(&held.run_id).await.unwrap().is_none() && !held.is_written());
        let change = Change {
            legs: vec![LegRow::begun(0, 7, vec![CallId(3), CallId(1)])],
            calls: vec![call(2, CallState::Parked), call(1, CallState::Requested)],
            ..Change::default()
        };
        place.store.commit(&mut held, &change, Durability::Synced, NOW).await.unwrap();
        let row = place.store.run(&held.run_id).await.unwrap().unwrap();
        assert_eq!((row.state, row.expires_at, held.is_written()), (RunState::Running, NOW + 10_000, true));
        assert!(row.scope.admits(&place.scope()));
        assert_eq!(place.store.legs(&held.run_id).await.unwrap(), change.legs);
        assert_eq!(place.store.calls(&held.run_id).await.unwrap(), [change.calls[1].clone(), change.calls[0].clone()]);
        assert_eq!(place.store.tables(&row.catalog, 100).await.unwrap().unwrap(), b"tables");
        // The same run cannot be created twice.
        let again = place.store.commit(&mut place.new_run(1), &change, Durability::Synced, NOW).await;
        assert!(again.is_err(), "{again:?}");
    }
}

#[tokio::test]
async fn a_failed_first_commit_writes_nothing_and_can_be_retried() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        let bad = Change { used_approvals: vec!["apr_nothing".into()], ..everything(&place) };
        let refused = place.store.commit(&mut held, &bad, Durability::Synced, NOW).await;
        assert!(matches!(refused, Err(CommitError::ApprovalGone)), "{refused:?}");
        assert!(place.store.run(&held.run_id).await.unwrap().is_none() && !held.is_written());
        assert_eq!(place.store.transcript(&held.scope.session_id).await.unwrap(), []);
        place.store.commit(&mut held, &Change::default(), Durability::Synced, NOW).await.unwrap();
        assert!(held.is_written());
    }
}

#[tokio::test]
async fn a_holder_that_lost_the_run_writes_nothing() {
    for place in everywhere().await {
        let mut stale = place.run(1, Change::default()).await;
        let mut held = place.store.take(&stale.run_id, "two", NOW + 1001, NOW + 3000).await.unwrap();
        let refused = place.store.commit(&mut stale, &everything(&place), Durability::Relaxed, NOW).await;
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        assert_eq!(place.store.run(&held.run_id).await.unwrap().unwrap().progress, "");
        assert_eq!(place.store.legs(&held.run_id).await.unwrap(), []);
        assert_eq!(place.store.calls(&held.run_id).await.unwrap(), []);
        assert_eq!(place.store.approvals_of_run(&held.run_id).await.unwrap(), []);
        assert_eq!(place.store.transcript(&held.scope.session_id).await.unwrap(), []);
        place.store.commit(&mut held, &everything(&place), Durability::Relaxed, NOW).await.unwrap();
        assert_eq!(place.store.calls(&held.run_id).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn of_two_copies_of_a_fenced_run_only_one_can_commit() {
    for place in everywhere().await {
        let mut held = place.run(1, Change::default()).await;
        let mut copy = held.clone();
        place.store.commit(&mut held, &Change::default(), Durability::Synced, NOW).await.unwrap();
        let refused = place.store.commit(&mut copy, &Change::default(), Durability::Synced, NOW).await;
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        place.store.commit(&mut held, &Change::default(), Durability::Relaxed, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_can_be_taken_if_its_lease_is_expired_released_or_the_takers_own() {
    for place in everywhere().await {
        let mut held = place.run(1, Change::default()).await;
        let id = held.run_id.clone();
        let early = place.store.take(&id, "two", NOW + 999, NOW + 9000).await;
        assert!(matches!(early, Err(LeaseError::HeldElsewhere { until }) if until == NOW + 1000), "{early:?}");
        // A renewed lease lasts longer.
        assert_eq!(place.store.renew("one", std::slice::from_ref(&id), NOW + 2000).await.unwrap(), 1);
        assert!(place.store.take(&id, "two", NOW + 1500, NOW + 9000).await.is_err());
        // A released run can be taken at once, and its lease is not renewed.
        let release = Change { release: true, ..Change::default() };
        place.store.commit(&mut held, &release, Durability::Synced, NOW).await.unwrap();
        assert_eq!(place.store.renew("one", std::slice::from_ref(&id), NOW + 2000).await.unwrap(), 0);
        let two = place.store.take(&id, "two", NOW, NOW + 3000).await.unwrap();
        assert!(place.store.take(&id, "three", NOW + 10, NOW + 3000).await.is_err());
        place.store.take(&id, "two", NOW + 10, NOW + 3000).await.unwrap();
        // A former holder cannot release a run that was taken over since.
        place.store.release_run(&two).await.unwrap();
        assert!(place.store.take(&id, "three", NOW + 10, NOW + 3000).await.is_err());
        let three = place.store.take_forcibly(&id, "three", NOW + 3000).await.unwrap();
        place.store.release_run(&three).await.unwrap();
        place.store.take(&id, "four", NOW + 10, NOW + 3000).await.unwrap();
        let unknown = place.store.take(&"cm_nothing".into(), "two", NOW, NOW).await;
        assert!(matches!(unknown, Err(LeaseError::Unknown)), "{unknown:?}");
    }
}

#[tokio::test]
async fn an_ended_run_cannot_be_changed_or_taken() {
    for place in everywhere().await {
        for state in [RunState::Completed, RunState::Failed, RunState::Aborted, RunState::Expired] {
            let mut held =
                place.run(state as u32, Change { snapshot: Some((0, b"state".to_vec())), ..Change::default() }).await;
            let end = Change { state: Some(state), result: Some("{}".to_owned()), ..Change::default() };
            place.store.commit(&mut held, &end, Durability::Synced, NOW).await.unwrap();
            let row = place.store.run(&held.run_id).await.unwrap().unwrap();
            assert_eq!((row.state, row.snapshot.is_some(), row.result.as_deref()), (state, false, Some("{}")));
            let after = place.store.commit(&mut held, &Change::default(), Durability::Synced, NOW).await;
            assert!(matches!(after, Err(CommitError::Fenced)), "{after:?}");
            let taken = place.store.take_forcibly(&held.run_id, "two", NOW).await;
            assert!(matches!(taken, Err(LeaseError::Unknown)), "{taken:?}");
        }
    }
}

#[tokio::test]
async fn of_concurrent_takers_only_one_gets_the_run() {
    for place in everywhere().await {
        let held = place.run(1, Change { release: true, ..Change::default() }).await;
        let takers = (0..16).map(|number| {
            let (store, id) = (place.store.clone(), held.run_id.clone());
            tokio::spawn(async move { store.take(&id, &format!("taker-{number}"), NOW, NOW + 9000).await.is_ok() })
        });
        let mut taken = 0;
        for taker in takers.collect::<Vec<_>>() {
            taken += usize::from(taker.await.unwrap());
        }
        assert_eq!(taken, 1);
    }
}

/// A lease lasts 3 s and is renewed every second; clocks may differ by one second.
#[tokio::test]
async fn a_clock_one_second_ahead_takes_no_renewed_run_and_one_far_ahead_fences_the_holder() {
    let (lease, renewed_every, skew) = (3_000, 1_000, 1_000);
    for place in everywhere().await {
        let mut held = place.run(1, Change::default()).await;
        let runs = [held.run_id.clone()];
        for now in (NOW..NOW + 10_000).step_by(250) {
            if (now - NOW) % renewed_every == 0 {
                assert_eq!(place.store.renew("one", &runs, now + lease).await.unwrap(), 1);
            }
            let theirs = now + skew;
            let taken = place.store.take(&held.run_id, "two", theirs, theirs + lease).await;
            assert!(matches!(taken, Err(LeaseError::HeldElsewhere { .. })), "{taken:?} at {now}");
        }
        // A process whose clock is a minute ahead takes the run at once. The former holder can no longer write.
        let mut theirs = place.store.take(&held.run_id, "two", NOW + 70_000, NOW + 73_000).await.unwrap();
        let refused = place.store.commit(&mut held, &Change::default(), Durability::Synced, NOW + 10_000).await;
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
        assert!(!place.store.extend_lease(&held, NOW + 13_000).await.unwrap());
        place.store.commit(&mut theirs, &Change::default(), Durability::Synced, NOW + 70_000).await.unwrap();
    }
}
