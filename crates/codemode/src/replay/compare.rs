//! Compares replayed legs with the journal. Does no I/O: it runs no leg and reads no store.

use std::borrow::Cow;
use std::collections::BTreeSet;

use contract::cell::OutputItem;
use contract::frame::{HostCall, Leg, LegEnd, Method, Reply, ReplyValue};
use contract::ids::CallId;
use contract::limits::MAX_TARGET_BYTES;
use contract::tool::ContentHash;
use serde_json::value::RawValue;
use store::{CallRow, CallState, LegEndKind, LegRow, StoredLegEnd};

use super::divergence::{
    Divergence, happened_end, happened_output, made_call, recorded_call, recorded_end, recorded_output,
};

/// How many bytes of a target that is too long are recorded.
const MAX_SHOWN_TARGET: usize = 200;

/// The result of comparing a replayed leg with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegVerdict {
    /// The leg made the recorded calls and ended as recorded.
    Same,
    /// The leg made the recorded calls, but the journal has no record of its end.
    Unrecorded,
}

/// Compares replayed legs with a run's journal, one leg after the other.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    legs: &'a [LegRow],
    calls: &'a [CallRow],
    /// The leg after which the last snapshot was taken. It and all earlier legs are known to have ended suspended.
    last_snapshot_leg: Option<i64>,
    /// Calls that have no reply yet and were not cleared.
    open: BTreeSet<CallId>,
}

/// Converts the end of a leg to the journal's format. `output_digest` also holds the digest of a returned value.
pub(crate) fn to_journal_end(leg: &Leg) -> StoredLegEnd {
    let mut digest = output_digest(&leg.output);
    if let LegEnd::Completed { value } = &leg.end {
        digest = format!("{digest}{VALUE_MARK}{}", ContentHash::of(value.get().as_bytes()));
    }
    StoredLegEnd { kind: kind_of(&leg.end), output_digest: digest }
}

/// What separates the digest of the output from that of the cell's value. A result does not always contain the whole
/// value, so the value is compared by its digest. Journals of earlier versions have no such digest.
const VALUE_MARK: &str = " value ";

/// Returns the digest of the output of a recorded leg.
fn recorded_digest(ended: &StoredLegEnd) -> &str {
    ended.output_digest.split_once(VALUE_MARK).map_or(ended.output_digest.as_str(), |(output, _)| output)
}

/// Returns whether a recorded leg returned this value. `None` if the journal does not tell.
pub(super) fn has_same_value(ended: &StoredLegEnd, value: &RawValue) -> Option<bool> {
    let (_, recorded) = ended.output_digest.split_once(VALUE_MARK)?;
    Some(recorded == ContentHash::of(value.get().as_bytes()).to_string())
}

/// Returns a digest of the output: the number of items and their hash. Empty if there is no output.
fn output_digest(output: &[OutputItem]) -> String {
    if output.is_empty() {
        return String::new();
    }
    let mut text = serde_json::to_string(output).unwrap_or_default();
    for item in output {
        if let OutputItem::Image(media) | OutputItem::Audio(media) = item {
            text += &ContentHash::of(&media.data).to_string();
        }
    }
    format!("{} {}", output.len(), ContentHash::of(text.as_bytes()))
}

impl<'a> Comparison<'a> {
    /// Creates a comparison that starts with the first leg.
    pub(crate) fn new(legs: &'a [LegRow], calls: &'a [CallRow], last_snapshot_leg: Option<i64>) -> Self {
        Self { legs, calls, last_snapshot_leg, open: BTreeSet::new() }
    }

    /// Starts the comparison after this leg instead of with the first one. Calls that were made in this leg or earlier,
    /// have no reply yet and were not cleared are open.
    pub(crate) fn starting_after(mut self, leg: i64) -> Self {
        // The journal does not tell in which leg a timer was cleared. No later leg can have received its reply either.
        let is_open = |row: &&CallRow| row.leg <= leg && row.state != CallState::Cleared;
        self.open = self.calls.iter().filter(is_open).map(|row| row.call).collect();
        for answered in self.legs.iter().filter(|row| row.leg <= leg).flat_map(|row| &row.replies) {
            self.open.remove(answered);
        }
        self
    }

