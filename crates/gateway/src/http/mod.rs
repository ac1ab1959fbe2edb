//! The HTTP routes of the gateway.

mod continuation;
mod count;
mod models;
mod request;
mod resource;
mod response;
mod stored;
mod wires;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Uri;
use axum::http::request::Parts;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use http_server::Refusal;
use wire::downstream::WireError;

use crate::gateway::Gateway;

pub(crate) use request::session_id;
pub(crate) use wires::TURN_ID;

/// Returns the routes that clients of the three wires use. They need an authenticated caller.
pub fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(wires::turn))
        .route("/v1/responses", post(wires::turn))
        .route("/v1/responses/{id}", get(resource::get).delete(resource::delete))
        .route("/v1/responses/{id}/cancel", post(resource::cancel))
        .route("/v1/responses/{id}/input_items", get(resource::input_items))
        .route("/v1/messages", post(wires::turn))
        .route("/v1/messages/count_tokens", post(count::count_tokens))
        .route("/v1/models", get(models::list))
        // The name of an agent's model contains a slash.
        .route("/v1/models/{*id}", get(models::get))
        .method_not_allowed_fallback(wrong_method)
        // `http_server` limits bodies; axum's own limit would be lower.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::map_response(response::with_own_request_id))
        .with_state(gateway)
}

/// Answers a request with a method that its path does not take.
async fn wrong_method(uri: Uri) -> Response {
    let message = "this path does not take this method; `/openapi.json` lists the methods of each path";
    response::error_response(request::wire_of(uri.path()), &WireError::new(405, message), &response::request_id())
}

/// Returns the routes that clients probe without credentials. They say that the gateway is up, and nothing else.
pub fn open_routes() -> Router {
    Router::new().route("/api/hello", get(|| async { "{}" }))
}

/// Returns the response to a request that `http_server` refuses, in the form of the wire that the path belongs to. Pass
/// it as `respond` of the routes' rules.
pub fn refusal(head: &Parts, refusal: &Refusal) -> Response {
    let wire = request::wire_of(head.uri.path());
    let error = WireError::new(refusal.status().as_u16(), refusal.to_string());
    response::error_response(wire, &error, &response::request_id())
}
