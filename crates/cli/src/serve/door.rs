//! The HTTP port of a server: its address, its tokens and its TLS.

use std::net::SocketAddr;

use http_server::{BudgetLimits, Gate, HttpError, StoredTokens, TlsError, check_address};
use tokio::net::TcpListener;

use super::arguments::DoorArguments;
use super::tokens::{self, TokenError};
use crate::log::CONSOLE;
use crate::state::State;

#[derive(Debug, thiserror::Error)]
pub(super) enum DoorError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// A port that is open for connections.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    pub(super) gate: Gate,
    /// The address with its scheme and without a path.
    pub(super) url: String,
    /// Where the operator finds the token.
    pub(super) token_note: String,
}

impl Door {
    /// Listens at an address. Clients connect as the arguments say.
    pub(super) async fn open(
        address: SocketAddr,
        arguments: &DoorArguments,
        state: &State,
        stored: &StoredTokens,
        budget: BudgetLimits,
    ) -> Result<Self, DoorError> {
        let (access, token_note) = tokens::access(arguments, state, stored)?;
        let (hosts, transport) = (arguments.hosts.clone(), arguments.transport()?);
        let gate = Gate { access, hosts, budget, transport };
        check_address(address, &gate)?;
        let listen = |source| DoorError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        tracing::info!(target: CONSOLE, address = %bound, "listening");
        let url = format!("{}://{bound}", gate.transport.scheme());
        Ok(Self { listener, gate, url, token_note })
    }
}
