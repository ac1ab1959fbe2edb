//! `/v1/responses/{id}`: stored responses.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::{Extension, Json};
use http_server::Principal;
use serde_json::{Value, json};
use store::{StoreError, TurnRow};
use wire::Wire;
use wire::downstream::WireError;

use super::continuation::{shown, store_error};
use super::response::{error_response, request_id, turn_error};
use super::stored::{StoredResponse, response_key};
use crate::gateway::Gateway;

/// The running turns of a principal among which a response of another process is looked for.
const MAX_SEARCHED_TURNS: u32 = 1_000;

/// Why a cancelled turn ended.
const CANCELLED: &str = "the client cancelled the response";

/// The most items of one page, and the number if the client names none.
const MAX_PAGE: usize = 100;
const DEFAULT_PAGE: usize = 20;

pub(super) async fn get(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    if let Some(turn_id) = live(&gateway, &principal, &id) {
        return respond(Ok(unfinished(&gateway, &turn_id, &principal, &id, "in_progress").await));
    }
    respond(match find_anywhere(&gateway, &principal, &id).await {
        Ok(FoundResponse::Stored(response)) => Ok(response),
        Ok(FoundResponse::Running(turn)) => {
            Ok(unfinished(&gateway, &turn.turn_id, &principal, &id, "in_progress").await)
        }
        Err(error) => Err(error),
    })
}

pub(super) async fn delete(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    let deleted = gateway.code_mode().store().delete_response(principal.name(), &id).await;
    respond(match deleted {
        Ok(true) => Ok(json!({"id": id, "object": "response", "deleted": true})),
        Ok(false) => Err(unknown(&id)),
        Err(error) => Err(store_error(error)),
    })
}

/// Aborts the turn of a response in progress. A response that has ended is returned as it is.
pub(super) async fn cancel(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    match live(&gateway, &principal, &id) {
        Some(turn_id) if gateway.abort(&turn_id, CANCELLED) => {
            respond(Ok(unfinished(&gateway, &turn_id, &principal, &id, "cancelled").await))
        }
        _ => respond(match find_anywhere(&gateway, &principal, &id).await {
            Ok(FoundResponse::Stored(response)) => Ok(response),
            Ok(FoundResponse::Running(turn)) => cancel_elsewhere(&gateway, &principal, &id, &turn).await,
            Err(error) => Err(error),
        }),
    }
}

async fn cancel_elsewhere(
    gateway: &Gateway,
    principal: &Principal,
    id: &str,
    turn: &TurnRow,
) -> Result<Value, WireError> {
    let aborted = gateway.abort_elsewhere(turn, CANCELLED).await.map_err(|error| turn_error(&error))?;
    if !aborted {
        let message = "the process that works on this response does not react; try again";
        return Err(WireError::new(503, message));
    }
    // The end of the turn stores the response. One that is not stored is shown as it was.
    match find(gateway, principal, id).await {
        Ok(stored) => Ok(stored.response),
        Err(_) => Ok(unfinished(gateway, &turn.turn_id, principal, id, "cancelled").await),
    }
}

/// A response that this process does not work on.
enum FoundResponse {
    Stored(Value),
    /// The turn of a response that another process works on.
    Running(Box<TurnRow>),
}

async fn find_anywhere(gateway: &Gateway, principal: &Principal, id: &str) -> Result<FoundResponse, WireError> {
    match find(gateway, principal, id).await {
        Ok(stored) => Ok(FoundResponse::Stored(stored.response)),
        Err(unknown) if unknown.status == 404 => {
            let running = running_elsewhere(gateway, principal, id).await.map_err(store_error)?;
            running.map(|turn| FoundResponse::Running(Box::new(turn))).ok_or(unknown)
        }
        Err(error) => Err(error),
    }
}

