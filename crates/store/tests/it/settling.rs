//! Outcomes of parked calls: the first one wins, and one for an ended run is stored but not used.

use contract::ids::CallId;
use store::{CallState, Change, CommitError, Durability, RunState, SettleError, SettleResult, StoredReply};

use crate::world::{NOW, call, everywhere};

fn parked() -> Change {
    let calls = [CallState::Parked, CallState::Away, CallState::Dispatched, CallState::Requested, CallState::Approval];
    let calls = calls.into_iter().zip(1..).map(|(state, number)| call(number, state)).collect();
    Change { calls, ..Change::default() }
}

#[tokio::test]
async fn the_first_outcome_of_a_call_wins_and_outcomes_are_ordered_by_arrival() {
    for place in everywhere().await {
        let held = place.run(1, parked()).await;
        for (order, number) in [(1, CallId(3)), (2, CallId(1)), (3, CallId(2))] {
            let settled = place.store.settle(&held.run_id, number, "first").await.unwrap();
            assert_eq!(settled, SettleResult::WillDeliver);
            let again = place.store.settle(&held.run_id, number, "second").await;
            assert!(matches!(again, Err(SettleError::NotWaiting)), "{again:?}");
            let calls = place.store.calls(&held.run_id).await.unwrap();
            let row = calls.iter().find(|row| row.call == number).unwrap();
            assert_eq!(
                (row.state, row.outcome.as_deref(), row.settle_order),
                (CallState::Settled, Some("first"), Some(order))
            );
        }
        for nothing in [4, 5, 6].map(CallId) {
            assert!(place.store.settle(&held.run_id, nothing, "x").await.is_err(), "{nothing}");
        }
        assert!(place.store.settle(&"cm_nothing".into(), CallId(1), "x").await.is_err());
    }
}

#[tokio::test]
async fn the_holder_does_not_overwrite_an_outcome_from_another_process() {
    for place in everywhere().await {
        let mut held = place.run(1, parked()).await;
        place.store.settle(&held.run_id, CallId(1), "theirs").await.unwrap();
        let late = Change { calls: vec![call(1, CallState::Parked)], ..Change::default() };
        place.store.commit(&mut held, &late, Durability::Synced, NOW).await.unwrap();
        let row = place.store.calls(&held.run_id).await.unwrap().remove(0);
        assert_eq!((row.state, row.outcome.as_deref()), (CallState::Settled, Some("theirs")));
        // The holder can still record its delivery.
        let mut delivered = row;
        delivered.state = CallState::Delivered;
        delivered.reply = Some(StoredReply::Resolved("1".to_owned()));
        let change = Change { calls: vec![delivered.clone()], ..Change::default() };
        place.store.commit(&mut held, &change, Durability::Synced, NOW).await.unwrap();
        assert_eq!(place.store.calls(&held.run_id).await.unwrap()[0], delivered);
    }
}

#[tokio::test]
async fn an_outcome_for_an_ended_run_is_late() {
    for place in everywhere().await {
        let mut held = place.run(1, parked()).await;
        let end = Change { state: Some(RunState::Aborted), ..Change::default() };
        place.store.commit(&mut held, &end, Durability::Synced, NOW).await.unwrap();
        assert_eq!(place.store.settle(&held.run_id, CallId(1), "late").await.unwrap(), SettleResult::RunEnded);
        assert_eq!(place.store.calls(&held.run_id).await.unwrap()[0].outcome.as_deref(), Some("late"));
        assert!(place.store.settle(&held.run_id, CallId(1), "later").await.is_err());
    }
}

#[tokio::test]
async fn of_concurrent_outcomes_only_one_is_stored() {
    for place in everywhere().await {
        let held = place.run(1, parked()).await;
        let other = place.reopen().await;
        let mut taken = 0;
        let racers = (0..16).map(|number| {
            let (store, id) = (if number % 2 == 0 { place.store.clone() } else { other.clone() }, held.run_id.clone());
            tokio::spawn(async move { store.settle(&id, CallId(1), &number.to_string()).await.is_ok() })
        });
        for racer in racers.collect::<Vec<_>>() {
            taken += usize::from(racer.await.unwrap());
        }
        assert_eq!(taken, 1);
    }
}

#[tokio::test]
async fn of_two_nodes_that_follow_one_task_only_the_holder_settles_it_once() {
    for place in everywhere().await {
        let first = place.run(1, parked()).await;
        let other = place.reopen().await;
        // The lease of the first node expired while it slept, and the second took over the run.
        let second = other.take(&first.run_id, "two", NOW + 2000, NOW + 3000).await.unwrap();
        let slept = place.store.settle_held(&first, CallId(2), "theirs").await;
        assert!(matches!(slept, Err(CommitError::Fenced)), "{slept:?}");
        let row = |calls: Vec<store::CallRow>| calls.into_iter().find(|row| row.call == CallId(2)).unwrap();
        let calls = place.store.calls(&first.run_id).await.unwrap();
        assert_eq!(row(calls).outcome, None);
        assert!(other.settle_held(&second, CallId(2), "ours").await.unwrap());
        // Later outcomes change nothing, not even from the holder.
        assert!(!other.settle_held(&second, CallId(2), "again").await.unwrap());
        assert!(matches!(place.store.settle(&first.run_id, CallId(2), "late").await, Err(SettleError::NotWaiting)));
        let calls = place.store.calls(&first.run_id).await.unwrap();
        assert_eq!((row(calls.clone()).state, row(calls).outcome.as_deref()), (CallState::Settled, Some("ours")));
    }
}

#[tokio::test]
async fn a_ticket_is_stored_with_its_call_until_the_call_is_written_without_it() {
    for place in everywhere().await {
        let mut away = call(1, CallState::Away);
        away.ticket = Some("where it is".to_owned());
        let mut held = place.run(1, Change { calls: vec![away.clone()], ..Change::default() }).await;
        assert_eq!(place.reopen().await.calls(&held.run_id).await.unwrap(), [away]);
        let again = Change { calls: vec![call(1, CallState::Dispatched)], ..Change::default() };
        place.store.commit(&mut held, &again, Durability::Synced, NOW).await.unwrap();
        assert_eq!(place.store.calls(&held.run_id).await.unwrap()[0].ticket, None);
    }
}
