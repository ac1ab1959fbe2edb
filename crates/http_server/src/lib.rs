//! The request gate that all servers of the program share: connections, host names, tokens, limits and budgets.
//!
//! A server hands its routes to [`RequestGate::guard`], with the rules of each group of routes, and the guarded routes to
//! [`RequestGate::serve`]. A handler finds the authenticated [`Caller`] in the request's extensions.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod access;
mod budget;
mod caller;
mod connections;
mod failed_logins;
mod gate;
mod health;
mod host;
pub mod limits;
mod paced_stream;
mod permissions;
mod principal;
mod refusal;
mod slots;
mod stored_tokens;
mod tls;

pub use access::{Access, BadToken, GeneratedSecret, Token};
pub use budget::{Budget, BudgetLimits, BudgetShare, RequestLimitError};
pub use caller::Caller;
pub use gate::{Gate, HttpError, RequestGate, Requirement, RouteRules, check_address};
pub use health::health;
pub use permissions::{BadPermissions, Permission, Permissions};
pub use principal::{BadPrincipal, Principal};
pub use refusal::{ConnectionRefusal, Refusal};
pub use stored_tokens::StoredTokens;
pub use tls::{TlsError, TlsFiles, TlsServer, Transport};
