//! The agent gateway: a client that speaks OpenAI Chat Completions, OpenAI Responses or Anthropic Messages gets an agent
//! with code mode, policy, approvals and durable sessions.
//!
//! [`provider`] calls models. [`turn`] runs an agent's turn: it calls the model, makes the calls that the model asks for,
//! and repeats this until the model is done.

pub mod provider;
pub mod turn;
