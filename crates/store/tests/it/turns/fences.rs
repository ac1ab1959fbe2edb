//! Only the process that holds a turn can change it.

use std::slice::from_ref;

use contract::ids::CallId;
use store::{
    Change, CommitError, Durability, HeldTurn, LeaseError, NewDelivery, ReleaseLease, Store, TurnChange, TurnState,
};

use super::{bodies, commit, create, delivery, everything, in_state, new_turn, principal, state, steps, turn_id};
use crate::world::{NOW, Place, everywhere};

fn released() -> TurnChange {
    TurnChange { release: ReleaseLease::Release, ..TurnChange::default() }
}

async fn is_fenced(store: &Store, held: &mut HeldTurn, change: &TurnChange) -> bool {
    matches!(store.commit_turn(held, change, Durability::Relaxed, NOW).await, Err(CommitError::Fenced))
}

#[tokio::test]
async fn a_turn_is_created_with_its_first_steps_and_cannot_be_created_twice() {
    for place in everywhere().await {
        let held = create(&place, 1, steps(&["a", "b"])).await;
        assert_eq!((held.next_step(), held.fence()), (2, 1));
        let row = place.store.turn(&held.turn_id).await.unwrap().unwrap();
        assert_eq!((row.state, row.steps, row.lease_until), (TurnState::Running, 2, NOW + 1000));
        assert_eq!((row.holder.as_str(), row.wire.as_str(), row.expires_at), ("one", "chat", NOW + 10_000));
        let again = place.store.create_turn(&new_turn(&place, 1), &steps(&["c"]), "two", NOW + 1000, NOW).await;
        assert!(again.is_err(), "{again:?}");
        assert_eq!(bodies(&place, 1).await, ["a", "b"]);
    }
}

#[tokio::test]
async fn a_process_that_lost_a_turn_writes_nothing() {
    for place in everywhere().await {
        let mut stale = create(&place, 1, steps(&["a"])).await;
        let mut held = place.store.take_turn(&stale.turn_id, "two", NOW + 1001, NOW + 3000).await.unwrap();
        assert_eq!((held.next_step(), held.fence()), (1, 2));
        assert!(is_fenced(&place.store, &mut stale, &everything(&place, "stale")).await);
        assert_eq!(bodies(&place, 1).await, ["a"]);
        let (ada, session) = (principal(&place, "ada"), held.session_id.clone());
        assert_eq!(place.store.deliveries(&ada, &["stale".to_owned()]).await.unwrap(), []);
        let agent = held.agent_id.clone();
        assert_eq!(place.store.turn_by_conversation(&ada, &agent, "talk-stale").await.unwrap(), None);
        assert_eq!(place.store.response_of_item(&ada, "item-stale").await.unwrap(), None);
        assert_eq!(place.store.transcript(&session).await.unwrap(), []);
        commit(&place, &mut held, everything(&place, "new")).await;
        assert_eq!(bodies(&place, 1).await, ["a", "{}"]);
        assert_eq!(place.store.transcript(&session).await.unwrap().len(), 1);
        // Of two copies of the right to change a turn, only one can be used.
        let mut copy = held.clone();
        commit(&place, &mut held, steps(&["c"])).await;
        assert!(is_fenced(&place.store, &mut copy, &steps(&["d"])).await);
    }
}

#[tokio::test]
async fn a_turn_can_be_taken_if_its_lease_is_expired_released_or_the_takers_own() {
    for place in everywhere().await {
        let mut held = create(&place, 1, TurnChange::default()).await;
        let id = held.turn_id.clone();
        let early = place.store.take_turn(&id, "two", NOW + 999, NOW + 9000).await;
        assert!(matches!(early, Err(LeaseError::HeldElsewhere { until }) if until == NOW + 1000), "{early:?}");
        assert_eq!(place.store.renew_turns("one", from_ref(&id), NOW + 2000).await.unwrap(), 1);
        assert_eq!(place.store.renew_turns("two", from_ref(&id), NOW + 9000).await.unwrap(), 0);
        assert!(place.store.take_turn(&id, "two", NOW + 1500, NOW + 9000).await.is_err());
        commit(&place, &mut held, released()).await;
        assert_eq!(place.store.renew_turns("one", from_ref(&id), NOW + 2000).await.unwrap(), 0);
        place.store.take_turn(&id, "two", NOW, NOW + 3000).await.unwrap();
        place.store.take_turn(&id, "two", NOW, NOW + 3000).await.unwrap();
        assert!(place.store.take_turn(&id, "three", NOW, NOW + 3000).await.is_err());
        assert_eq!(place.store.lost_turns("one", from_ref(&id)).await.unwrap(), [id.as_str()]);
        assert!(place.store.lost_turns("two", from_ref(&id)).await.unwrap().is_empty());
        place.store.take_turn_forcibly(&id, "three", NOW + 3000).await.unwrap();
        assert_eq!(place.store.release_turns("two").await.unwrap(), 0);
        assert_eq!(place.store.release_turns("three").await.unwrap(), 1);
        place.store.take_turn(&id, "four", NOW, NOW + 3000).await.unwrap();
        let unknown = place.store.take_turn(&"turn_nothing".into(), "two", NOW, NOW).await;
        assert!(matches!(unknown, Err(LeaseError::Unknown)), "{unknown:?}");
    }
}

