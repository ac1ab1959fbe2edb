//! Turns of the gateway: who may change them, what is stored of them, and when they are deleted.

mod fences;
mod limits;
mod lookups;
mod retention;
mod usage;

use contract::ids::{CallId, TurnId};
use store::{
    Durability, Entry, EntryKind, HeldTurn, NewDelivery, NewResponse, NewStep, NewTurn, TurnChange, TurnState,
};

use crate::world::{NOW, Place};

/// Returns a turn of the principal `ada` that expires at `NOW + 10_000`.
fn new_turn(place: &Place, number: u32) -> NewTurn {
    NewTurn {
        turn_id: turn_id(place, number),
        principal: principal(place, "ada"),
        agent_id: format!("agent-{}", place.name),
        session_id: format!("session-{}", place.name),
        parent: None,
        wire: "chat".to_owned(),
        request_digest: format!("digest-{number}"),
        expires_at: NOW + 10_000,
    }
}

fn turn_id(place: &Place, number: u32) -> TurnId {
    format!("turn_{}_{number}", place.name).into()
}

fn principal(place: &Place, name: &str) -> String {
    format!("{name}-{}", place.name)
}

fn step(kind: &str, body: &str) -> NewStep {
    NewStep { kind: kind.to_owned(), body: body.to_owned() }
}

fn steps(bodies: &[&str]) -> TurnChange {
    TurnChange { steps: bodies.iter().map(|body| step("model", body)).collect(), ..TurnChange::default() }
}

fn in_state(state: TurnState) -> TurnChange {
    TurnChange { state: Some(state), ..TurnChange::default() }
}

fn delivery(place: &Place, call_id: &str, round: u32) -> NewDelivery {
    let run_id = format!("cm_{}", place.name).into();
    NewDelivery { call_id: call_id.to_owned(), run_id, call: CallId(7), round }
}

fn response(response_id: &str, body: &str, items: &[&str]) -> NewResponse {
    NewResponse {
        response_id: response_id.to_owned(),
        body: body.to_owned(),
        item_ids: items.iter().map(|item| (*item).to_owned()).collect(),
        expires_at: NOW + 5_000,
    }
}

/// Returns a change that writes a row of every kind.
fn everything(place: &Place, call_id: &str) -> TurnChange {
    let said = Entry { at: NOW, kind: EntryKind::ModelMessage, entry: serde_json::json!({"text": call_id}) };
    TurnChange {
        deliveries: vec![delivery(place, call_id, 1)],
        conversations: vec![format!("talk-{call_id}")],
        response: Some(response(&format!("resp-{call_id}-{}", place.name), "{}", &[&format!("item-{call_id}")])),
        transcript: vec![said],
        ..steps(&["{}"])
    }
}

/// Stores a turn that the process `one` holds until `NOW + 1000`.
async fn create(place: &Place, number: u32, change: TurnChange) -> HeldTurn {
    place.store.create_turn(&new_turn(place, number), &change, "one", NOW + 1000, NOW).await.unwrap()
}

async fn commit(place: &Place, held: &mut HeldTurn, change: TurnChange) {
    place.store.commit_turn(held, &change, Durability::Relaxed, NOW).await.unwrap();
}

async fn state(place: &Place, number: u32) -> Option<TurnState> {
    place.store.turn(&turn_id(place, number)).await.unwrap().map(|row| row.state)
}

async fn bodies(place: &Place, number: u32) -> Vec<String> {
    let steps = place.store.turn_steps(&turn_id(place, number)).await.unwrap();
    let numbers: Vec<u32> = steps.iter().map(|step| step.number).collect();
    assert_eq!(numbers, (0..u32::try_from(steps.len()).unwrap()).collect::<Vec<_>>());
    steps.into_iter().map(|step| step.body).collect()
}
