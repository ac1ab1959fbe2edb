//! A turn, which is one `exec` or `wait` of the model: how long it lasts, how long guest code may run in it, and the
//! failure of a cell that is unfinished when its time is over.

use contract::cell::PendingState;
use contract::error::ErrorCode;
use contract::frame::{Failure, Method};
use contract::limits::Limits;

/// More open calls than this are not listed in the timeout message.
const MAX_LISTED: usize = 8;

/// The maximum length of a tool id in the timeout message.
const MAX_SHOWN: usize = 200;

/// How many turns a cell may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    Many,
    /// A single turn: the cell fails if it is not finished when the turn's time is over. Until then it waits, even for
    /// people.
    One,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) kind: TurnKind,
    pub(super) began: u64,
    pub(super) guest_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnKind {
    /// `timeoutMs` limits the whole turn.
    Exec,
    /// An `exec` that waits longer for pending calls; `timeoutMs` limits guest code alone.
    LongExec {
        hold_ms: u64,
    },
    Wait,
}

impl Turn {
    pub(super) fn hold_until(&self, limits: &Limits) -> u64 {
        self.began
            + match self.kind {
                TurnKind::Exec => limits.timeout_ms,
                TurnKind::LongExec { hold_ms } => hold_ms,
                TurnKind::Wait => limits.max_wait_ms,
            }
    }

    /// Returns how long guest code may still run in this turn.
    pub(super) fn run_ms(&self, limits: &Limits, now: u64) -> u64 {
        let unspent = limits.timeout_ms.saturating_sub(self.guest_us / 1000);
        match self.kind {
            TurnKind::Exec => unspent.min(self.hold_until(limits).saturating_sub(now)),
            TurnKind::LongExec { .. } | TurnKind::Wait => unspent,
        }
    }
}

/// Builds the failure of a cell whose time is over while these calls are open.
pub(crate) fn out_of_time<'a>(timeout_ms: u64, open: impl Iterator<Item = (PendingState, Method, &'a str)>) -> Failure {
    let blocks: Vec<String> =
        open.take(MAX_LISTED).map(|(state, method, target)| block(state, method, target)).collect();
    let mut message = format!("timed out after {timeout_ms} ms");
    if !blocks.is_empty() {
        message += &format!(": {}", blocks.join("; "));
    }
    Failure { code: Some(ErrorCode::Timeout), message, position: None }
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
