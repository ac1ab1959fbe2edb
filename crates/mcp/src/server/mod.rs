//! What we are to agents: an MCP server with two tools, `exec` and `wait`, over standard streams and HTTP.
//!
//! `frontend` is the server without a wire: it knows principals, runs and approvals. `wire` speaks the protocol for it,
//! in every revision since 2025-06-18; the protocol library's types stop there. `http` decides who may speak at all.
//!
//! A call never stays open for long ([`CALL_AT_MOST`]), and whatever a client loses is found again: a run lives in the
//! store, not in the connection that started it.

mod answer;
mod asking;
mod by_hand;
mod elicit;
mod flight;
mod frontend;
mod hold;
mod http;
mod lost;
mod prefix;
mod prepared;
mod principal;
mod progress;
mod settings;
mod summary;
mod tools;
mod unsaid;
mod wire;

use std::time::Duration;

pub use asking::{ApprovalHook, ApprovalPolicy};
pub use contract::text::plain;
pub use frontend::McpService;
pub use http::{Access, BadToken, Gate, HttpError, Token, serve_http};
pub use prefix::{BadPrefix, ToolPrefix};
pub use principal::{BadPrincipal, Principal};
pub use settings::{Offered, Settings};
pub use summary::{Summary, summarize_arguments, summarize_in_line, whole_arguments};
pub use wire::{ServeError, serve_streams};

/// No call is held open longer: clients give up on a silent call after a minute, some on any call.
pub const CALL_AT_MOST: Duration = Duration::from_secs(48);

/// What a configuration may make of `timeoutMs` and `maxWaitMs` here, so that a turn ends before its call must.
const TURN_AT_MOST_MS: u64 = 45_000;
