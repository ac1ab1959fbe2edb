//! MCP over HTTP: the endpoint behind the request gate, and its health checks. `wire` handles the protocol messages.

pub(super) mod limits;
mod rules;

use axum::Router;
use http_server::{Gate, HttpError, RequestGate, RouteRules};
use tokio::net::TcpListener;
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
    let request_gate = RequestGate::new(listener, gate)?;
    let (endpoint, rules) = http_endpoint(service.clone(), stop.clone());
    let routes = request_gate.guard(endpoint, rules).merge(http_health(service));
    tracing::info!(%address, "listening for MCP clients");
    request_gate.serve(routes, stop).await;
    tracing::info!(%address, "stopped listening for MCP clients");
    Ok(())
}

/// Returns the route `/mcp` and the rules with which a request gate must guard it.
pub fn http_endpoint(service: McpService, stop: CancellationToken) -> (Router, RouteRules) {
    (wire::endpoint(service, stop), rules::rules())
}

/// Returns the routes `/healthz` and `/readyz`, which need no token.
pub fn http_health(service: McpService) -> Router {
    http_server::health(move || {
        let service = service.clone();
        async move { service.is_ready().await }
    })
}
