//! The interface of tool sources: the calls that they receive, how they park them, and the map from tools to sources.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use catalog::UnavailableServer;
use contract::ids::{CallId, RunId};
use contract::scope::Scope;
use contract::tool::{ToolHash, ToolId, ToolSpec};
use serde_json::Value;

use crate::journal::IntentReceipt;
use crate::outcome::Outcome;
use crate::question::{Answer, Question, QuestionSender};
use crate::sink::ProgressSink;

/// A provider of tools: canned answers, core tools, an MCP server, a client.
///
/// Dropping the future that `call` returned cancels the call: the source notifies its tool. A source that wraps another
/// source must forward every method.
pub trait ToolSource: fmt::Debug + Send + Sync {
    /// Returns the tools that this source currently offers.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Returns what identifies this source, so that standing approvals do not hold for another source that takes over
    /// its name. For an MCP server it is a hash of its command and arguments, or of its address. Tools of an MCP server
    /// without an identity cannot have standing approvals.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Returns the MCP server behind this source, if it offers no tools because it cannot be reached, with the reason.
    fn unavailable(&self) -> Option<UnavailableServer> {
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

/// The future of [`ToolSource::call`] and [`ToolSource::follow`].
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Dispatch> + Send + 'a>>;

/// The future of [`ToolSource::cancel`].
pub type CancelFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A call that was authorized, approved if necessary, and journaled. Only this crate can build one.
#[derive(Debug)]
pub struct AuthorizedCall {
    pub(crate) id: ToolId,
    pub(crate) input: Value,
    pub(crate) token: CallToken,
    pub(crate) tool_call_id: String,
    pub(crate) key: String,
    pub(crate) scope: Arc<Scope>,
    pub(crate) updates: ProgressSink,
    pub(crate) approved_definition: Option<ToolHash>,
    pub(crate) answers: Option<Answers>,
    pub(crate) asker: QuestionSender,
    /// Proof that the journal has this call.
    pub(crate) _intent: IntentReceipt,
}

/// Identifies a call for as long as its run is stored. A source that parks a call keeps it to settle the call later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallToken {
    /// The run.
    pub run: RunId,
    /// The number of the call within the run.
    pub call: CallId,
}

/// A tool's progress update, with the call that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUpdate {
    /// The run of the call.
    pub run_id: RunId,
    /// The id of the model's call.
    pub tool_call_id: String,
    /// The id of the tool.
    pub tool_id: String,
    /// What the tool sent.
    pub update: Value,
}

impl AuthorizedCall {
    /// Returns the id of the tool.
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    /// Returns the input, which matches the tool's schema.
    pub fn input(&self) -> &Value {
        &self.input
    }

    /// Returns the token with which the call can be settled later.
    pub fn token(&self) -> &CallToken {
        &self.token
    }

    /// Returns the id that transcripts and hooks name the call by.
    pub fn tool_call_id(&self) -> &str {
        &self.tool_call_id
    }

    /// Returns the idempotency key: equal for every attempt at this call, and different for every other call.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the agent and session that the call is made for.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the receiver of the tool's progress updates.
    pub fn updates(&self) -> &ProgressSink {
        &self.updates
    }

    /// Returns the tool definition that a person approved, for this call or by a standing approval; `None` if no
    /// approval was required. If the tool's definition has changed since, the source must not call it.
    pub fn approved_definition(&self) -> Option<ToolHash> {
        self.approved_definition
    }

    /// Returns the sender for questions that the tool asks while the call is in progress.
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
    /// The call has ended.
    Settled(Outcome),
    /// The call is settled later by its token, possibly after a restart.
    Parked(ParkedOn),
}

/// The maximum length of a ticket. Most of it is the state that a server may attach to a question.
pub const MAX_TICKET_BYTES: usize = 64 << 10;

/// What a parked call is waiting for.
#[derive(Clone, Debug, PartialEq)]
pub enum ParkedOn {
    /// The client that offers the tool. It settles the call with `settle` of the host.
    Client,
    /// A tool that continues in the background, and settles the call with `settle` of the host.
    Task,
    /// A tool that continues in the background and must be polled: the process that holds the run calls
    /// [`ToolSource::follow`] with this ticket.
    Followed(Ticket),
    /// A person's answers to the tool's questions.
    QuestionBatch(QuestionBatch),
}

/// The data that a source needs to resume a parked call, in a format that only the source reads. It is stored and
/// survives restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket(String);

impl Ticket {
    /// Creates a ticket. `None` if the text is longer than [`MAX_TICKET_BYTES`].
    pub fn new(text: String) -> Option<Self> {
        (text.len() <= MAX_TICKET_BYTES).then_some(Self(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A call that was dispatched before and parked with a ticket. Only this crate can build one.
#[derive(Clone, Debug)]
pub struct ParkedCall {
    pub(crate) id: ToolId,
    pub(crate) ticket: Ticket,
    pub(crate) token: CallToken,
    pub(crate) updates: ProgressSink,
    pub(crate) asker: QuestionSender,
}

impl ParkedCall {
    /// Returns the id of the tool.
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    /// Returns the ticket that the source gave.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Returns the token with which the call can be settled.
    pub fn token(&self) -> &CallToken {
        &self.token
    }

    /// Returns the receiver of the tool's progress updates.
    pub fn updates(&self) -> &ProgressSink {
        &self.updates
    }

    /// Returns the sender for questions that the tool asks while the call is followed.
    pub fn asker(&self) -> &QuestionSender {
        &self.asker
    }
}

/// Questions that a tool returned instead of a result. The tool is called again with all answers, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionBatch {
    /// What the source needs to continue the call.
    pub ticket: Ticket,
    /// The questions.
    pub questions: Vec<Question>,
}

/// People's answers, with the ticket of the call that asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// The ticket that came with the questions.
    pub ticket: Ticket,
    /// The answers, by the keys of their questions.
    pub by_key: BTreeMap<String, Answer>,
}

/// Finds the source of a tool.
#[derive(Debug, Default)]
pub struct Routes {
    sources: HashMap<ToolId, Arc<dyn ToolSource>>,
}

impl Routes {
    /// Collects the tools of all sources. The first source that has an id keeps it, so a source that repeats an id, or
    /// uses another source's id, does not affect the others.
    pub fn collect(sources: &[Arc<dyn ToolSource>]) -> (Self, Vec<ToolSpec>) {
        let mut routes = Self::default();
        let mut tools = Vec::new();
        for source in sources {
            for tool in source.tools() {
                if routes.sources.contains_key(&tool.id) {
                    continue;
                }
                routes.sources.insert(tool.id.clone(), Arc::clone(source));
                tools.push(tool);
            }
        }
        (routes, tools)
    }

    pub(crate) fn source_of(&self, id: &ToolId) -> Option<&Arc<dyn ToolSource>> {
        self.sources.get(id)
    }

    /// Finds the source for a call that was dispatched before. If the tool is no longer offered, the source of its
    /// owner's other tools still knows the outcome of the call.
    pub(crate) fn source_of_owner(&self, id: &ToolId) -> Option<&Arc<dyn ToolSource>> {
        let same = |known: &ToolId| known.source() == id.source() && known.owner() == id.owner();
        self.source_of(id).or_else(|| self.sources.iter().find(|(known, _)| same(known)).map(|(_, source)| source))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TICKET_BYTES, Ticket};

    #[test]
    fn a_ticket_that_is_too_long_is_refused() {
        assert!(Ticket::new("x".repeat(MAX_TICKET_BYTES)).is_some());
        assert!(Ticket::new("x".repeat(MAX_TICKET_BYTES + 1)).is_none());
    }
}
