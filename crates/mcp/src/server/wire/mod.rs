//! The protocol implementation: one handler for every revision and both transports. `rmcp`'s types stop here.

mod blocks;
mod calls;
mod changes;
mod connection;
mod direct;
mod endpoint;
mod handler;
mod kept_responses;
mod list;
mod progress;
mod questions;
mod request_state;
mod resources;
mod search;
mod sessions;

use catalog::Surface;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::{McpService, Principal};
pub(crate) use endpoint::{endpoint, is_modern_version, session_of};
use handler::Handler;

/// Returns the instructions that the server sends in its `initialize` result. Tools that are shown directly need none.
fn instructions(surface: &Surface) -> Option<&'static str> {
    match surface {
        Surface::CodeMode => Some(
            "Two tools give access to all others: `exec` runs a JavaScript or TypeScript cell that finds and calls \
             tools and returns only what matters; `wait` resumes a waiting cell, or recovers a lost result.",
        ),
        Surface::ToolSearchCode => Some(
            "One tool gives access to all others: `tool_search_code` runs a short JavaScript program that finds and \
             calls tools and returns only what matters.",
        ),
        Surface::ToolSearchTools(_) => Some(
            "Three tools give access to all others: `tool_search` finds tools, `tool_describe` returns the input \
             schema of one, and `tool_call` calls it.",
        ),
        Surface::Direct(_) | Surface::None => None,
    }
}

/// The maximum size of one message from a client.
const MAX_MESSAGE_BYTES: usize = http_server::limits::MAX_BODY_BYTES;

/// Why serving a client over streams failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the client sent no valid MCP handshake: {0}")]
    NotBegun(String),
    #[error("serving stopped: {0}")]
    Stopped(String),
}

/// Serves one client over a pair of streams: the process that started this one. Serving
/// ends when the client closes its end or `stop` is cancelled. Calls in progress then have a few seconds to finish.
pub async fn serve_streams<R, W>(
    service: McpService,
    principal: Principal,
    (reader, writer): (R, W),
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = AsyncRwTransport::new_server(reader, writer).with_max_line_length(MAX_MESSAGE_BYTES);
    let handler = Handler::new(service, principal, questions::FormRights::Approve);
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
    super::plain(error, 300)
}