#[tokio::test]
async fn a_waiting_turn_has_no_lease_and_an_ended_one_cannot_be_changed_or_taken() {
    for place in everywhere().await {
        let mut held = create(&place, 1, in_state(TurnState::Waiting)).await;
        assert_eq!(place.store.turn(&held.turn_id).await.unwrap().unwrap().lease_until, 0);
        held = place.store.take_turn(&held.turn_id, "two", NOW, NOW + 1000).await.unwrap();
        assert_eq!(state(&place, 1).await, Some(TurnState::Waiting), "a take does not change the state");
        commit(&place, &mut held, in_state(TurnState::Running)).await;
        for (number, end) in [(1, TurnState::Completed), (2, TurnState::Failed), (3, TurnState::Aborted)] {
            if number > 1 {
                held = create(&place, number, TurnChange::default()).await;
            }
            commit(&place, &mut held, in_state(end)).await;
            assert_eq!(state(&place, number).await, Some(end));
            assert!(is_fenced(&place.store, &mut held, &steps(&["late"])).await);
            let taken = place.store.take_turn_forcibly(&held.turn_id, "two", NOW).await;
            assert!(matches!(taken, Err(LeaseError::Unknown)), "{taken:?}");
            let lost = place.store.lost_turns(&held.holder, from_ref(&held.turn_id)).await.unwrap();
            assert!(lost.is_empty(), "the holder has ended the turn itself: {lost:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_takers_only_one_gets_the_turn() {
    for place in everywhere().await {
        let held = create(&place, 1, released()).await;
        let stores = [place.store.clone(), place.reopen().await];
        let takers = (0..16_usize).map(|number| {
            let (store, id) = (stores[number % 2].clone(), held.turn_id.clone());
            tokio::spawn(async move { store.take_turn(&id, &format!("taker-{number}"), NOW, NOW + 9000).await.ok() })
        });
        let mut taken = Vec::new();
        for taker in takers.collect::<Vec<_>>() {
            taken.extend(taker.await.unwrap());
        }
        let [winner] = &mut taken[..] else { panic!("{taken:?}") };
        commit(&place, winner, steps(&["mine"])).await;
        assert_eq!(bodies(&place, 1).await, ["mine"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_turns_only_one_sends_a_call_of_a_run() {
    for place in everywhere().await {
        let run_id = place.run(1, Change::default()).await.run_id;
        let stores = [place.store.clone(), place.reopen().await];
        for round in 1..=5 {
            let mut senders = Vec::new();
            for number in 0..6_u32 {
                let mut held = create(&place, round * 10 + number, TurnChange::default()).await;
                let call_id = format!("call_{round}_{number}");
                let sent = NewDelivery { run_id: run_id.clone(), call: CallId(round), ..delivery(&place, &call_id, 1) };
                let change = TurnChange { deliveries: vec![sent], ..in_state(TurnState::Waiting) };
                let store = stores[number as usize % 2].clone();
                senders.push(tokio::spawn(async move {
                    store.commit_turn(&mut held, &change, Durability::Relaxed, NOW).await
                }));
            }
            let mut sent = 0;
            for sender in senders {
                match sender.await.unwrap() {
                    Ok(()) => sent += 1,
                    Err(error) => assert!(matches!(error, CommitError::DeliveredElsewhere), "{error:?}"),
                }
            }
            assert_eq!(sent, 1);
        }
        assert_eq!(place.store.turns_of_run(&run_id).await.unwrap().len(), 5);
    }
}

#[tokio::test]
async fn a_running_turn_whose_lease_is_over_is_orphaned() {
    for place in everywhere().await {
        create(&place, 1, TurnChange::default()).await;
        create(&place, 2, released()).await;
        create(&place, 3, in_state(TurnState::Waiting)).await;
        create(&place, 4, in_state(TurnState::Completed)).await;
        let orphaned = async |place: &Place, now, limit| {
            let rows = place.store.orphaned_turns(now, limit).await.unwrap();
            rows.into_iter().map(|row| row.turn_id).collect::<Vec<_>>()
        };
        assert_eq!(orphaned(&place, NOW + 1000, 9).await, [turn_id(&place, 2)]);
        assert_eq!(orphaned(&place, NOW + 1001, 9).await, [turn_id(&place, 2), turn_id(&place, 1)]);
        assert_eq!(orphaned(&place, NOW + 1001, 1).await.len(), 1);
    }
}
