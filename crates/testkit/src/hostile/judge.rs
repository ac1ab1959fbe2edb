//! Was it one of the outcomes the index allows, in time, with the effects it allows?

use std::time::Duration;

use contract::cell::CellResult;
use serde_json::Value;

use super::fixture::Effects;
use super::index::{Cell, Expectation};

pub fn expectation(cell: &Cell, result: &CellResult) -> Option<String> {
    let met = cell.expect.iter().any(|expected| matches(expected, result));
    (!met).then(|| "another outcome was expected".to_owned())
}

pub fn side_effects(cell: &Cell, effects: &Effects) -> Vec<String> {
    let wrong = cell.side_effects.iter().filter_map(|(id, times)| {
        let count = effects.count(id);
        let fits = times.min.is_none_or(|min| count >= min) && times.max.is_none_or(|max| count <= max);
        (!fits).then(|| format!("`{id}` had its effect {count} times"))
    });
    wrong.collect()
}

pub fn wall(cell: &Cell, wall: Duration, slack: u32) -> Option<String> {
    let allowed = Duration::from_millis(cell.max_wall_ms) * slack;
    (wall > allowed).then(|| format!("it took {} ms of {}", wall.as_millis(), allowed.as_millis()))
}

fn matches(expected: &Expectation, result: &CellResult) -> bool {
    match (expected.status.as_str(), result) {
        ("completed", CellResult::Completed { value, .. }) => {
            // Without a wish any value will do, one that is too deep to be read here among them.
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

/// As JavaScript has it: 1 and 1.0 are one number.
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

/// Objects may have more; a list has each wanted item somewhere.
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
    fn a_subset_is_contained_and_a_value_is_equal() {
        assert!(contains(&json!({"a": 1, "b": [1, {"c": 2, "d": 3}]}), &json!({"b": [{"c": 2}]})));
        assert!(!contains(&json!({"a": 1}), &json!({"a": 2})));
        assert!(equal(&json!({"a": 1, "b": [2]}), &json!({"b": [2.0], "a": 1})));
        assert!(!equal(&json!([1]), &json!([1, 2])));
    }
}
