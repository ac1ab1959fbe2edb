//! `POST /v1/messages/count_tokens`: an estimate of what a request would send to the model.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http_server::Principal;
use serde_json::json;
use wire::Wire;
use wire::downstream::{ClientRequest, WireError};

use super::continuation::named_parent;
use super::request::owner;
use super::response::{error_response, request_id, turn_error};
use super::wires::{chosen_agent, read_error, turn_request};
use crate::gateway::Gateway;

pub(super) async fn count_tokens(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match estimate(&gateway, &principal, &headers, &body).await {
        Ok(tokens) => Json(json!({"input_tokens": tokens})).into_response(),
        Err(error) => error_response(Wire::Messages, &error, &request_id()),
    }
}

async fn estimate(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<u64, WireError> {
    let mut request = ClientRequest::read(Wire::Messages, body).map_err(read_error)?;
    let agent = chosen_agent(gateway, headers, &request)?;
    let parent = named_parent(gateway, principal.name(), &mut request).await?;
    let history = match &parent {
        Some(parent) => gateway.conversation(parent, principal.name()).await.map_err(|error| turn_error(&error))?,
        None => Vec::new(),
    };
    let owner = owner(principal.name(), &agent, ("estimate".to_owned(), None), headers);
    let turn = turn_request(&agent, headers, &request, None, request.items.clone());
    gateway.estimate_tokens(&owner, &turn, &history).map_err(|error| turn_error(&error))
}
