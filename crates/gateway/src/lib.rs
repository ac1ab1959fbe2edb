//! The agent gateway: a client that speaks OpenAI Chat Completions, OpenAI Responses or Anthropic Messages gets an agent
//! with code mode, policy, approvals and durable sessions.
//!
//! [`provider`] calls models. [`turn`] runs an agent's turn: it calls the model, makes the calls that the model asks for,
//! and repeats this until the model is done. [`Gateway`] starts, continues and stops turns; it knows nothing of HTTP.

pub mod client_tools;
mod gateway;
pub mod history;
pub mod http;
pub mod intake;
pub mod provider;
mod random;
mod settings;
pub mod turn;

pub use gateway::{Abandonment, Gateway, NewTurnRequest, TurnError, TurnHandle};
pub use settings::Settings;
