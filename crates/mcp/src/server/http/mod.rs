//! HTTP: who may speak to us, and how much of them we bear. What they say is for `wire`.

mod access;
mod connections;
mod gate;
mod host;

use std::io;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Router, middleware};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::frontend::Frontend;
use super::wire;

pub use access::{Access, BadToken, Token};
pub use gate::Gate;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{0} can be reached from other machines; there a token is not optional")]
    OpenToOthers(std::net::SocketAddr),
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// Serves until `stop` is called; then calls under way have a few seconds to be answered.
pub async fn serve_http(
    frontend: Frontend,
    listener: TcpListener,
    gate: Gate,
    stop: CancellationToken,
) -> Result<(), HttpError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() && gate.access.is_open() {
        return Err(HttpError::OpenToOthers(address));
    }
    let gate = std::sync::Arc::new(gate.at(address));
    let guarded = wire::endpoint(frontend.clone(), stop.clone())
        .layer(middleware::from_fn_with_state(std::sync::Arc::clone(&gate), gate::admit));
    let health = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(frontend.clone());
    let app = guarded.merge(health).layer(middleware::from_fn_with_state(gate, gate::right_host));
    connections::serve(listener, app, stop).await;
    Ok(())
}

async fn ready(State(frontend): State<Frontend>) -> (StatusCode, &'static str) {
    if frontend.is_ready().await {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}
