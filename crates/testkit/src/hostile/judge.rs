//! Compares a cell's outcome, wall time and tool effects with those that the index allows.

use std::time::Duration;

use contract::cell::CellResult;
use serde_json::Value;

use super::fixture::Effects;
use super::index::{Cell, Expectation};

pub(super) fn expectation(cell: &Cell, result: &CellResult) -> Option<String> {
    let met = cell.expect.iter().any(|expected| matches(expected, result));
    (!met).then(|| "unexpected outcome".to_owned())
}

pub(super) fn side_effects(cell: &Cell, effects: &Effects) -> Vec<String> {
    let wrong = cell.side_effects.iter().filter_map(|(id, times)| {
        let count = effects.count(id);
        let fits = times.min.is_none_or(|min| count >= min) && times.max.is_none_or(|max| count <= max);
        (!fits).then(|| format!("`{id}` took effect {count} times"))
    });
    wrong.collect()
}

pub(super) fn wall(cell: &Cell, wall: Duration, time_factor: u32) -> Option<String> {
    let allowed = Duration::from_millis(cell.max_wall_ms) * time_factor;
    (wall > allowed).then(|| format!("the cell took {} ms; the limit is {} ms", wall.as_millis(), allowed.as_millis()))
}

fn matches(expected: &Expectation, result: &CellResult) -> bool {
    match (expected.status.as_str(), result) {
        ("completed", CellResult::Completed { value, .. }) => {
            // If no value is specified, any is accepted, even one that is too deep to parse here.
            let Ok(value) = serde_json::from_str::<Value>(value.get()) else {
                return expected.value.is_none() && expected.value_subset.is_none();
            };
            expected.value.as_ref().is_none_or(|wanted| equal(wanted, &value))
                && expected.value_subset.as_ref().is_none_or(|wanted| contains(&value, wanted))
        }
        ("failed", CellResult::Failed { code, .. }) => {
            let code = code.map(|code| code.as_str());
            expected.code.as_ref().is_none_or(|codes| codes.iter().any(|wanted| wanted.as_deref() == code))
        }
        ("waiting", CellResult::Waiting { .. }) => true,
        _ => false,
    }
}

/// Compares values like JavaScript: 1 and 1.0 are equal.
fn equal(wanted: &Value, got: &Value) -> bool {
    match (wanted, got) {
        (Value::Number(wanted), Value::Number(got)) => wanted == got || wanted.as_f64() == got.as_f64(),
        (Value::Array(wanted), Value::Array(got)) => {
            wanted.len() == got.len() && wanted.iter().zip(got).all(|(wanted, got)| equal(wanted, got))
        }
        (Value::Object(wanted), Value::Object(got)) => {
            wanted.len() == got.len()
                && wanted.iter().all(|(key, wanted)| got.get(key).is_some_and(|got| equal(wanted, got)))
        }
        _ => wanted == got,
    }
}

/// Whether `got` contains `wanted`: objects may have more fields, arrays more items in any order.
fn contains(got: &Value, wanted: &Value) -> bool {
    match (got, wanted) {
        (Value::Object(got), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| got.get(key).is_some_and(|got| contains(got, wanted)))
        }
        (Value::Array(got), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| got.iter().any(|got| contains(got, wanted)))
        }
        _ => equal(wanted, got),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{contains, equal};

    #[test]
    fn subsets_are_contained_and_values_are_compared_numerically() {
        assert!(contains(&json!({"a": 1, "b": [1, {"c": 2, "d": 3}]}), &json!({"b": [{"c": 2}]})));
        assert!(!contains(&json!({"a": 1}), &json!({"a": 2})));
        assert!(equal(&json!({"a": 1, "b": [2]}), &json!({"b": [2.0], "a": 1})));
        assert!(!equal(&json!([1]), &json!([1, 2])));
    }
}
