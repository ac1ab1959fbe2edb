//! A call that is not over when its source answers: with whom it is, and what its source needs to take it up again.

use std::collections::BTreeMap;

use contract::tool::ToolId;

use crate::ask::{Answer, Question};
use crate::asker::QuestionSender;
use crate::listener::ProgressSink;
use crate::source::CallToken;

/// The longest ticket: the state that a server may give for a question is most of it.
pub const MAX_TICKET_BYTES: usize = 64 << 10;

/// With whom a parked call is.
#[derive(Clone, Debug, PartialEq)]
pub enum Parked {
    /// The client that brought the tool answers it, and is heard of by `settle`.
    Client,
    /// The tool works on without us, and will be heard of by `settle`.
    Task,
    /// The tool works on without us, and must be asked how far it is: whoever holds the run does, by this ticket.
    Followed(Ticket),
    /// The tool wants to know something from a person before it goes on.
    QuestionBatch(QuestionBatch),
}

/// What a source needs to take a call up again, in its own words. It outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket(String);

impl Ticket {
    /// None where it is longer than a ticket may be.
    pub fn new(text: String) -> Option<Self> {
        (text.len() <= MAX_TICKET_BYTES).then_some(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A call that was made before and parked with a ticket; only this crate can make one.
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

    /// Where the tool puts what it wants to know while it is followed.
    pub fn asker(&self) -> &QuestionSender {
        &self.asker
    }
}

/// What a tool wants to know. It is called again with all the answers, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionBatch {
    pub ticket: Ticket,
    pub asks: Vec<Question>,
}

/// What people have answered, and where the call stood when they were asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    pub ticket: Ticket,
    pub by_key: BTreeMap<String, Answer>,
}

#[cfg(test)]
mod tests {
    use super::{MAX_TICKET_BYTES, Ticket};

    #[test]
    fn a_ticket_over_its_size_limit_is_refused() {
        assert!(Ticket::new("x".repeat(MAX_TICKET_BYTES)).is_some());
        assert!(Ticket::new("x".repeat(MAX_TICKET_BYTES + 1)).is_none());
    }
}
