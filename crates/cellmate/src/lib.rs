#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod agent_run;
mod answer;
mod approvals;
mod builder;
mod entry;
mod error;
mod host;
#[cfg(feature = "mcp")]
mod mcp_server;
mod replay;
mod run_info;
pub mod source;
mod storage;
mod tool;

pub use agent_run::AgentRun;
pub use answer::Answer;
pub use approvals::{Approval, ApprovalRequests};
pub use builder::Builder;
pub use entry::{block_on, worker_main};
pub use error::{Error, ErrorKind, Result};
pub use host::Cellmate;
#[cfg(feature = "mcp")]
pub use mcp_server::McpServer;
pub use replay::{Replay, ReplayedCall, ReplayedReply, ReplayedStep, StepEnd};
pub use run_info::RunInfo;
pub use storage::{KeyFile, Store};
pub use tool::{Tool, ToolCall, ToolError};

pub use catalog::{SurfaceChoice, VisibleTool};
pub use codemode::pool::JailPolicy;
pub use contract::cell::{
    CellResult, Effect, EffectState, Media, OutputItem, PendingState, PendingToolCall, Preview, Telemetry,
    WaitingReason,
};
pub use contract::error::ErrorCode;
pub use contract::ids::{ApprovalId, CallId, OutputHandle, RunId};
pub use contract::scope::Scope;
pub use serde_json::{Value, json};
pub use store::{ApprovalScope, Decision, RunState};

/// The guide, whose programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
mod guide {}