/// Returns the running turn of a response that another process works on.
async fn running_elsewhere(gateway: &Gateway, principal: &Principal, id: &str) -> Result<Option<TurnRow>, StoreError> {
    let Some(key) = id.strip_prefix("resp_") else { return Ok(None) };
    let store = gateway.code_mode().store();
    let running = store.running_turns(principal.name(), MAX_SEARCHED_TURNS).await?;
    for turn in running.into_iter().filter(|turn| turn.wire == Wire::Responses.as_str()) {
        let sent = store.deliveries_of_turn(&turn.turn_id).await?;
        let round = sent.iter().map(|delivery| delivery.round.saturating_add(1)).max().unwrap_or(0);
        if response_key(&turn.turn_id, round) == key {
            return Ok(Some(turn));
        }
    }
    Ok(None)
}

/// How a client reads a list.
#[derive(Debug, Default)]
struct Page {
    order: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

impl Page {
    fn read(query: &str) -> Self {
        let mut page = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "order" => page.order = Some(value.into_owned()),
                "limit" => page.limit = value.parse().ok(),
                "after" => page.after = Some(value.into_owned()),
                _ => {}
            }
        }
        page
    }
}

pub(super) async fn input_items(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    uri: Uri,
) -> Response {
    let page = Page::read(uri.query().unwrap_or_default());
    let found = find(&gateway, &principal, &id).await.and_then(|stored| {
        let message = "the input of this response was too large to be kept";
        stored.input.ok_or_else(|| WireError::new(404, message))
    });
    respond(found.map(|items| list(items, &page)))
}

fn list(mut items: Vec<Value>, page: &Page) -> Value {
    if page.order.as_deref() != Some("asc") {
        items.reverse();
    }
    let id = |item: &Value| item.get("id").cloned().unwrap_or_default();
    if let Some(after) = &page.after {
        let at = items.iter().position(|item| id(item) == *after).map_or(0, |at| at + 1);
        items.drain(..at);
    }
    let limit = page.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let has_more = items.len() > limit;
    items.truncate(limit);
    let (first, last) = (items.first().map(id), items.last().map(id));
    json!({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more})
}

/// Returns the turn of a response that is in progress in this process.
fn live(gateway: &Gateway, principal: &Principal, id: &str) -> Option<contract::ids::TurnId> {
    let key = id.strip_prefix("resp_")?;
    let live = gateway.live_responses(principal.name());
    live.into_iter().find(|(turn_id, round)| response_key(turn_id, *round) == key).map(|(turn_id, _)| turn_id)
}

/// Returns a response that has no end yet.
async fn unfinished(
    gateway: &Gateway,
    turn_id: &contract::ids::TurnId,
    principal: &Principal,
    id: &str,
    status: &str,
) -> Value {
    let row = gateway.code_mode().store().turn(turn_id).await.unwrap_or_else(|error| {
        tracing::warn!(error = telemetry::error_chain(&error), "the turn of a response cannot be read");
        None
    });
    let row = row.filter(|row| row.principal == principal.name());
    let created_at = row.as_ref().map_or(0, |row| row.created_at / 1_000);
    let model = row.map_or_else(|| "openclaw".to_owned(), |row| super::request::model_name(&row.agent_id));
    json!({
        "id": id, "object": "response", "created_at": created_at, "status": status, "model": model, "output": [],
        "error": null, "incomplete_details": null, "usage": null, "parallel_tool_calls": true, "tools": [],
        "tool_choice": "auto", "metadata": {},
    })
}

async fn find(gateway: &Gateway, principal: &Principal, id: &str) -> Result<StoredResponse, WireError> {
    let row = gateway.code_mode().store().response(principal.name(), id).await.map_err(store_error)?;
    // Messages of threads are in the same table, but are not part of this API.
    let row = row.filter(|row| row.response_id.starts_with("resp_"));
    row.as_ref().and_then(StoredResponse::read).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> WireError {
    WireError::new(404, format!("Response with id '{}' not found.", shown(id)))
}

fn respond(result: Result<Value, WireError>) -> Response {
    match result {
        Ok(value) => {
            let mut response = Response::new(Body::from(Json(value).0.to_string()));
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => error_response(Wire::Responses, &error, &request_id()),
    }
}
