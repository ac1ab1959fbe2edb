//! Compares what a replayed leg did with its record. Pure: legs go in, verdicts come out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use contract::cell::OutputItem;
use contract::frame::{HostCall, Leg, LegEnd, Method, Reply, ReplyValue};
use contract::ids::CallId;
use contract::limits::MAX_TARGET_BYTES;
use contract::tool::InputHash;
use store::{CallRow, LegEnded, LegHow, LegRow};

use super::divergence::{
    Divergence, happened_end, happened_output, made_call, recorded_call, recorded_end, recorded_output,
};

/// How many bytes are kept of a target that is too long.
const MAX_SHOWN_TARGET: usize = 200;

/// The result of comparing a replayed leg with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what is recorded.
    Same,
    /// Its end was never recorded; everything that was recorded is the same.
    Unrecorded,
}

/// Compares replayed legs with a run's journal, one leg after the other.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    legs: &'a [LegRow],
    calls: &'a [CallRow],
    /// The last leg after which the cell was frozen, and so is known to have waited.
    frozen: Option<i64>,
    /// Calls that the cell waits for.
    open: BTreeSet<CallId>,
}

/// Returns how a leg ended, in the form of the journal.
pub(crate) fn ended_of(leg: &Leg) -> LegEnded {
    LegEnded { how: how_of(&leg.end), shown: shown(&leg.output) }
}

/// Returns a digest of the output: the number of items and their hash. It is empty if there is no output.
fn shown(output: &[OutputItem]) -> String {
    if output.is_empty() {
        return String::new();
    }
    let text = serde_json::to_string(output).unwrap_or_default();
    format!("{} {}", output.len(), InputHash::of(text.as_bytes()))
}

impl<'a> Comparison<'a> {
    /// Creates a comparison that starts with the first leg.
    pub(crate) fn new(legs: &'a [LegRow], calls: &'a [CallRow], frozen: Option<i64>) -> Self {
        Self { legs, calls, frozen, open: BTreeSet::new() }
    }

    /// Starts the comparison after this leg instead. Calls that were made up to it and have no reply by then are open.
    pub(crate) fn behind(mut self, leg: i64) -> Self {
        let made = self.calls.iter().filter(|row| row.leg <= leg).map(|row| row.call);
        self.open = made.collect();
        for answered in self.legs.iter().filter(|row| row.leg <= leg).flat_map(|row| &row.replies) {
            self.open.remove(answered);
        }
        self
    }

    pub(crate) fn waits_for(&self, call: CallId) -> bool {
        self.open.contains(&call)
    }

    /// Returns the recorded replies to the leg, to be delivered again.
    pub(crate) fn replies(&mut self, leg: &LegRow) -> Result<Vec<Reply>, Divergence> {
        leg.replies.iter().map(|call| self.reply(leg, *call)).collect()
    }

    fn reply(&mut self, leg: &LegRow, call: CallId) -> Result<Reply, Divergence> {
        let diverged = |recorded: &str, happened: &str| Divergence {
            leg: leg.leg,
            call: Some(call),
            recorded: recorded.to_owned(),
            happened: happened.to_owned(),
        };
        if !self.open.remove(&call) {
            return Err(diverged("a reply to this call", "a cell that does not wait for it"));
        }
        let row = self.calls.iter().find(|row| row.call == call);
        let yields = row.is_some_and(|row| row.method == Method::Yield.as_str());
        let recorded = row.and_then(|row| row.reply.clone()).map(ReplyValue::from);
        // A yield always resolves to `null`.
        let value = recorded.or_else(|| yields.then(|| ReplyValue::Resolved(b"null".to_vec())));
        let value = value.ok_or_else(|| diverged("a reply to this call", "no reply in the journal"))?;
        Ok(Reply { call, value })
    }

    /// Compares a leg with its record: it must make the same calls in the same order, end in the same way and show the
    /// same output.
    pub(crate) fn judge(&mut self, leg: &LegRow, ran: &Leg) -> Result<Verdict, Divergence> {
        let (made, cleared): (&[HostCall], &[CallId]) = match &ran.end {
            LegEnd::Suspended { calls, cleared } => (calls.as_slice(), cleared.as_slice()),
            LegEnd::Completed { .. } | LegEnd::Failed(_) => (&[][..], &[][..]),
        };
        let ended = self.ended(leg);
        let mut recorded: Vec<&CallRow> = self.calls.iter().filter(|row| row.leg == leg.leg).collect();
        recorded.sort_unstable_by_key(|row| row.call);
        for (position, row) in recorded.iter().enumerate() {
            let call = made.get(position);
            if !call.is_some_and(|call| is_same(row, call)) {
                let happened = call.map_or_else(|| happened_end(&ran.end), made_call);
                return Err(Divergence { leg: leg.leg, call: Some(row.call), recorded: recorded_call(row), happened });
            }
        }
        if let (Some(how), Some(more)) = (ended, made.get(recorded.len())) {
            let (recorded, happened) = (format!("{} without this call", recorded_end(how)), made_call(more));
            return Err(Divergence { leg: leg.leg, call: Some(more.id), recorded, happened });
        }
        let diverged = |recorded, happened| Err(Divergence { leg: leg.leg, call: None, recorded, happened });
        if let Some(how) = ended.filter(|how| *how != how_of(&ran.end)) {
            return diverged(recorded_end(how), happened_end(&ran.end));
        }
        // The output of a failed cell depends on how much was left of its budget, and no leg comes after it.
        let comparable = leg.ended.as_ref().filter(|ended| ended.how != LegHow::Failed);
        if let Some(ended) = comparable.filter(|ended| ended.shown != shown(&ran.output)) {
            return diverged(recorded_output(ended), happened_output(&ran.output));
        }
        self.open.extend(made.iter().map(|call| call.id));
        for call in cleared {
            self.open.remove(call);
        }
        Ok(if ended.is_some() { Verdict::Same } else { Verdict::Unrecorded })
    }

    /// Returns how the leg ended, if that is known; then all its calls are recorded. It is known if the end was
    /// written, or if a later leg or a snapshot proves that the cell waited.
    pub(crate) fn ended(&self, leg: &LegRow) -> Option<LegHow> {
        let waited = self.legs.iter().any(|other| other.leg > leg.leg) || self.frozen >= Some(leg.leg);
        leg.ended.as_ref().map(|ended| ended.how).or_else(|| waited.then_some(LegHow::Suspended))
    }
}

fn how_of(end: &LegEnd) -> LegHow {
    match end {
        LegEnd::Suspended { .. } => LegHow::Suspended,
        LegEnd::Completed { .. } => LegHow::Completed,
        LegEnd::Failed(_) => LegHow::Failed,
    }
}

/// Returns the target of a call as the journal stores it. Workers refuse targets that are too long; if a broken worker
/// does not, the target is shortened.
pub(crate) fn recorded_target(target: &str) -> Cow<'_, str> {
    if target.len() <= MAX_TARGET_BYTES {
        return Cow::Borrowed(target);
    }
    let shown = target.get(..target.floor_char_boundary(MAX_SHOWN_TARGET)).unwrap_or_default();
    Cow::Owned(format!("{shown}… ({} bytes, sha256 {})", target.len(), InputHash::of(target.as_bytes())))
}

fn is_same(row: &CallRow, call: &HostCall) -> bool {
    call.id == row.call
        && call.method.as_str() == row.method
        && (call.target == row.target || recorded_target(&call.target) == row.target)
        && InputHash::of(&call.payload).to_string() == row.input_hash
}

#[cfg(test)]
mod tests;
