//! The HTTP server: authentication and limits. `wire` handles the protocol messages.

mod access;
mod budget;
mod connections;
mod gate;
mod host;
pub(super) mod limits;
mod paced_stream;
mod slots;

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Router, middleware};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::service::McpService;
use super::wire;

pub use access::{Access, BadToken, Token};
pub(super) use budget::{Budget, Share};
pub use gate::Gate;

/// Why the HTTP server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(
        "{0} can be reached from other machines and therefore requires a token; leave out --no-token, or use 127.0.0.1"
    )]
    OpenToOthers(std::net::SocketAddr),
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// Refuses an address that other machines can reach if no token is required. Callers that announce the address check it
/// before they listen.
pub fn check_address(address: std::net::SocketAddr, gate: &Gate) -> Result<(), HttpError> {
    if !address.ip().is_loopback() && gate.access.is_open() {
        return Err(HttpError::OpenToOthers(address));
    }
    Ok(())
}

/// Serves until `stop` is cancelled; calls in progress then have a few seconds to finish.
pub async fn serve_http(
    service: McpService,
    listener: TcpListener,
    gate: Gate,
    stop: CancellationToken,
) -> Result<(), HttpError> {
    let address = listener.local_addr()?;
    check_address(address, &gate)?;
    let gate = Arc::new(gate.at(address));
    let guarded = wire::endpoint(service.clone(), stop.clone())
        .layer(middleware::from_fn_with_state(Arc::clone(&gate), gate::admit));
    let health = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(Readiness { service, last: Mutex::default() }));
    let app = guarded.merge(health).layer(middleware::from_fn_with_state(gate, gate::check_host));
    tracing::info!(%address, "listening for MCP clients");
    connections::serve(listener, app, stop).await;
    tracing::info!(%address, "stopped listening for MCP clients");
    Ok(())
}

/// The cached result of the last readiness check. `/readyz` needs no token, so the store is not queried on each
/// request.
struct Readiness {
    service: McpService,
    last: Mutex<Option<(Instant, bool)>>,
}

async fn ready(State(readiness): State<Arc<Readiness>>) -> (StatusCode, &'static str) {
    let mut last = readiness.last.lock().await;
    let is_ready = match *last {
        Some((at, is_ready)) if at.elapsed() < limits::READINESS_TTL => is_ready,
        _ => {
            let is_ready = readiness.service.is_ready().await;
            *last = Some((Instant::now(), is_ready));
            is_ready
        }
    };
    if is_ready { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}
