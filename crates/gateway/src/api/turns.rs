//! `/api/v1/turns`: turns of agents.

use axum::Json;
use axum::extract::State;
use contract::ids::TurnId;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{CommitError, LeaseError, Store, TurnRow, TurnState};
use wire::conversation::Part;

use super::Api;
use super::access::Viewer;
use super::error::ApiError;
use super::limits::MAX_STEER_CHARS;
use super::request::{Fields, Ids};
use super::schema::Presence::Required;
use super::schema::{boolean, integer, list, nullable_integer, nullable_text, object, one_of, short_text, text};
use crate::gateway::TurnError;
use crate::internal_error::{commit_message, internal_message};
use crate::turn::abort_held;

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
    let record = api.gateway.read_record(&turn.turn_id).await.map_err(unavailable)?;
    abort_held(api.gateway.code_mode(), &mut held, &record, reason).await.map_err(|error| match error {
        CommitError::Fenced => ApiError::unavailable("the turn changed meanwhile; try again"),
        error => {
            let what_failed = "the end of the turn cannot be written";
            ApiError::unavailable(commit_message("write the end of a turn", &error, what_failed, "try again"))
        }
    })?;
    Ok(true)
}

fn unavailable(error: TurnError) -> ApiError {
    let operation = "read or change a turn";
    ApiError::unavailable(internal_message(operation, &error, "the store cannot be used now", "try again"))
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
