//! The agent gateway: a client that speaks OpenAI Chat Completions, OpenAI Responses or Anthropic Messages gets an agent
//! with code mode, policy, approvals and durable sessions.
//!
//! [`provider`] calls models; [`debug`] describes these calls in the log. [`turn`] runs an agent's turn: it calls the
//! model, makes the calls that the model asks for, and repeats this until the model is done. [`Gateway`] starts, continues
//! and stops turns; it knows nothing of HTTP. [`intake`] decides what a client's request means, and [`http`] serves it.
//! [`api`] is the interface for other programs, and [`openapi`] describes it.

pub mod api;
pub mod client_tools;
pub mod compaction;
pub mod debug;
mod excerpt;
mod gateway;
pub mod history;
pub mod http;
pub mod intake;
mod live;
mod messages;
pub mod openapi;
pub mod provider;
mod random;
mod services;
mod settings;
mod summaries;
pub mod turn;

pub use gateway::{Abandonment, Gateway, NewTurnRequest, RequestLock, TurnError, TurnHandle};
pub use settings::Settings;
