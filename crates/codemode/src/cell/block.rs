//! The timeout message of an unfinished cell, which names the calls that it waits for.

use contract::cell::PendingState;
use contract::error::ErrorCode;
use contract::frame::{Failure, Method};

/// More calls than this are not listed.
const MAX_LISTED: usize = 8;

/// The maximum length of a tool id in the message.
const MAX_SHOWN: usize = 200;

/// Builds the failure of a cell whose time is over while these calls are open.
pub(crate) fn out_of_time<'a>(timeout_ms: u64, open: impl Iterator<Item = (PendingState, Method, &'a str)>) -> Failure {
    let blocks: Vec<String> =
        open.take(MAX_LISTED).map(|(state, method, target)| block(state, method, target)).collect();
    let mut message = format!("timed out after {timeout_ms} ms");
    if !blocks.is_empty() {
        message += &format!(": {}", blocks.join("; "));
    }
    Failure { code: Some(ErrorCode::Timeout), message, place: None }
}

fn block(state: PendingState, method: Method, target: &str) -> String {
    let shown: String = target.chars().take(MAX_SHOWN).collect();
    match (method, state) {
        (Method::Timer | Method::Yield, _) => "a timer has not fired".to_owned(),
        (_, PendingState::Approval) => format!("a person has not approved `{shown}`"),
        (_, PendingState::Client) => format!("the client has not answered `{shown}`"),
        (_, PendingState::Queued | PendingState::Running | PendingState::Interrupted) => {
            format!("`{shown}` has not answered")
        }
    }
}
