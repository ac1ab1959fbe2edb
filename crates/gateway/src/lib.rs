//! The agent gateway: a client that speaks OpenAI Chat Completions, OpenAI Responses or Anthropic Messages gets an agent
//! with code mode, policy, approvals and durable sessions.
//!
//! [`provider`] calls models; [`debug`] describes these calls in the log. [`turn`] runs an agent's turn: it calls the
//! model, makes the calls that the model asks for, and repeats this until the model is done. [`Gateway`] starts, continues
//! and stops turns; it knows nothing of HTTP. [`intake`] decides what a client's request means, and [`http`] serves it.
//! [`api`] is the interface for other programs, and [`openapi`] describes it.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod api;
pub mod client_tools;
pub mod compaction;
mod compactions;
pub mod debug;
mod excerpt;
mod gateway;
pub mod history;
pub mod http;
pub mod intake;
mod internal_error;
mod messages;
pub mod provider;
mod random;
mod services;
pub mod turn;

pub use api::openapi;
pub use gateway::{Abandonment, Gateway, NewTurnRequest, RequestLock, TurnError, TurnHandle};
pub use services::Settings;
