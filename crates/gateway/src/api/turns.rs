//! `/api/v1/turns`: turns of agents.

use axum::Json;
use axum::extract::State;
use contract::ids::TurnId;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{
    Durability, Entry, EntryKind, LeaseError, NewStep, RunPageFilter, RunState, Store, TurnChange, TurnRow, TurnState,
};
use telemetry::LogIgnored;
use wire::conversation::Part;

use super::Api;
use super::access::Viewer;
use super::error::ApiError;
use super::limits::{MAX_PAGE, MAX_STEER_CHARS};
use super::request::{Fields, Ids};
use super::schema::Presence::Required;
use super::schema::{boolean, integer, list, nullable_integer, nullable_text, object, one_of, short_text, text};
use crate::gateway::TurnError;
use crate::turn::record::{Step, TurnEnd};

/// How long the turn is held to write its end.
const LEASE_MS: i64 = 6_000;

/// The reason of an abort for which the caller gives none.
const ABORTED: &str = "aborted over the API";

pub(super) fn turn_fields() -> Vec<(&'static str, super::schema::Presence, Value)> {
    vec![
        ("turnId", Required, text()),
        ("agentId", Required, text()),
        ("sessionId", Required, text()),
        ("principal", Required, text()),
        ("parent", Required, nullable_text()),
        ("wire", Required, text()),
        ("state", Required, one_of(&TurnState::ALL.map(TurnState::as_str))),
        ("steps", Required, integer()),
        ("createdAt", Required, integer()),
        ("updatedAt", Required, integer()),
        ("expiresAt", Required, integer()),
    ]
}

pub(super) fn turn_schema() -> Value {
    let call = object(&[
        ("callId", Required, text()),
        ("runId", Required, text()),
        ("sentAt", Required, integer()),
        ("answeredAt", Required, nullable_integer()),
    ]);
    let mut fields = turn_fields();
    fields.push(("clientCalls", Required, list(call)));
    object(&fields)
}

pub(super) fn steer_schema() -> Value {
    object(&[("text", Required, short_text(MAX_STEER_CHARS))])
}

pub(super) fn steered_schema() -> Value {
    object(&[("steered", Required, boolean())])
}

pub(super) fn turn_json(turn: &TurnRow) -> Value {
    json!({
        "turnId": turn.turn_id, "agentId": turn.agent_id, "sessionId": turn.session_id, "principal": turn.principal,
        "parent": turn.parent, "wire": turn.wire, "state": turn.state.as_str(), "steps": turn.steps,
        "createdAt": turn.created_at, "updatedAt": turn.updated_at, "expiresAt": turn.expires_at,
    })
}

/// Returns a turn, if the caller may see it.
async fn visible(store: &Store, viewer: &Viewer, id: &str) -> Result<TurnRow, ApiError> {
    let turn = store.turn(&TurnId::new(id)).await?;
    turn.filter(|turn| viewer.sees(Some(&turn.principal))).ok_or_else(ApiError::not_found)
}

pub(super) async fn get(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let turn = visible(api.store(), &viewer, ids.first()).await?;
    let deliveries = api.store().deliveries_of_turn(&turn.turn_id).await?;
    let calls: Vec<Value> = deliveries
        .iter()
        .map(|one| {
            json!({
                "callId": one.call_id, "runId": one.run_id, "sentAt": one.sent_at, "answeredAt": one.answered_at,
            })
        })
        .collect();
    let mut shown = turn_json(&turn);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("clientCalls".to_owned(), Value::from(calls));
    }
    Ok(Json(shown))
}

pub(super) async fn abort(
    State(api): State<Api>,
    viewer: Viewer,
    ids: Ids,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let turn = visible(api.store(), &viewer, ids.first()).await?;
    let aborted = abort_turn(&api, &turn, fields.text("reason").unwrap_or(ABORTED)).await?;
    Ok(Json(json!({"aborted": aborted})))
}

/// Aborts a turn in any state and in any process, and its runs. Returns whether it was in progress.
pub(super) async fn abort_turn(api: &Api, turn: &TurnRow, reason: &str) -> Result<bool, ApiError> {
    if turn.state.is_over() {
        return Ok(false);
    }
    if api.gateway.abort(&turn.turn_id, reason) {
        return Ok(true);
    }
    // The process that runs the turn reports the abort to its client. If it does not react, it loses the turn.
    if api.gateway.abort_elsewhere(turn, reason).await.map_err(unavailable)? {
        return Ok(true);
    }
    let (store, now) = (api.store(), now_ms());
    let mut held = match store.take_turn_forcibly(&turn.turn_id, "api", now.saturating_add(LEASE_MS)).await {
        Ok(held) => held,
        Err(LeaseError::Store(error)) => return Err(error.into()),
        Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Ok(false),
    };
    let step = Step::Ended(TurnEnd::Aborted { reason: reason.to_owned() });
    let body = serde_json::to_string(&step).map_err(|_| ApiError::unavailable("the turn's end cannot be written"))?;
    let entry = json!({"turnId": turn.turn_id, "end": {"aborted": {"reason": reason}}});
    let change = TurnChange {
        steps: vec![NewStep { kind: step.kind().to_owned(), body }],
        state: Some(TurnState::Aborted),
        transcript: vec![Entry { at: now, kind: EntryKind::TurnNote, entry }],
        ..TurnChange::default()
    };
    store.commit_turn(&mut held, &change, Durability::Synced, now).await.map_err(|error| {
        tracing::warn!(error = telemetry::chain(&error), "the end of a turn cannot be written");
        ApiError::unavailable("the turn changed meanwhile; try again")
    })?;
    abort_runs(api, turn).await.log_ignored("abort the runs of a turn");
    Ok(true)
}

fn unavailable(error: TurnError) -> ApiError {
    tracing::warn!(error = telemetry::chain(&error), "a message to a turn cannot be sent");
    ApiError::unavailable("the store cannot be used now; try again")
}

/// Aborts the runs that a turn has started.
async fn abort_runs(api: &Api, turn: &TurnRow) -> Result<(), store::StoreError> {
    for state in [RunState::Running, RunState::Waiting] {
        let filter =
            RunPageFilter { session: Some(turn.session_id.clone()), state: Some(state), ..RunPageFilter::default() };
        let runs = api.store().run_page(&filter, None, MAX_PAGE).await?;
        for run in runs.iter().filter(|run| *run.agent_run_id == *turn.turn_id) {
            api.gateway.code_mode().abort(&run.run_id).await;
        }
    }
    Ok(())
}

pub(super) async fn steer(
    State(api): State<Api>,
    viewer: Viewer,
    ids: Ids,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let turn = visible(api.store(), &viewer, ids.first()).await?;
    let parts = vec![Part::Text(fields.text("text").unwrap_or_default().to_owned())];
    if api.gateway.steer(&turn.turn_id, &parts).await.map_err(unavailable)? {
        return Ok(Json(json!({"steered": true})));
    }
    let message = match turn.state {
        TurnState::Running => "the turn has too many messages or has just ended; send the message as a new turn",
        _ => "the turn is not running; send the message as a new turn of its session",
    };
    Err(ApiError::new(axum::http::StatusCode::BAD_REQUEST, "not_running", message))
}
