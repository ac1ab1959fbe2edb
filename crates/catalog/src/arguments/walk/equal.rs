//! Equality of JSON values as JSON Schema defines it: `1` equals `1.0`, and the order of names does not matter.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::super::verdict::Verdict;
use super::Walk;

/// Literals in real schemas do not nest deeper.
const MAX_LITERAL_DEPTH: usize = 16;

pub(super) fn equal(walk: &mut Walk<'_>, left: &Value, right: &Value) -> Verdict {
    equal_within(walk, left, right, MAX_LITERAL_DEPTH)
}

fn equal_within(walk: &mut Walk<'_>, left: &Value, right: &Value, depth: usize) -> Verdict {
    if let Err(spent) = walk.spend(1) {
        return spent;
    }
    match (left, right) {
        (Value::String(left), Value::String(right)) if left.len() == right.len() => {
            // The comparison reads both texts.
            match walk.spend(left.len() / 1024) {
                Ok(()) => (left == right).into(),
                Err(spent) => spent,
            }
        }
        (Value::Number(left), Value::Number(right)) => (compare(left, right) == Some(Ordering::Equal)).into(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) if depth == 0 => Verdict::Unknown,
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| (left, Some(right)));
            all_equal(walk, left.len() == right.len(), pairs, depth)
        }
        (Value::Object(left), Value::Object(right)) => {
            let pairs = left.iter().map(|(name, value)| (value, right.get(name)));
            all_equal(walk, left.len() == right.len(), pairs, depth)
        }
        (Value::Null, _) | (Value::Bool(_), _) | (Value::String(_), _) => (left == right).into(),
        (Value::Number(_) | Value::Array(_) | Value::Object(_), _) => Verdict::Fails,
    }
}

fn all_equal<'v>(
    walk: &mut Walk<'_>,
    same_length: bool,
    pairs: impl Iterator<Item = (&'v Value, Option<&'v Value>)>,
    depth: usize,
) -> Verdict {
    let mut verdict = Verdict::from(same_length);
    for (left, right) in pairs {
        // Stop at the first difference; otherwise a long array would be read to its end.
        let Some(right) = right.filter(|_| verdict != Verdict::Fails) else { return Verdict::Fails };
        verdict = verdict.and(equal_within(walk, left, right, depth - 1));
    }
    verdict
}

/// Returns whether two values are equal. Recursive: only for values that are known not to nest deeply.
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

/// Compares exactly, whether or not the numbers are written as integers. `None` for numbers without an order, which
/// JSON does not have.
pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        // A float with a fraction is far below the size at which floats lose integer digits.
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// Returns the number if it is an integer of up to 126 bits, in any notation.
pub(super) fn integer(number: &Number) -> Option<i128> {
    const BOUND: f64 = (1_u128 << 126) as f64;
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < BOUND);
    number.as_i128().or_else(|| float().map(|float| float as i128))
}
