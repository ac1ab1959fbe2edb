//! Opens the HTTP port of `cellmate mcp` or `cellmate gateway`: its address, its tokens and its TLS.

use std::net::SocketAddr;

use http_server::{BudgetLimits, Gate, HttpError, StoredTokens, TlsError, Transport, check_address};
use tokio::net::TcpListener;

use super::arguments::HttpPortArguments;
use super::tokens::{self, TokenError};
use crate::log::CONSOLE;
use crate::state::State;

#[derive(Debug, thiserror::Error)]
pub(super) enum HttpPortError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// An address at which the server may listen, and how its connections are protected.
pub(super) struct CheckedAddress {
    address: SocketAddr,
    transport: Transport,
}

impl CheckedAddress {
    /// Checks an address before anything is started: with these arguments, it must not admit other machines without a
    /// token, or with tokens that are not encrypted.
    pub(super) fn new(address: SocketAddr, arguments: &HttpPortArguments) -> Result<Self, HttpPortError> {
        let transport = arguments.transport()?;
        check_address(address, !arguments.no_token, &transport)?;
        Ok(Self { address, transport })
    }
}

/// A port that is open for connections.
pub(super) struct HttpPort {
    pub(super) listener: TcpListener,
    pub(super) gate: Gate,
    /// The URL of the port, without a path.
    pub(super) url: String,
    /// A message that tells the operator where the token is.
    pub(super) token_note: String,
}

impl HttpPort {
    /// Listens at an address. The arguments say which clients may connect.
    pub(super) async fn open(
        CheckedAddress { address, transport }: CheckedAddress,
        arguments: &HttpPortArguments,
        state: &State,
        stored: &StoredTokens,
        budget: BudgetLimits,
    ) -> Result<Self, HttpPortError> {
        let (access, token_note) = tokens::access(arguments, state, stored)?;
        let gate = Gate { access, hosts: arguments.hosts.clone(), budget, transport };
        let listen = |source| HttpPortError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        tracing::info!(target: CONSOLE, address = %bound, "listening");
        let url = format!("{}://{bound}", gate.transport.scheme());
        Ok(Self { listener, gate, url, token_note })
    }
}
