//! Prepares runs, and makes their tool calls on a single checked path.
//!
//! A [`ToolSource`] accepts only an [`AuthorizedCall`]. Only this crate can build one: after policy and hooks allowed
//! the call, a person approved it if that is required, and the journal recorded that it is about to be made.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod call;
mod canned;
pub mod clock;
mod data_budget;
mod executor;
mod internal_error;
mod journal;
mod large;
mod outcome;
mod question;
pub mod run;
mod sink;
mod source;

pub use call::approval::StandingApprovals;
pub use call::context::run_span;
pub use call::direct::{DirectCall, DirectRequest, DirectRun};
pub use call::hooks::{HOOK_DEADLINE, Hook, HookAnswer, HookFuture, JudgedCell, Rewriters, ToolEvent, ToolKind};
pub use call::transcript::for_transcript;
pub use call::{CallEnd, CallRequest};
pub use canned::{CannedError, CannedTools};
pub use clock::LeaseClock;
pub use data_budget::{DataBudget, DataBudgetError, Reservation, RunDataBudget};
pub use executor::Executor;
pub use internal_error::{internal_message, stopped_message};
pub use journal::{IntentReceipt, Journal, JournalFull, OpenError, UncommittedValue};
pub use large::{LargeSource, LargeText, insert_texts};
pub use outcome::{DropCause, DroppedResult, NOT_CALLED, Outcome, RESULT_DROPPED, ToolResult, UNKNOWN_OUTCOME};
pub use question::{Answer, Question, QuestionKind, QuestionSender};
pub use sink::{ProgressSink, Sink, StateSink};
pub use source::{
    Answers, AuthorizedCall, CallFuture, CallToken, CancelFuture, Dispatch, MAX_TICKET_BYTES, ParkedCall, ParkedOn,
    QuestionBatch, Routes, Ticket, ToolSource, ToolUpdate,
};

/// Fills the buffer with random bytes, from the system or from a simulation.
pub fn fill_random(random: &mut [u8]) -> Result<(), getrandom::Error> {
    if fault::fill_random(random) { Ok(()) } else { getrandom::fill(random) }
}

/// Returns 128 random bits as hex: an unguessable name.
pub fn random_name() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    fill_random(&mut random)?;
    Ok(hex::encode(random))
}

/// Returns an unguessable name for a run: 20 bits of the time in milliseconds and 108 random bits, as hex. The names of
/// runs that start together are neighbours in the store's indexes, so that a commit of several runs writes few pages.
pub fn run_name() -> Result<String, getrandom::Error> {
    let random = random_name()?;
    let time = clock::now_ms() & 0xf_ffff;
    Ok(format!("{time:05x}{}", random.get(5..).unwrap_or_default()))
}
