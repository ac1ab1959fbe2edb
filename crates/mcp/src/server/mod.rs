//! The MCP server that agents call, over standard streams and HTTP. It shows `exec` and `wait`, the controls of Tool
//! Search, or the tools themselves.
//!
//! `service` is independent of the transport: it knows principals, runs and approvals. `wire` implements the protocol,
//! in every revision since 2025-06-18; `rmcp`'s types stop there. `http` serves it behind the request gate of
//! `http_server`, which authenticates HTTP requests and enforces limits on them.
//!
//! A control call never stays open for long ([`CALL_AT_MOST`]), and a lost response can be recovered: a run lives in the store,
//! not in the connection that started it.

mod answer;
mod approvals;
mod calls;
mod client_key;
mod direct;
mod elicitation;
mod http;
mod media;
mod prepared;
mod principal;
mod progress;
mod recovery;
mod resources;
mod service;
mod summary;
mod tools;
mod wire;

use std::time::Duration;

pub use answer::Answer as ModelAnswer;
pub use approvals::{ApprovalHook, ApprovalPolicy, MAY_CHANGE};
pub use contract::text::plain;
pub use http::{http_endpoint, http_health, serve_http};
pub use media::{MediaBlock, OutputLink};
pub use prepared::{CallPolicy, OfferedSources, Settings, surface_report};
pub use principal::{BadPrincipal, Principal};
pub use progress::describe as describe_progress;
pub use service::McpService;
pub use summary::{Summary, summarize_arguments, summarize_in_line, whole_arguments};
pub use tools::{BadPrefix, ToolPrefix};
pub use wire::{ServeError, serve_streams};

/// The longest time that a call is held open: clients time out a silent call after a minute, some on any call. Only an
/// `exec` with a longer configured `timeoutMs` takes longer.
pub const CALL_AT_MOST: Duration = Duration::from_secs(45);

/// How long a turn waits for pending calls at most, also if `maxWaitMs` is longer, but not if `timeoutMs` is configured.
const TURN_AT_MOST_MS: u64 = 44_000;

/// A turn ends this long before its call must be answered, so that there is time to suspend the cell.
const SUSPEND_TIME: Duration = Duration::from_secs(1);
/// How long a Tool Search cell takes at most, also if `codeTimeoutMs` is longer. Waiting for a worker comes on top.
const SEARCH_AT_MOST_MS: u64 = 42_000;
