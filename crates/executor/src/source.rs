//! Somewhere tools live, and what they answer.

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

/// Canned answers, core tools, MCP servers, clients.
///
/// Dropping the future that `call` returned cancels the call: the source tells whoever works on it. A source around
/// another passes everything on.
pub trait ToolSource: fmt::Debug + Send + Sync {
    /// What it offers, as it stands now.
    fn tools(&self) -> Vec<ToolSpec>;

    /// What this source is, so that a person's approval holds for it and for no other source that takes over its
    /// name: for an MCP server a hash of its command and arguments, or of its address. Tools of an MCP server whose
    /// source has none cannot be approved for good.
    fn identity(&self) -> Option<String> {
        None
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_>;

    /// Sees a call to its end that was parked with a ticket, perhaps by another process. Dropping the future leaves
    /// the call as it is, for whoever follows it next; one that cannot be followed now gives its ticket back.
    fn follow(&self, _parked: ParkedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Unknown)))
    }

    /// Nobody wants what a parked call brings: whoever works on it is told.
    fn cancel(&self, _parked: ParkedCall) -> CancelFuture<'_> {
        Box::pin(std::future::ready(()))
    }
}

pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Dispatch> + Send + 'a>>;

pub type CancelFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A call that has come through the door; only this crate can make one.
#[derive(Debug)]
pub struct AuthorizedCall {
    pub(crate) id: ToolId,
    pub(crate) input: Value,
    pub(crate) token: CallToken,
    pub(crate) key: String,
    pub(crate) scope: Arc<Scope>,
    pub(crate) updates: ProgressSink,
    pub(crate) agreed: Option<ToolHash>,
    pub(crate) answers: Option<Answers>,
    pub(crate) asker: QuestionSender,
    /// Without it there is no call: the journal knows of this one.
    pub(crate) _intent: Receipt,
}

/// Names a call for as long as its run is kept: what parks a call hands this out, to settle it by later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallToken {
    pub run: String,
    pub call: u32,
}

/// What a tool said on its way, and of which call.
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

    /// The same for every attempt at this call, and for no other: for tools that do a repeated call once.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn updates(&self) -> &ProgressSink {
        &self.updates
    }

    /// The definition a person agreed to, now or for good, where one had to. A source whose tool has another by now
    /// does not call it.
    pub fn agreed(&self) -> Option<ToolHash> {
        self.agreed
    }

    /// Where the tool puts what it wants to know while it is at work.
    pub fn asker(&self) -> &QuestionSender {
        &self.asker
    }

    /// What people have answered, where the call was made before and its tool asked something.
    pub fn answers(&self) -> Option<&Answers> {
        self.answers.as_ref()
    }
}

/// What becomes of a call that was handed to its source.
#[derive(Debug)]
pub enum Dispatch {
    Settled(Outcome),
    /// Somebody will settle it later, by its token, perhaps after a restart.
    Parked(Parked),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Returned(Returned),
    /// What guest and model may read of a failure; never more.
    Failed(String),
    /// A crash, ours or that of whoever has the tool, came between dispatch and result of one that must not be called
    /// twice.
    Unknown,
}

/// What a tool gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Returned {
    /// Content blocks, in the shape MCP has for them.
    pub content: Vec<Value>,
    pub details: Option<Value>,
    /// Where the value came from, for policies that judge by it. The door adds the tool itself.
    pub labels: Vec<String>,
}

impl Returned {
    pub fn json(value: Value) -> Self {
        Self { details: Some(value), ..Self::default() }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![json!({"type": "text", "text": text.into()})], ..Self::default() }
    }

    /// The same as [`Self::for_guest`], without a copy of the details.
    pub fn into_guest(mut self) -> Value {
        self.details.take().unwrap_or_else(|| self.for_guest())
    }

    /// What a cell gets: the details where there are some, else the text, else the blocks.
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
