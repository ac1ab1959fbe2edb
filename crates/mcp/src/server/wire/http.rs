//! The endpoint that all clients over HTTP share, whichever revision they speak.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::MAX_MESSAGE_BYTES;
use super::handler::{Caller, Handler};
use crate::server::Frontend;

/// Sessions of older clients that nothing is heard of are closed. Their runs are not theirs alone, and go on.
const SESSION_IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// A comment on a stream that is otherwise silent, for whatever stands between us and the client.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Host, origin and token have been looked at by the gate before anything comes here.
pub(crate) fn endpoint(frontend: Frontend, stop: CancellationToken) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_IDLE);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(stop);
    let handler = move || Ok(Handler::new(frontend.clone(), Caller::OfRequest));
    Router::new().route_service("/mcp", StreamableHttpService::new(handler, Arc::new(sessions), config))
}
