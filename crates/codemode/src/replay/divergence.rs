//! Describes where a replayed leg differs from its record.

use std::fmt;

use contract::cell::OutputItem;
use contract::frame::{HostCall, LegEnd};
use contract::ids::CallId;
use store::{CallRow, LegEndKind, StoredLegEnd};

/// How many characters are shown of a call's arguments, a value or an output.
const MAX_SHOWN_CHARS: usize = 200;

/// A difference between a replayed leg and its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub leg: i64,
    /// The call that differs, if it is a call.
    pub call: Option<CallId>,
    pub recorded: String,
    pub happened: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leg {}", self.leg)?;
        if let Some(call) = self.call {
            write!(f, ", call {call}")?;
        }
        write!(f, ": expected {}, got {}", self.recorded, self.happened)
    }
}

pub(super) fn recorded_call(row: &CallRow) -> String {
    // Queries to the catalog and refused calls are recorded only by their hash.
    if row.payload.is_empty() {
        let hash = row.input_hash.get(..12).unwrap_or(&row.input_hash);
        return call(&row.method, &row.target, &format!("arguments that are not kept (sha256 {hash})"));
    }
    call(&row.method, &row.target, &row.payload)
}

pub(super) fn made_call(made: &HostCall) -> String {
    call(made.method.as_str(), &made.target, &String::from_utf8_lossy(&made.payload))
}

fn call(method: &str, target: &str, payload: &str) -> String {
    let on = if target.is_empty() { String::new() } else { format!(" of `{}`", cut(target)) };
    format!("`{method}`{on} with {}", cut(payload))
}

pub(super) fn recorded_end(kind: LegEndKind) -> String {
    match kind {
        LegEndKind::Suspended => "a wait",
        LegEndKind::Completed => "a return",
        LegEndKind::Failed => "a failure",
    }
    .to_owned()
}

pub(super) fn happened_end(end: &LegEnd) -> String {
    match end {
        LegEnd::Suspended { .. } => "a wait".to_owned(),
        LegEnd::Completed { value } => format!("a return of {}", cut(value.get())),
        LegEnd::Failed(failure) => format!("a failure: {}", cut(&failure.message)),
    }
}

pub(super) fn recorded_output(ended: &StoredLegEnd) -> String {
    match ended.output_digest.split_once(' ').filter(|(items, _)| !items.is_empty()) {
        Some((items, hash)) => format!("an output of {items} items (sha256 {})", hash.get(..12).unwrap_or(hash)),
        None => "no output".to_owned(),
    }
}

pub(super) fn happened_output(output: &[OutputItem]) -> String {
    if output.is_empty() {
        return "no output".to_owned();
    }
    format!("an output of {} items: {}", output.len(), cut(&serde_json::to_string(output).unwrap_or_default()))
}

pub(super) fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
