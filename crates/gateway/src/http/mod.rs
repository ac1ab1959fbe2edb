//! The HTTP routes of the gateway.

mod models;
mod request;
mod response;
mod wires;

use axum::Router;
use axum::routing::{get, post};

use crate::gateway::Gateway;

/// Returns the routes that clients of the three wires use. They need an authenticated caller.
pub fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(wires::chat))
        .route("/v1/responses", post(wires::responses))
        .route("/v1/messages", post(wires::messages))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::get))
        .with_state(gateway)
}
