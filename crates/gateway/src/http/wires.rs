//! `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`: one turn of an agent.

use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use contract::ids::TurnId;
use executor::clock::now_ms;
use http_server::Principal;
use serde_json::{Map, Value};
use wire::Wire;
use wire::conversation::Item;
use wire::downstream::{ClientRequest, RequestError, ResponseWriter, WireError};

use super::continuation::{named_parent, resolve_references, shown};
use super::request::{agent, header, named_session, owner, wire_of};
use super::response::{Form, error_response, request_id, turn_error, turn_response};
use super::stored::{self, input_items, response_key};
use crate::gateway::{Abandonment, Gateway, NewTurnRequest, TurnError, TurnHandle};
use crate::history;
use crate::intake::{Plan, RequestFacts, plan};
use crate::internal_error::internal_message;
use crate::turn::record::{Origin, TurnRequest};
use crate::turn::{EndRecord, OnEnd, TurnSummary};

/// The header of a response with the id of its turn, which `/api/v1/turns` takes: the wires have no field for it.
pub(crate) const TURN_ID: &str = "x-cellmate-turn-id";

/// Serves one request of a client. The path says which wire it speaks.
pub(super) async fn turn(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (wire, request_id) = (wire_of(uri.path()), request_id());
    let keep_alive = Duration::from_secs(gateway.settings().gateway.keep_alive_seconds);
    // If the client hangs up, this handler is dropped. The request is read to its end all the same: a turn that is stored
    // must also be started, before an equal request is read.
    let begun = tokio::spawn(async move { begin(wire, &gateway, &principal, &uri, &headers, &body).await }).await;
    let begun = begun.unwrap_or_else(|error| {
        let message = internal_message("begin a turn", &error, "the request was interrupted", "send it again");
        Err(WireError::new(500, message))
    });
    match begun {
        Ok(PendingResponse { writer, form, handle }) => {
            let writer = writer.with_id(&response_key(&handle.turn_id, handle.round));
            let mut response = turn_response(writer, wire, form, handle.reader, keep_alive, request_id).await;
            if let Ok(turn_id) = HeaderValue::from_str(handle.turn_id.as_str()) {
                response.headers_mut().insert(TURN_ID, turn_id);
            }
            response
        }
        Err(error) => error_response(wire, &error, &request_id),
    }
}

/// The response to a request whose turn is in progress.
struct PendingResponse {
    /// The writer of the response, which has no id yet.
    writer: ResponseWriter,
    form: Form,
    handle: TurnHandle,
}

