//! The interface for programs: runs, sessions, turns, approvals and the catalog under `/api/v1`, events, and
//! `POST /tools/invoke`.
//!
//! `table` has one row for each route. The router and the document of [`openapi`] are both built from it.

mod access;
mod agents;
mod approvals;
mod catalog;
mod compaction;
mod document;
mod error;
mod events;
mod invoke;
pub mod limits;
mod nested_entries;
pub mod openapi;
mod request;
mod runs;
mod schema;
mod sessions;
pub(crate) mod table;
mod turns;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use http_server::limits::LONG_WRITE_STALL;
use http_server::{Refusal, RouteRules};
use serde_json::{Value, json};
use store::Store;

use crate::gateway::Gateway;
use error::ApiError;
use events::EventHub;
use invoke::Invocations;
use limits::{MAX_INVOKE_BYTES, MAX_REQUEST_BYTES};

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) gateway: Gateway,
    pub(crate) events: Arc<EventHub>,
    pub(crate) invocations: Invocations,
    /// The OpenAPI document.
    pub(crate) document: Arc<Value>,
}

impl Api {
    fn store(&self) -> &Store {
        self.gateway.code_mode().store()
    }
}

/// Returns the routes of the interface. They need an authenticated caller: guard them with [`rules`].
pub fn routes(gateway: Gateway) -> Router {
    let events = Arc::new(EventHub::new(gateway.code_mode().store().clone(), gateway.shutdown().clone()));
    let document = Arc::new(openapi::document());
    table::router().with_state(Api { gateway, events, invocations: Invocations::default(), document })
}

/// Returns the rules with which `http_server` must guard [`routes`]. Each route checks its own permission.
pub fn rules() -> RouteRules {
    RouteRules { body_limit, respond, write_stall: LONG_WRITE_STALL, ..RouteRules::default() }
}

/// Returns `/healthz` and `/readyz`, which need no token.
pub fn health(gateway: Gateway) -> Router {
    http_server::health(move || {
        let gateway = gateway.clone();
        async move {
            !gateway.shutdown().is_cancelled()
                && gateway.offered().settled
                && gateway.code_mode().store().live_runs().await.is_ok()
        }
    })
}

/// Answers requests for paths that no route has. It needs no token, and says nothing else.
pub async fn unknown_path() -> Response {
    let message = "there is no such path; `GET /openapi.json` lists all paths";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message).into_response()
}

fn body_limit(head: &Parts) -> usize {
    if head.uri.path() == invoke::PATH { MAX_INVOKE_BYTES } else { MAX_REQUEST_BYTES }
}

/// Writes a refusal of `http_server` in the form of the route.
fn respond(head: &Parts, refusal: &Refusal) -> Response {
    let kind = match refusal {
        Refusal::Host => "host_not_allowed",
        Refusal::Token => "unauthorized",
        Refusal::TooManyFailures(_) => "too_many_requests",
        Refusal::Permission(_) => "permission_denied",
        Refusal::NotFound => "not_found",
        Refusal::Unavailable | Refusal::Connections(_) | Refusal::NoRoom(_) | Refusal::NoTotalRoom(_) => "unavailable",
        Refusal::TooLarge(_) | Refusal::TooManyValues(_) => "too_large",
        Refusal::TooDeep(_) => "invalid_request",
        Refusal::Encoding => "unsupported_media_type",
        Refusal::TooSlow => "timeout",
    };
    let error = ApiError::new(refusal.status(), kind, refusal.to_string());
    if head.uri.path() == invoke::PATH {
        return error.response(&json!({"ok": false, "error": error.to_json()}));
    }
    error.response(&json!({"error": error.to_json()}))
}
