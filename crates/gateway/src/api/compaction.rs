//! `POST /api/v1/sessions/{sessionId}/compact`: summarizes the older turns of a session.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use super::access::Viewer;
use super::error::ApiError;
use super::limits::{DEFAULT_KEPT_TURNS, MAX_KEPT_TURNS, MAX_KEY_CHARS};
use super::request::{Fields, Ids};
use super::schema::Presence::{Optional, Required};
use super::schema::{boolean, nullable_text, object, short_text};
use super::sessions::visible;
use crate::compaction::{CompactionError, CompactionRequest};
use crate::gateway::TurnError;
use crate::internal_error::internal_message;

pub(super) fn request_schema() -> Value {
    object(&[
        ("key", Optional, short_text(MAX_KEY_CHARS)),
        ("keepTurns", Optional, json!({"type": "integer", "minimum": 0, "maximum": MAX_KEPT_TURNS})),
    ])
}

pub(super) fn response_schema() -> Value {
    object(&[
        ("compacted", Required, boolean()),
        ("turnId", Required, nullable_text()),
        ("upTo", Required, nullable_text()),
        ("summary", Required, nullable_text()),
    ])
}

pub(super) async fn compact(
    State(api): State<Api>,
    viewer: Viewer,
    ids: Ids,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    visible(api.store(), &viewer, ids.first()).await?;
    let keep_turns = fields.get("keepTurns").and_then(Value::as_u64).unwrap_or(DEFAULT_KEPT_TURNS);
    let request = CompactionRequest {
        key: fields.text("key").map(str::to_owned),
        keep_turns: usize::try_from(keep_turns).unwrap_or(usize::MAX),
    };
    Ok(Json(match api.gateway.compact(ids.first(), &request).await.map_err(refused)? {
        Some(made) => {
            json!({"compacted": true, "turnId": made.turn_id, "upTo": made.up_to, "summary": made.summary})
        }
        None => json!({"compacted": false, "turnId": null, "upTo": null, "summary": null}),
    }))
}

fn refused(error: CompactionError) -> ApiError {
    let message = error.to_string();
    match error {
        CompactionError::Failed { status: 429, .. } | CompactionError::Turn(TurnError::TooMany(_)) => {
            ApiError::busy(message)
        }
        CompactionError::Failed { status: 503, .. } => ApiError::unavailable(message),
        CompactionError::Failed { .. } => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "model_failed", message),
        CompactionError::Turn(TurnError::HeldElsewhere) => {
            ApiError::unavailable("another process is compacting this session; try again")
        }
        CompactionError::Turn(TurnError::ShuttingDown) => ApiError::unavailable(message),
        CompactionError::Turn(TurnError::NoModel(_) | TurnError::UnknownModel(_) | TurnError::NotOffered(_)) => {
            ApiError::invalid(message)
        }
        CompactionError::Turn(error) => {
            let what_failed = "the session cannot be compacted now";
            ApiError::unavailable(internal_message("compact a session", &error, what_failed, "try again"))
        }
    }
}
