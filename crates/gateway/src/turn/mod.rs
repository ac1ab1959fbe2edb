//! A turn of an agent: from a client's message to the model's final answer.
//!
//! [`record`] is pure: it says what happened in a turn and what must happen next. The driver does that and writes each
//! step. [`log`] is what clients receive meanwhile.

mod answers;
mod control;
pub(crate) mod driver;
mod ending;
mod held;
pub(crate) mod live;
pub mod log;
pub mod prepared;
pub mod record;

use contract::ids::TurnId;
use store::NewResponse;
use wire::upstream::ModelEvent;

use log::LogEnd;

pub(crate) use answers::outcome;
pub(crate) use control::{Attempt, ControlCalls, OpenCallPolicy};
pub(crate) use ending::abort_held;

/// Who a turn belongs to, and the session that it is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub principal: String,
    pub agent: String,
    pub session_id: String,
    /// The client's key of the session, if it has one.
    pub session_key: Option<String>,
    pub sender: Option<String>,
    pub channel: Option<String>,
}

/// What a client has received of a turn when its response ends.
#[derive(Debug)]
pub struct TurnSummary<'a> {
    pub turn_id: &'a TurnId,
    /// The visible text of this response.
    pub text: &'a str,
    /// The text and the reasoning of this response, in order.
    pub said: &'a [ModelEvent],
    /// The number of the response among those of the turn, from 0.
    pub round: u32,
    pub end: &'a LogEnd,
}

/// What is written together with the end of a response.
#[derive(Debug, Default)]
pub struct EndRecord {
    /// Digests of the visible conversation, by which a later request finds this turn.
    pub conversations: Vec<String>,
    /// The response as the client can retrieve it.
    pub response: Option<NewResponse>,
}

/// Decides what is written with the end of a response.
pub type OnEnd = Box<dyn FnOnce(&TurnSummary<'_>) -> EndRecord + Send + Sync>;
