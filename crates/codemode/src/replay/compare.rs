//! What a leg did, held against what is recorded of it. Pure: legs go in, verdicts come out.

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

/// What is kept of a target that is too long.
const MAX_SHOWN_TARGET: usize = 200;

/// How a leg that was run again stands to what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it did before.
    Same,
    /// How it ended was never written: all that was is the same.
    Unrecorded,
}

/// Goes through a run's journal, one leg after the other.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    legs: &'a [LegRow],
    calls: &'a [CallRow],
    /// The last leg after which the cell is known to have waited: it was frozen then.
    frozen: Option<i64>,
    /// Calls that the cell waits for.
    open: BTreeSet<u32>,
}

/// How a leg ended, as the journal keeps it.
pub(crate) fn ended_of(leg: &Leg) -> LegEnded {
    LegEnded { how: how_of(&leg.end), shown: shown(&leg.output) }
}

/// Output told apart from other output: how many items, and their hash. Nothing shown is nothing here, too.
fn shown(output: &[OutputItem]) -> String {
    if output.is_empty() {
        return String::new();
    }
    let text = serde_json::to_string(output).unwrap_or_default();
    format!("{} {}", output.len(), InputHash::of(text.as_bytes()))
}

impl<'a> Comparison<'a> {
    /// From the first leg on.
    pub(crate) fn new(legs: &'a [LegRow], calls: &'a [CallRow], frozen: Option<i64>) -> Self {
        Self { legs, calls, frozen, open: BTreeSet::new() }
    }

    /// From the leg behind this one on: what was made up to there and is not answered there is open.
    pub(crate) fn behind(mut self, leg: i64) -> Self {
        let made = self.calls.iter().filter(|row| row.leg <= leg).map(|row| row.call);
        self.open = made.collect();
        for answered in self.legs.iter().filter(|row| row.leg <= leg).flat_map(|row| &row.replies) {
            self.open.remove(answered);
        }
        self
    }

    pub(crate) fn waits_for(&self, call: u32) -> bool {
        self.open.contains(&call)
    }

    /// What the leg was told, to be told again.
    pub(crate) fn replies(&mut self, leg: &LegRow) -> Result<Vec<Reply>, Divergence> {
        leg.replies.iter().map(|call| self.reply(leg, *call)).collect()
    }

    fn reply(&mut self, leg: &LegRow, call: u32) -> Result<Reply, Divergence> {
        let diverged = |recorded: &str, happened: &str| Divergence {
            leg: leg.leg,
            call: Some(call),
            recorded: recorded.to_owned(),
            happened: happened.to_owned(),
        };
        if !self.open.remove(&call) {
            return Err(diverged("that it was answered here", "that the cell does not wait for it"));
        }
        let row = self.calls.iter().find(|row| row.call == call);
        let yields = row.is_some_and(|row| row.method == Method::Yield.as_str());
        let recorded = row.and_then(|row| row.reply.clone()).map(ReplyValue::from);
        // A yield resolves to nothing, whoever asks.
        let value = recorded.or_else(|| yields.then(|| ReplyValue::Resolved(b"null".to_vec())));
        let value =
            value.ok_or_else(|| diverged("that it was answered here", "that its answer is not in the journal"))?;
        Ok(Reply { call: CallId(call), value })
    }

    /// Every call that is recorded must be made again in its turn, and be the same; and nothing else may be done.
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
            let (recorded, happened) = (format!("{}, without this call", recorded_end(how)), made_call(more));
            return Err(Divergence { leg: leg.leg, call: Some(more.id.0), recorded, happened });
        }
        let diverged = |recorded, happened| Err(Divergence { leg: leg.leg, call: None, recorded, happened });
        if let Some(how) = ended.filter(|how| *how != how_of(&ran.end)) {
            return diverged(recorded_end(how), happened_end(&ran.end));
        }
        // What a cell that fails has shown depends on what was left of its allowance, and nothing comes after it.
        let told = leg.ended.as_ref().filter(|ended| ended.how != LegHow::Failed);
        if let Some(ended) = told.filter(|ended| ended.shown != shown(&ran.output)) {
            return diverged(recorded_output(ended), happened_output(&ran.output));
        }
        self.open.extend(made.iter().map(|call| call.id.0));
        for call in cleared {
            self.open.remove(&call.0);
        }
        Ok(if ended.is_some() { Verdict::Same } else { Verdict::Unrecorded })
    }

    /// How the leg is known to have ended, and so that its calls are all there: it is written, or there is something
    /// that cannot be without it.
    pub(crate) fn ended(&self, leg: &LegRow) -> Option<LegHow> {
        let went_on = self.legs.iter().any(|other| other.leg > leg.leg) || self.frozen >= Some(leg.leg);
        leg.ended.as_ref().map(|ended| ended.how).or_else(|| went_on.then_some(LegHow::Suspended))
    }
}

fn how_of(end: &LegEnd) -> LegHow {
    match end {
        LegEnd::Suspended { .. } => LegHow::Suspended,
        LegEnd::Completed { .. } => LegHow::Completed,
        LegEnd::Failed(_) => LegHow::Failed,
    }
}

/// The target of a call as the journal keeps it. A worker refuses targets that are too long; one that does not is
/// no reason to write them down.
pub(crate) fn recorded_target(target: &str) -> Cow<'_, str> {
    if target.len() <= MAX_TARGET_BYTES {
        return Cow::Borrowed(target);
    }
    let shown = target.get(..target.floor_char_boundary(MAX_SHOWN_TARGET)).unwrap_or_default();
    Cow::Owned(format!("{shown}… ({} bytes, sha256 {})", target.len(), InputHash::of(target.as_bytes())))
}

fn is_same(row: &CallRow, call: &HostCall) -> bool {
    call.id.0 == row.call
        && call.method.as_str() == row.method
        && (call.target == row.target || recorded_target(&call.target) == row.target)
        && InputHash::of(&call.payload).to_string() == row.input_hash
}

#[cfg(test)]
mod tests;
