//! Serves one client over a pair of streams: the process that started this one.

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::MAX_MESSAGE_BYTES;
use super::handler::Handler;
use crate::server::{McpService, Principal};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the client sent no valid MCP handshake: {0}")]
    NotBegun(String),
    #[error("serving stopped: {0}")]
    Stopped(String),
}

/// Serves until the client closes its end or `stop` is cancelled. Calls in progress then have a few seconds to finish.
pub async fn serve_streams<R, W>(
    frontend: McpService,
    principal: Principal,
    (reader, writer): (R, W),
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = AsyncRwTransport::new_server(reader, writer).with_max_line_length(MAX_MESSAGE_BYTES);
    let handler = Handler::new(frontend, principal);
    let running = match handler.serve_with_ct(transport, stop).await {
        Ok(running) => running,
        // The client disconnected before the handshake.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(ServeError::NotBegun(shorter(&error.to_string()))),
    };
    running.waiting().await.map(drop).map_err(|error| ServeError::Stopped(error.to_string()))
}

/// Shortens an error of the library, which quotes what the client sent.
fn shorter(error: &str) -> String {
    crate::server::plain(error, 300)
}
