//! The limits of one turn, checked before a change is written. Pure.

use contract::limits::{
    JOURNAL_ROW_BYTES, MAX_STORED_RESPONSE_BYTES, MAX_TURN_BYTES, MAX_TURN_DELIVERIES, MAX_TURN_STEPS, TURN_END_BYTES,
    TURN_END_STEPS,
};

use super::{NewResponse, TurnChange};
use crate::commit::TurnLimit;
use crate::transcript::Entry;

/// What a turn stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TurnTotals {
    pub(super) steps: usize,
    pub(super) bytes: usize,
    pub(super) deliveries: usize,
}

impl TurnTotals {
    /// Returns what a change adds.
    pub(super) fn of(change: &TurnChange) -> Self {
        let rows = change.deliveries.len() + change.conversations.len();
        let steps = change.steps.iter().map(|step| JOURNAL_ROW_BYTES + step.kind.len() + step.body.len());
        let response = change.response.as_ref().map_or(0, response_bytes);
        let entries = change.transcript.iter().map(entry_bytes);
        let bytes = rows.saturating_mul(JOURNAL_ROW_BYTES).saturating_add(response);
        Self {
            steps: change.steps.len(),
            bytes: steps.chain(entries).fold(bytes, usize::saturating_add),
            deliveries: change.deliveries.len(),
        }
    }

    fn with(self, more: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(more.steps),
            bytes: self.bytes.saturating_add(more.bytes),
            deliveries: self.deliveries.saturating_add(more.deliveries),
        }
    }

    /// Returns the totals after the change, or the limit that it exceeds.
    pub(super) fn after(self, change: &TurnChange) -> Result<Self, TurnLimit> {
        let added = Self::of(change);
        let after = self.with(added);
        let is_short_end = is_short_end(change, added);
        if change.response.as_ref().is_some_and(|response| response.body.len() > MAX_STORED_RESPONSE_BYTES) {
            return Err(TurnLimit::ResponseBytes);
        }
        if after.steps > MAX_TURN_STEPS && added.steps > 0 && !is_short_end {
            return Err(TurnLimit::Steps);
        }
        if after.bytes > MAX_TURN_BYTES && added.bytes > 0 && !is_short_end {
            return Err(TurnLimit::Bytes);
        }
        if after.deliveries > MAX_TURN_DELIVERIES && added.deliveries > 0 {
            return Err(TurnLimit::Deliveries);
        }
        Ok(after)
    }
}

/// Whether the change ends the turn and adds so little that it is never refused: a turn must be able to end.
pub(super) fn is_short_end(change: &TurnChange, added: TurnTotals) -> bool {
    change.is_end() && added.steps <= TURN_END_STEPS && added.bytes <= TURN_END_BYTES
}

fn response_bytes(response: &NewResponse) -> usize {
    let items = response.item_ids.len().saturating_mul(JOURNAL_ROW_BYTES);
    response.body.len().saturating_add(items).saturating_add(JOURNAL_ROW_BYTES)
}

/// Returns the bytes that a transcript entry counts for.
fn entry_bytes(entry: &Entry) -> usize {
    JOURNAL_ROW_BYTES.saturating_add(entry.entry.to_string().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::{NewDelivery, NewStep, TurnState};

    fn steps(number: usize, bytes: usize) -> TurnChange {
        let step = NewStep { kind: "model".to_owned(), body: "x".repeat(bytes) };
        TurnChange { steps: vec![step; number], ..TurnChange::default() }
    }

    fn ends(change: TurnChange) -> TurnChange {
        TurnChange { state: Some(TurnState::Failed), ..change }
    }

    const FULL: TurnTotals =
        TurnTotals { steps: MAX_TURN_STEPS, bytes: MAX_TURN_BYTES, deliveries: MAX_TURN_DELIVERIES };

    #[test]
    fn a_turn_can_be_filled_and_not_exceeded() {
        let empty = TurnTotals::default();
        assert!(empty.after(&steps(MAX_TURN_STEPS, 0)).is_ok());
        assert_eq!(empty.after(&steps(MAX_TURN_STEPS + 1, 0)), Err(TurnLimit::Steps));
        let row = JOURNAL_ROW_BYTES + "model".len();
        assert!(empty.after(&steps(1, MAX_TURN_BYTES - row)).is_ok());
        assert_eq!(empty.after(&steps(1, MAX_TURN_BYTES - row + 1)), Err(TurnLimit::Bytes));
        let delivery = NewDelivery {
            call_id: "call_1".to_owned(),
            run_id: "cm_1".into(),
            call: contract::ids::CallId(1),
            round: 1,
        };
        let delivers = |number| TurnChange { deliveries: vec![delivery.clone(); number], ..TurnChange::default() };
        assert!(empty.after(&delivers(MAX_TURN_DELIVERIES)).is_ok());
        assert_eq!(empty.after(&delivers(MAX_TURN_DELIVERIES + 1)), Err(TurnLimit::Deliveries));
    }

    #[test]
    fn a_response_has_a_limit_of_its_own() {
        let responds = |bytes: usize| {
            let response = NewResponse {
                response_id: "resp_1".to_owned(),
                body: "x".repeat(bytes),
                item_ids: Vec::new(),
                expires_at: 0,
            };
            TurnChange { response: Some(response), ..TurnChange::default() }
        };
        assert!(TurnTotals::default().after(&responds(MAX_STORED_RESPONSE_BYTES)).is_ok());
        let refused = TurnTotals::default().after(&ends(responds(MAX_STORED_RESPONSE_BYTES + 1)));
        assert_eq!(refused, Err(TurnLimit::ResponseBytes));
    }

    #[test]
    fn a_full_turn_can_still_end_with_a_few_words() {
        assert!(FULL.after(&TurnChange::default()).is_ok(), "a change that adds nothing");
        assert!(FULL.after(&steps(1, 0)).is_err());
        assert!(FULL.after(&ends(steps(1, 1_000))).is_ok());
        assert!(FULL.after(&ends(steps(1, TURN_END_BYTES))).is_err());
        assert!(FULL.after(&ends(steps(TURN_END_STEPS + 1, 0))).is_err());
    }
}
