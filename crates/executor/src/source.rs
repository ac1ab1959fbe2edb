//! The interface of tool sources, and the results of their tools.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use contract::scope::Scope;
use contract::tool::{ToolHash, ToolId, ToolSpec};
use serde_json::{Value, json};

use crate::asker::QuestionSender;
use crate::journal::Receipt;
use crate::listener::ProgressSink;
use crate::parked::{Answers, Parked, ParkedCall};

/// A provider of tools: canned answers, core tools, an MCP server, a client.
///
/// Dropping the future that `call` returned cancels the call: the source notifies its tool. A source that wraps another
/// source must forward every method.
pub trait ToolSource: fmt::Debug + Send + Sync {
    /// Returns the tools that it currently offers.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Returns what identifies this source, so that standing approvals do not hold for another source that takes over
    /// its name. For an MCP server it is a hash of its command and arguments, or of its address. Tools of an MCP server
    /// without an identity cannot have standing approvals.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Executes a call, or parks it.
    fn call(&self, call: AuthorizedCall) -> CallFuture<'_>;

    /// Waits for the outcome of a call that was parked with a ticket, possibly by another process.
    ///
    /// Dropping the future must not affect the call: it can be followed again later. If it cannot be followed now,
    /// return it parked with the same ticket.
    fn follow(&self, _parked: ParkedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Unknown)))
    }

    /// Cancels a parked call, because its outcome is no longer needed.
    fn cancel(&self, _parked: ParkedCall) -> CancelFuture<'_> {
        Box::pin(std::future::ready(()))
    }
}

pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Dispatch> + Send + 'a>>;

pub type CancelFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A call that was authorized, approved if necessary, and journaled. Only this crate can build one.
#[derive(Debug)]
pub struct AuthorizedCall {
    pub(crate) id: ToolId,
    pub(crate) input: Value,
    pub(crate) token: CallToken,
    pub(crate) key: String,
    pub(crate) scope: Arc<Scope>,
    pub(crate) updates: ProgressSink,
    pub(crate) approved_definition: Option<ToolHash>,
    pub(crate) answers: Option<Answers>,
    pub(crate) asker: QuestionSender,
    /// Proof that the journal has this call.
    pub(crate) _intent: Receipt,
}

/// Identifies a call for as long as its run is stored. A source that parks a call keeps it to settle the call later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallToken {
    pub run: String,
    pub call: u32,
}

/// A tool's progress update, with the call that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUpdate {
    pub run_id: String,
    pub tool_call_id: String,
    pub tool_id: String,
    pub update: Value,
}

impl AuthorizedCall {
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    pub fn input(&self) -> &Value {
        &self.input
    }

    pub fn token(&self) -> &CallToken {
        &self.token
    }

    /// Returns the idempotency key: equal for every attempt at this call, and different for every other call.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn updates(&self) -> &ProgressSink {
        &self.updates
    }

    /// Returns the tool definition that a person approved, for this call or by a standing approval; `None` if no
    /// approval was required. If the tool's definition has changed since, the source must not call it.
    pub fn approved_definition(&self) -> Option<ToolHash> {
        self.approved_definition
    }

    /// Sends the tool's questions while the call is in progress.
    pub fn asker(&self) -> &QuestionSender {
        &self.asker
    }

    /// Returns people's answers, if an earlier attempt at this call returned questions.
    pub fn answers(&self) -> Option<&Answers> {
        self.answers.as_ref()
    }
}

/// The result of dispatching a call to its source.
#[derive(Debug)]
pub enum Dispatch {
    Settled(Outcome),
    /// The call is settled later by its token, possibly after a restart.
    Parked(Parked),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Returned(Returned),
    /// The error message. Guest and model read it, so it must contain nothing that they may not see.
    Failed(String),
    /// The host or the tool's server crashed between dispatch and result, and the tool must not be called twice.
    Unknown,
}

/// A tool's successful result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Returned {
    /// Content blocks in MCP's format.
    pub content: Vec<Value>,
    pub details: Option<Value>,
    /// The origins of the value, for policies that use them. The executor adds the tool itself.
    pub labels: Vec<String>,
}

impl Returned {
    pub fn json(value: Value) -> Self {
        Self { details: Some(value), ..Self::default() }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![json!({"type": "text", "text": text.into()})], ..Self::default() }
    }

    /// Returns the value of [`Self::for_guest`] without copying the details.
    pub fn into_guest(mut self) -> Value {
        self.details.take().unwrap_or_else(|| self.for_guest())
    }

    /// Returns the value that a cell receives: the details if there are any, else the text, else the blocks.
    pub fn for_guest(&self) -> Value {
        if let Some(details) = &self.details {
            return details.clone();
        }
        let texts: Option<Vec<&str>> = self
            .content
            .iter()
            .map(|block| {
                block.get("text").and_then(Value::as_str).filter(|_| block.get("type") == Some(&json!("text")))
            })
            .collect();
        match texts {
            Some(texts) if !texts.is_empty() => Value::from(texts.join("\n")),
            _ => json!({"content": self.content}),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Returned;

    #[test]
    fn a_cell_gets_details_or_text_or_blocks() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let mut mixed = Returned::text("a");
        mixed.content.push(image.clone());
        let mut two = Returned::text("a");
        two.content.push(json!({"type": "text", "text": "b"}));
        let cases: [(Returned, Value); 6] = [
            (Returned::json(json!({"n": 1})), json!({"n": 1})),
            (Returned { details: Some(Value::Null), ..Returned::text("a") }, Value::Null),
            (Returned::text("a"), json!("a")),
            (two, json!("a\nb")),
            (mixed.clone(), json!({"content": mixed.content})),
            (Returned::default(), json!({"content": []})),
        ];
        for (returned, expected) in cases {
            assert_eq!(returned.for_guest(), expected, "{returned:?}");
        }
    }
}