    /// Returns whether the call is open.
    pub(crate) fn waits_for(&self, call: CallId) -> bool {
        self.open.contains(&call)
    }

    /// Takes the recorded replies that the leg received, to be delivered again. Their calls are no longer open.
    pub(crate) fn take_replies(&mut self, leg: &LegRow) -> Result<Vec<Reply>, Divergence> {
        leg.replies.iter().map(|call| self.take_reply(leg, *call)).collect()
    }

    fn take_reply(&mut self, leg: &LegRow, call: CallId) -> Result<Reply, Divergence> {
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

    /// Compares a replayed leg with its record. It must make the same calls in the same order, end in the same way and
    /// have the same output.
    ///
    /// Does not compare the output of failed legs or the returned value (see [`has_same_value`]).
    pub(crate) fn compare_leg(&mut self, leg: &LegRow, ran: &Leg) -> Result<LegVerdict, Divergence> {
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
        if let (Some(kind), Some(more)) = (ended, made.get(recorded.len())) {
            let (recorded, happened) = (format!("{} without this call", recorded_end(kind)), made_call(more));
            return Err(Divergence { leg: leg.leg, call: Some(more.id), recorded, happened });
        }
        let diverged = |recorded, happened| Err(Divergence { leg: leg.leg, call: None, recorded, happened });
        if let Some(kind) = ended.filter(|kind| *kind != kind_of(&ran.end)) {
            return diverged(recorded_end(kind), happened_end(&ran.end));
        }
        // The output of a failed leg is not compared: it depends on how much budget was left, and no later leg depends
        // on it.
        let comparable = leg.ended.as_ref().filter(|ended| ended.kind != LegEndKind::Failed);
        if let Some(ended) = comparable.filter(|ended| recorded_digest(ended) != output_digest(&ran.output)) {
            return diverged(recorded_output(ended), happened_output(&ran.output));
        }
        self.open.extend(made.iter().map(|call| call.id));
        for call in cleared {
            self.open.remove(call);
        }
        Ok(if ended.is_some() { LegVerdict::Same } else { LegVerdict::Unrecorded })
    }

    /// Returns how the recorded leg ended, or `None` if that is not known: its end was not written, and neither a later
    /// leg nor a snapshot proves that it ended suspended. If the end is known, the record of its calls is complete.
    pub(crate) fn ended(&self, leg: &LegRow) -> Option<LegEndKind> {
        let was_suspended =
            self.legs.iter().any(|other| other.leg > leg.leg) || self.last_snapshot_leg >= Some(leg.leg);
        leg.ended.as_ref().map(|ended| ended.kind).or_else(|| was_suspended.then_some(LegEndKind::Suspended))
    }
}

fn kind_of(end: &LegEnd) -> LegEndKind {
    match end {
        LegEnd::Suspended { .. } => LegEndKind::Suspended,
        LegEnd::Completed { .. } => LegEndKind::Completed,
        LegEnd::Failed(_) => LegEndKind::Failed,
    }
}

/// Returns the target of a call as the journal stores it. A target that is too long, which only a broken worker sends,
/// is shortened.
pub(crate) fn recorded_target(target: &str) -> Cow<'_, str> {
    if target.len() <= MAX_TARGET_BYTES {
        return Cow::Borrowed(target);
    }
    let shown = target.get(..target.floor_char_boundary(MAX_SHOWN_TARGET)).unwrap_or_default();
    Cow::Owned(format!("{shown}… ({} bytes, sha256 {})", target.len(), ContentHash::of(target.as_bytes())))
}

fn is_same(row: &CallRow, call: &HostCall) -> bool {
    call.id == row.call
        && call.method.as_str() == row.method
        && (call.target == row.target || recorded_target(&call.target) == row.target)
        && ContentHash::of(&call.payload).to_string() == row.input_hash
}

#[cfg(test)]
mod tests;
