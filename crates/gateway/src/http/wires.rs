//! `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`: one turn of an agent.

use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use executor::clock::now_ms;
use http_server::Principal;
use serde_json::Map;
use wire::Wire;
use wire::downstream::{ClientRequest, ResponseWriter, WireError};

use super::request::{agent, named_session, owner};
use super::response::{Form, error_response, turn_error, turn_response};
use crate::gateway::{Abandonment, Gateway, NewTurnRequest, TurnError, TurnHandle};
use crate::history;
use crate::intake::{Plan, RequestFacts, plan, request_digest};
use crate::turn::log::LogEnd;
use crate::turn::record::TurnRequest;
use crate::turn::{EndRecord, OnEnd, TurnSummary};

pub(super) async fn chat(
    gateway: State<Gateway>,
    principal: Extension<Principal>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(Wire::Chat, gateway.0, principal.0, &uri, &headers, &body).await
}

pub(super) async fn responses(
    gateway: State<Gateway>,
    principal: Extension<Principal>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(Wire::Responses, gateway.0, principal.0, &uri, &headers, &body).await
}

pub(super) async fn messages(
    gateway: State<Gateway>,
    principal: Extension<Principal>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(Wire::Messages, gateway.0, principal.0, &uri, &headers, &body).await
}

/// Serves one request of a client.
async fn serve(
    wire: Wire,
    gateway: Gateway,
    principal: Principal,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let Ok(id) = crate::random::id() else {
        return error_response(wire, &WireError::new(503, "cannot read system randomness; try again"), "req");
    };
    let request_id = format!("req_{id}");
    match begin(wire, &gateway, &principal, uri, headers, body, &id).await {
        Ok((request, handle)) => {
            let created = u64::try_from(now_ms() / 1_000).unwrap_or(0);
            let writer = ResponseWriter::new(&request, &id, created);
            let form = if request.stream { Form::Stream } else { Form::Whole };
            let keep_alive = Duration::from_secs(gateway.settings().gateway.keep_alive_seconds);
            turn_response(writer, wire, form, handle.reader, keep_alive, request_id).await
        }
        Err(error) => error_response(wire, &error, &request_id),
    }
}

async fn begin(
    wire: Wire,
    gateway: &Gateway,
    principal: &Principal,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
    id: &str,
) -> Result<(ClientRequest, TurnHandle), WireError> {
    let request = ClientRequest::read(wire, body).map_err(|error| {
        let mut refused = WireError::new(400, error.message);
        refused.field = error.field;
        refused
    })?;
    let policy = gateway.policy();
    let agent = agent(&policy.config, headers, &request).ok_or_else(|| {
        let shown: String = request.model.chars().take(100).collect();
        let message = format!("there is no model `{shown}`; `GET /v1/models` lists the agents of this gateway");
        WireError::new(404, message)
    })?;
    let digest = request_digest(principal.name(), uri.path(), body);
    let facts =
        RequestFacts { principal: principal.name().to_owned(), agent, digest: digest.clone(), named_parent: None };
    let failed = |error: TurnError| turn_error(&error);
    let on_end = on_end(&facts.agent, &request);
    let handle = match plan(gateway, &request, &facts).await.map_err(failed)? {
        Plan::Refuse(error) => return Err(error),
        Plan::Join(turn_id) => {
            gateway.live(&turn_id, principal.name()).ok_or_else(|| turn_error(&TurnError::Unknown))?
        }
        Plan::Resume(row) => gateway.resume(&row, Abandonment::Abort, on_end).await.map_err(failed)?,
        Plan::Answer { turn, results } => {
            gateway.answer(&turn, results, Abandonment::Abort, on_end).await.map_err(failed)?
        }
        Plan::Start { parent, items } => {
            let named = named_session(principal.name(), &facts.agent, headers, &request);
            let session = match (named, &parent) {
                (Some((session_id, key)), _) => (session_id, Some(key)),
                (None, Some(parent)) => (session_of(gateway, parent).await.map_err(failed)?, None),
                (None, None) => (format!("gw:{}:{id}", facts.agent), None),
            };
            let owner = owner(principal.name(), &facts.agent, session, headers);
            let turn = TurnRequest {
                agent: facts.agent.clone(),
                wire,
                parent,
                instructions: request.instructions.clone(),
                items,
                tools: request.tools.clone(),
                tool_choice: request.tool_choice,
                max_output_tokens: request.max_output_tokens,
                extra: Map::new(),
            };
            let new = NewTurnRequest { owner, request: turn, digest, abandonment: Abandonment::Abort, on_end };
            gateway.begin(new).await.map_err(failed)?
        }
    };
    Ok((request, handle))
}

async fn session_of(gateway: &Gateway, turn_id: &contract::ids::TurnId) -> Result<String, TurnError> {
    let row = gateway.code_mode().store().turn(turn_id).await?;
    Ok(row.ok_or(TurnError::Unknown)?.session_id)
}

/// Returns what is written with the end of the response: the digest of the conversation as the client will send it back.
fn on_end(agent: &str, request: &ClientRequest) -> OnEnd {
    let (agent, items) = (agent.to_owned(), request.items.clone());
    Box::new(move |summary: &TurnSummary<'_>| {
        let calls = match summary.end {
            LogEnd::Calls { calls, .. } => calls.as_slice(),
            LogEnd::Done { .. } => &[],
            LogEnd::Failed { .. } => return EndRecord::default(),
        };
        let visible = history::with_answer(&items, summary.text, calls);
        EndRecord { conversations: vec![history::digest(&agent, &visible)], response: None }
    })
}
