//! The three wires that model providers and their clients speak: OpenAI Chat Completions, OpenAI Responses and Anthropic
//! Messages. A wire is an API's format of requests and responses.
//!
//! Everything here is pure: bytes go in, events and bytes come out. [`upstream`] writes requests to a provider and reads
//! its responses; [`downstream`] reads requests of clients and writes responses to them. Both use the types of
//! [`conversation`], so a client of one wire can be served by a provider of another.
//!
//! The types are open: fields and items that this crate does not know are kept and passed on. A provider's assistant
//! message is stored as it was received, because signatures in it cover its bytes.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod conversation;
pub mod downstream;
pub mod limits;
pub mod sse;
pub mod upstream;

use std::fmt;

/// A wire: the API whose format requests and responses have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl Wire {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Sets a member of a JSON object. Other values have no members and stay as they are.
fn set(object: &mut serde_json::Value, name: &str, value: serde_json::Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}
