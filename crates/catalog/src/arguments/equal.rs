//! Whether two JSON values are the same, as JSON Schema means it: `1` is `1.0`, and order of names does not count.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::verdict::Verdict;
use super::walk::Walk;

/// Nobody writes literals that deep.
const MAX_LITERAL_DEPTH: usize = 16;

impl Walk<'_> {
    pub(super) fn equal(&mut self, left: &Value, right: &Value) -> Verdict {
        self.equal_within(left, right, MAX_LITERAL_DEPTH)
    }

    fn equal_within(&mut self, left: &Value, right: &Value, depth: usize) -> Verdict {
        if let Err(spent) = self.spend(1) {
            return spent;
        }
        match (left, right) {
            (Value::String(left), Value::String(right)) if left.len() == right.len() => {
                // Comparing reads them.
                match self.spend(left.len() / 1024) {
                    Ok(()) => (left == right).into(),
                    Err(spent) => spent,
                }
            }
            (Value::Number(left), Value::Number(right)) => (compare(left, right) == Some(Ordering::Equal)).into(),
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) if depth == 0 => Verdict::Unknown,
            (Value::Array(left), Value::Array(right)) => {
                let pairs = left.iter().zip(right).map(|(left, right)| (left, Some(right)));
                self.all_equal(left.len() == right.len(), pairs, depth)
            }
            (Value::Object(left), Value::Object(right)) => {
                let pairs = left.iter().map(|(name, value)| (value, right.get(name)));
                self.all_equal(left.len() == right.len(), pairs, depth)
            }
            (Value::Null, _) | (Value::Bool(_), _) | (Value::String(_), _) => (left == right).into(),
            (Value::Number(_) | Value::Array(_) | Value::Object(_), _) => Verdict::Fails,
        }
    }

    fn all_equal<'v>(
        &mut self,
        same_length: bool,
        pairs: impl Iterator<Item = (&'v Value, Option<&'v Value>)>,
        depth: usize,
    ) -> Verdict {
        let mut verdict = Verdict::from(same_length);
        for (left, right) in pairs {
            // The first difference decides; without this a long array would be read to its end.
            let Some(right) = right.filter(|_| verdict != Verdict::Fails) else { return Verdict::Fails };
            verdict = verdict.and(self.equal_within(left, right, depth - 1));
        }
        verdict
    }
}

/// Whether two values are equal. Recursive: for values that are known not to nest deep.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Some(Ordering::Equal),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let has = |(name, value): (&String, &Value)| right.get(name).is_some_and(|other| same(value, other));
            left.len() == right.len() && left.iter().all(has)
        }
        _ => left == right,
    }
}

/// Exact, whether numbers are written as integers or not. None for numbers that have no order, of which JSON has none.
pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        // A float with a fraction is far below where integers lose digits as floats.
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// The number, if it is an integer of up to 126 bits, however it is written.
pub(super) fn integer(number: &Number) -> Option<i128> {
    const BOUND: f64 = (1_u128 << 126) as f64;
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < BOUND);
    number.as_i128().or_else(|| float().map(|float| float as i128))
}