async fn begin(
    wire: Wire,
    gateway: &Gateway,
    principal: &Principal,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<PendingResponse, WireError> {
    let mut fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| WireError::new(400, format!("the request is not a JSON object: {error}")))?;
    if wire == Wire::Responses {
        resolve_references(gateway, principal.name(), &mut fields).await?;
    }
    let mut request = ClientRequest::from_fields(wire, &fields).map_err(read_error)?;
    let agent = chosen_agent(gateway, headers, &request)?;
    let named_parent = named_parent(gateway, principal.name(), &mut request).await?;
    let facts = RequestFacts::from_headers(principal.name(), &agent, uri.path(), headers, body);
    let facts = RequestFacts { named_parent, ..facts };
    let failed = |error: TurnError| turn_error(&error);
    let created = u64::try_from(now_ms() / 1_000).unwrap_or(0);
    let writer = ResponseWriter::new(&request, "", created);
    let kept = match wire {
        Wire::Responses if request.store => {
            Some(RetrievableResponse { writer: writer.clone(), input: input_items(&fields) })
        }
        Wire::Messages if request.thread.is_some() => Some(RetrievableResponse { writer: writer.clone(), input: None }),
        Wire::Chat | Wire::Responses | Wire::Messages => None,
    };
    drop(fields);
    let on_end = on_end(&facts.agent, &request, kept);
    let _alone = gateway.lock_request(&facts.digest).await;
    let handle = match plan(gateway, &request, &facts).await.map_err(failed)? {
        Plan::Refuse(error) => return Err(error),
        Plan::Follow(handle) => handle,
        Plan::Resume(row) => gateway.resume(&row, Abandonment::Abort, on_end).await.map_err(failed)?,
        Plan::Continue { turn, results } => {
            gateway.continue_turn(&turn, results, Abandonment::Abort, on_end).await.map_err(failed)?
        }
        Plan::Start { parent, items, session_id } => {
            let named = named_session(principal.name(), &facts.agent, headers, &request);
            let session = match (named, session_id) {
                (Some((session_id, key)), _) => (session_id, Some(key)),
                (None, Some(session_id)) => (session_id, None),
                (None, None) => {
                    let id = crate::random::id().map_err(|error| failed(TurnError::Randomness(error)))?;
                    (format!("gw:{}:{id}", facts.agent), None)
                }
            };
            let owner = owner(principal.name(), &facts.agent, session, headers);
            let turn = turn_request(&facts.agent, headers, &request, parent, items);
            let new =
                NewTurnRequest { owner, request: turn, digest: facts.digest, abandonment: Abandonment::Abort, on_end };
            gateway.begin(new).await.map_err(failed)?
        }
    };
    let form = if request.stream { Form::Stream } else { Form::Whole };
    Ok(PendingResponse { writer, form, handle })
}

/// Returns the error for a request that cannot be read.
pub(super) fn read_error(error: RequestError) -> WireError {
    WireError::new(400, error.message).in_field(&error.field)
}

/// Returns the agent that a request is for.
pub(super) fn chosen_agent(
    gateway: &Gateway,
    headers: &HeaderMap,
    request: &ClientRequest,
) -> Result<String, WireError> {
    agent(&gateway.policy().config, headers, request).ok_or_else(|| {
        let missing = match header(headers, "x-openclaw-agent-id") {
            Some(agent) => format!("there is no agent `{}`, which `x-openclaw-agent-id` names", shown(agent)),
            None => format!("there is no model `{}`", shown(&request.model)),
        };
        let message = format!("{missing}; `GET /v1/models` lists the agents of this gateway");
        WireError::new(404, message).with_code("model_not_found")
    })
}

/// Returns the turn that a request starts.
pub(super) fn turn_request(
    agent: &str,
    headers: &HeaderMap,
    request: &ClientRequest,
    parent: Option<TurnId>,
    items: Vec<Item>,
) -> TurnRequest {
    TurnRequest {
        agent: agent.to_owned(),
        wire: request.wire,
        model: header(headers, "x-openclaw-model").map(str::to_owned),
        origin: Origin::default(),
        parent,
        instructions: request.instructions.clone(),
        items,
        tools: request.tools.clone(),
        tool_choice: request.tool_choice,
        max_output_tokens: request.max_output_tokens,
        extra: Map::new(),
        compaction: None,
    }
}

/// The parts of a response that are stored, so that it can be retrieved or continued by its id.
struct RetrievableResponse {
    /// The writer of the response, which has no id yet.
    writer: ResponseWriter,
    /// The items of the request's input, as JSON.
    input: Option<String>,
}

/// Returns what is written with the end of the response: the digest of the conversation as the client will send it back,
/// and the response if it can be retrieved.
fn on_end(agent: &str, request: &ClientRequest, kept: Option<RetrievableResponse>) -> OnEnd {
    let (agent, items) = (agent.to_owned(), request.items.clone());
    Box::new(move |summary: &TurnSummary<'_>| {
        let conversations = history::digests_at_end(&agent, &items, summary.text, summary.end);
        let response = kept.and_then(|RetrievableResponse { writer, input }| {
            let writer = writer.with_id(&response_key(summary.turn_id, summary.round));
            stored::row(writer, input.as_deref(), summary)
        });
        EndRecord { conversations, response }
    })
}
