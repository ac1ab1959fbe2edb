//! The work that one check may take, and whether the schema or the input is at fault when it runs out.

use contract::limits::{
    ARGUMENT_CHECK_STEPS, ARGUMENT_CHECK_STEPS_PER_VALUE, MAX_ARGUMENT_CHECK_DEPTH, MAX_ARGUMENT_CHECK_STEPS,
    MAX_MATCHED_BYTES, MAX_MATCHED_PATTERNS, MAX_SCHEMA_STEPS_PER_VALUE,
};
use serde_json::Value;

use super::verdict::Verdict;

/// The number of values counted in an input; more would not change the budget.
const MAX_COUNTED: usize = MAX_ARGUMENT_CHECK_STEPS / ARGUMENT_CHECK_STEPS_PER_VALUE;

/// The reason why an input is too large to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Work,
    Depth,
    Text,
    Patterns,
}

impl Excess {
    /// Returns the explanation that follows the path in a message.
    pub(super) fn explain(self) -> String {
        match self {
            Self::Work => "too many values to check against the tool's schema; send fewer per call".into(),
            Self::Depth => format!(
                "nested too deeply to check against the tool's schema (at most {MAX_ARGUMENT_CHECK_DEPTH} levels of \
                 schemas); send a flatter value"
            ),
            Self::Text => format!(
                "too much text to match against the patterns of the tool's schema (at most {MAX_MATCHED_BYTES} \
                 bytes per call, fewer with long patterns); send less per call"
            ),
            Self::Patterns => format!(
                "needs more than {MAX_MATCHED_PATTERNS} patterns of the tool's schema; send fewer properties per call"
            ),
        }
    }
}

/// The steps left for the whole check, and the steps that the schema has taken for the current value.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    at_value: usize,
    /// Whether the schema needed too many steps for a single value. If so, it may also be the cause of later
    /// exhaustion.
    is_schema_faulty: bool,
}

impl Budget {
    pub(super) fn for_input(input: &Value) -> Self {
        let more = count(input).saturating_mul(ARGUMENT_CHECK_STEPS_PER_VALUE);
        Self { left: (ARGUMENT_CHECK_STEPS + more).min(MAX_ARGUMENT_CHECK_STEPS), at_value: 0, is_schema_faulty: false }
    }

    /// Starts counting for another value. Pass the returned count to [`Self::leave`] afterwards.
    pub(super) fn enter(&mut self) -> usize {
        std::mem::take(&mut self.at_value)
    }

    pub(super) fn leave(&mut self, before: usize) {
        self.at_value = before;
    }

    /// Spends steps on work that depends on the schema alone.
    pub(super) fn spend_on_schema(&mut self, steps: usize) -> Result<(), Verdict> {
        self.at_value = self.at_value.saturating_add(steps);
        if self.at_value > MAX_SCHEMA_STEPS_PER_VALUE {
            self.is_schema_faulty = true;
            return Err(Verdict::Unknown);
        }
        self.spend_on_input(steps)
    }

    /// Spends steps on work that grows with the input.
    pub(super) fn spend_on_input(&mut self, steps: usize) -> Result<(), Verdict> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        match left {
            Some(_) => Ok(()),
            None if self.is_schema_faulty => Err(Verdict::Unknown),
            None => Err(Verdict::InputTooLarge),
        }
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.left
    }
}

/// Counts the values of an input, as far as they change its budget. Not recursive, because inputs may nest deeply.
pub(super) fn count(input: &Value) -> usize {
    let mut values = vec![input];
    let mut counted = 0;
    while let Some(value) = values.pop() {
        counted += 1;
        let room = MAX_COUNTED.saturating_sub(counted + values.len());
        match value {
            Value::Array(items) => values.extend(items.iter().take(room)),
            Value::Object(fields) => values.extend(fields.values().take(room)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ARGUMENT_CHECK_STEPS, Budget, MAX_ARGUMENT_CHECK_STEPS, MAX_COUNTED, count};
    use crate::arguments::verdict::Verdict;

    #[test]
    fn the_budget_grows_with_the_input_up_to_a_bound() {
        assert_eq!(count(&json!({"a": [1, 2], "b": null})), 5);
        assert_eq!(count(&json!(vec![vec![0; 100]; 1_000])), MAX_COUNTED);
        assert_eq!(Budget::for_input(&json!(1)).left(), ARGUMENT_CHECK_STEPS + 1_000);
        assert_eq!(Budget::for_input(&json!(vec![0; 200_000])).left(), MAX_ARGUMENT_CHECK_STEPS);
    }

    #[test]
    fn the_schema_is_at_fault_if_one_value_costs_too_much_and_the_input_otherwise() {
        let mut budget = Budget::for_input(&json!(1));
        assert_eq!(budget.spend_on_input(ARGUMENT_CHECK_STEPS), Ok(()));
        assert_eq!(budget.spend_on_input(ARGUMENT_CHECK_STEPS), Err(Verdict::InputTooLarge));
        assert_eq!(budget.spend_on_schema(1), Err(Verdict::InputTooLarge));
        let mut budget = Budget::for_input(&json!(1));
        let before = budget.enter();
        assert_eq!(budget.spend_on_schema(50_000), Ok(()));
        assert_eq!(budget.spend_on_schema(1), Err(Verdict::Unknown));
        budget.leave(before);
        assert_eq!(budget.spend_on_schema(1), Ok(()));
        assert_eq!(budget.spend_on_input(ARGUMENT_CHECK_STEPS), Err(Verdict::Unknown));
    }
}
