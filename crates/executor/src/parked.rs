//! Parked calls: calls that have not settled when their source returns.

use std::collections::BTreeMap;

use contract::tool::ToolId;

use crate::ask::{Answer, Question};
use crate::asker::QuestionSender;
use crate::listener::ProgressSink;
use crate::source::CallToken;

/// The maximum length of a ticket. Most of it is the state that a server may attach to a question.
pub const MAX_TICKET_BYTES: usize = 64 << 10;

/// What a parked call is waiting for.
#[derive(Clone, Debug, PartialEq)]
pub enum Parked {
    /// The client that brought the tool; it settles the call with `settle`.
    Client,
    /// A tool that continues on its own and settles the call with `settle`.
    Task,
    /// A tool that continues on its own and must be asked for its outcome; the holder of the run does so with this
    /// ticket.
    Followed(Ticket),
    /// A person's answers to the tool's questions.
    QuestionBatch(QuestionBatch),
}

/// The data that a source needs to resume a call, in its own format. It is stored and survives restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket(String);

impl Ticket {
    /// Creates a ticket. `None` if the text is longer than [`MAX_TICKET_BYTES`].
    pub fn new(text: String) -> Option<Self> {
        (text.len() <= MAX_TICKET_BYTES).then_some(Self(text))
    }

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
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub fn token(&self) -> &CallToken {
        &self.token
    }

    pub fn updates(&self) -> &ProgressSink {
        &self.updates
    }

    /// Sends the tool's questions while the call is followed.
    pub fn asker(&self) -> &QuestionSender {
        &self.asker
    }
}

/// Questions that a tool returned instead of a result. It is called again with all answers, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionBatch {
    pub ticket: Ticket,
    pub asks: Vec<Question>,
}

/// People's answers, with the ticket of the call that asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    pub ticket: Ticket,
    pub by_key: BTreeMap<String, Answer>,
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
