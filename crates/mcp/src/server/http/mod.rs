//! MCP over HTTP: the endpoint behind the front door, and its health checks. `wire` handles the protocol messages.

pub(super) mod limits;
mod rules;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use http_server::{FrontDoor, Gate, HttpError, RouteRules};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::service::McpService;
use super::wire;

/// Serves until `stop` is cancelled; calls in progress then have a few seconds to finish.
pub async fn serve_http(
    service: McpService,
    listener: TcpListener,
    gate: Gate,
    stop: CancellationToken,
) -> Result<(), HttpError> {
    let address = listener.local_addr()?;
    let door = FrontDoor::new(listener, gate)?;
    let (endpoint, rules) = http_endpoint(service.clone(), stop.clone());
    let routes = door.guard(endpoint, rules).merge(http_health(service));
    tracing::info!(%address, "listening for MCP clients");
    door.serve(routes, stop).await;
    tracing::info!(%address, "stopped listening for MCP clients");
    Ok(())
}

/// Returns the route `/mcp` and the rules with which a front door must guard it.
pub fn http_endpoint(service: McpService, stop: CancellationToken) -> (Router, RouteRules) {
    (wire::endpoint(service, stop), rules::rules())
}

/// Returns the routes `/healthz` and `/readyz`, which need no token.
pub fn http_health(service: McpService) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(Readiness { service, last: Mutex::default() }))
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
