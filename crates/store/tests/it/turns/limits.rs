//! A turn and its principal cannot store more than the limits, and a full turn can still end.

use contract::config::{Quotas, Retention};
use contract::limits::{
    MAX_OPEN_TURNS, MAX_STORED_RESPONSE_BYTES, MAX_TURN_BYTES, MAX_TURN_DELIVERIES, MAX_TURN_STEPS,
};
use sqlx::{AnyConnection, Connection, Executor};
use store::{CommitError, Durability, HeldTurn, Location, Quota, Store, TurnChange, TurnLimit, TurnState};

use super::{commit, create, delivery, in_state, new_turn, principal, response, state, step, steps};
use crate::world::{NOW, Place, everywhere};

async fn exceeded(store: &Store, held: &mut HeldTurn, change: &TurnChange) -> Option<TurnLimit> {
    match store.commit_turn(held, change, Durability::Relaxed, NOW).await {
        Ok(()) => None,
        Err(CommitError::TurnLimit(limit)) => Some(limit),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_turn_with_too_many_steps_is_refused_more_and_can_end() {
    for place in everywhere().await {
        let full = TurnChange { steps: vec![step("model", "{}"); MAX_TURN_STEPS], ..TurnChange::default() };
        create(&place, 1, full).await;
        // Another process knows the numbers, too.
        let mut held = place.store.take_turn_forcibly(&super::turn_id(&place, 1), "two", NOW + 1000).await.unwrap();
        assert_eq!(held.next_step() as usize, MAX_TURN_STEPS);
        assert_eq!(exceeded(&place.store, &mut held, &steps(&["{}"])).await, Some(TurnLimit::Steps));
        let end = TurnChange { state: Some(TurnState::Failed), ..steps(&["too many steps"]) };
        commit(&place, &mut held, end).await;
        assert_eq!(state(&place, 1).await, Some(TurnState::Failed));
        assert_eq!(super::bodies(&place, 1).await.len(), MAX_TURN_STEPS + 1);
    }
}

#[tokio::test]
async fn a_turn_with_too_many_bytes_is_refused_more_and_can_end() {
    for place in everywhere().await.into_iter().skip(1) {
        let mut held = create(&place, 1, steps(&["x".repeat(MAX_TURN_BYTES / 2).as_str()])).await;
        let large = steps(&["x".repeat(MAX_TURN_BYTES / 2).as_str()]);
        assert_eq!(exceeded(&place.store, &mut held, &large).await, Some(TurnLimit::Bytes));
        let large = "x".repeat(MAX_STORED_RESPONSE_BYTES + 1);
        let responds = |body: &str| TurnChange { response: Some(response("r", body, &[])), ..TurnChange::default() };
        assert_eq!(exceeded(&place.store, &mut held, &responds(&large)).await, Some(TurnLimit::ResponseBytes));
        assert_eq!(exceeded(&place.store, &mut held, &responds(&large[1..])).await, Some(TurnLimit::Bytes));
        let row = place.store.turn(&held.turn_id).await.unwrap().unwrap();
        assert!(row.bytes as usize > MAX_TURN_BYTES / 2 && row.steps == 1, "{row:?}");
        commit(&place, &mut held, TurnChange { state: Some(TurnState::Failed), ..steps(&["too large"]) }).await;
    }
}

#[tokio::test]
async fn a_turn_with_too_many_deliveries_is_refused_more() {
    for place in everywhere().await {
        let delivers = |from: usize, to: usize| TurnChange {
            deliveries: (from..to).map(|number| delivery(&place, &format!("call_{number}"), 1)).collect(),
            ..TurnChange::default()
        };
        create(&place, 1, delivers(0, MAX_TURN_DELIVERIES)).await;
        let mut held = place.store.take_turn_forcibly(&super::turn_id(&place, 1), "two", NOW + 1000).await.unwrap();
        let more = delivers(MAX_TURN_DELIVERIES, MAX_TURN_DELIVERIES + 1);
        assert_eq!(exceeded(&place.store, &mut held, &more).await, Some(TurnLimit::Deliveries));
        let all: Vec<String> = more.deliveries.iter().map(|delivery| delivery.call_id.clone()).collect();
        assert_eq!(place.store.deliveries(&principal(&place, "ada"), &all).await.unwrap(), []);
        let rows = place.store.deliveries_of_turn(&held.turn_id).await.unwrap();
        assert_eq!(rows.len(), MAX_TURN_DELIVERIES);
    }
}

/// Stores waiting turns of `ada` as fast as the database can.
async fn fill_with_waiting(place: &Place, count: usize) {
    let url = match &place.location {
        Location::File(path) => format!("sqlite://{}", path.display()),
        Location::Postgres(url) => url.clone(),
        Location::Memory => panic!("an in-memory store cannot be shared"),
    };
    let ada = principal(place, "ada");
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         INSERT INTO turns (turn_id, principal, agent_id, session_id, wire, request_digest, state, steps, sequence, \
         fence, holder, lease_until, created_at, updated_at, expires_at, bytes) \
         SELECT 'filled_' || i, '{ada}', 'a', 's', 'chat', 'd', 'waiting', 0, 1, 1, 'one', 0, 0, 0, 0, 0 FROM n"
    );
    AnyConnection::connect(&url).await.unwrap().execute(sql.as_str()).await.unwrap();
}

#[tokio::test]
async fn a_principal_with_too_many_waiting_turns_cannot_leave_another_one_waiting() {
    for place in everywhere().await.into_iter().skip(1) {
        fill_with_waiting(&place, MAX_OPEN_TURNS - 1).await;
        let mut last = create(&place, 1, in_state(TurnState::Waiting)).await;
        let mut held = create(&place, 2, TurnChange::default()).await;
        let waits = in_state(TurnState::Waiting);
        assert_eq!(exceeded(&place.store, &mut held, &waits).await, Some(TurnLimit::OpenTurns));
        assert_eq!(state(&place, 2).await, Some(TurnState::Running), "nothing was written");
        // Another principal is not affected, and a turn that waits already may wait on.
        let of_bob = store::NewTurn { principal: principal(&place, "bob"), ..new_turn(&place, 3) };
        place.store.create_turn(&of_bob, &waits, "one", NOW, NOW).await.unwrap();
        assert_eq!(exceeded(&place.store, &mut last, &waits).await, None);
        commit(&place, &mut last, in_state(TurnState::Aborted)).await;
        assert_eq!(exceeded(&place.store, &mut held, &waits).await, None);
    }
}

#[tokio::test]
async fn the_bytes_of_turns_count_for_the_quota_of_their_principal() {
    for place in everywhere().await {
        let quotas = Quotas { stored_bytes: 100_000, ..Quotas::DEFAULT };
        let store = place.store.clone().bounded(Retention::DEFAULT, quotas);
        let body = "x".repeat(60_000);
        let mut held = store.create_turn(&new_turn(&place, 1), &steps(&[&body]), "one", NOW + 1000, NOW).await.unwrap();
        let refused = store.commit_turn(&mut held, &steps(&[&body]), Durability::Relaxed, NOW).await;
        let Err(CommitError::Quota(quota)) = refused else { panic!("{refused:?}") };
        assert_eq!((quota.quota, quota.limit), (Quota::StoredBytes, 100_000));
        assert!(quota.to_string().contains("turns"), "{quota}");
        assert_eq!(super::bodies(&place, 1).await.len(), 1, "nothing was written");
        let of_bob = store::NewTurn { principal: principal(&place, "bob"), ..new_turn(&place, 2) };
        store.create_turn(&of_bob, &steps(&[&body]), "one", NOW, NOW).await.unwrap();
        // It can still end.
        let end = TurnChange { state: Some(TurnState::Failed), ..steps(&["no space"]) };
        store.commit_turn(&mut held, &end, Durability::Relaxed, NOW).await.unwrap();
    }
}
