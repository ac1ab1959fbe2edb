//! The messages about arguments, and the bounds that no schema can exceed.

mod bounds;
mod junk;
mod messages;

use serde_json::{Map, Value};

use super::check;

/// Returns the problems, or an empty string.
fn verdict(schema: &Value, input: &Value) -> String {
    check(schema, input).err().map(|bad| bad.to_string()).unwrap_or_default()
}

fn run(cases: &[(Value, Value, &str)]) {
    for (schema, input, expected) in cases {
        assert_eq!(verdict(schema, input), *expected, "{schema} {input}");
    }
}

/// Wraps a value without `json!`, which would copy it.
fn wrapped(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}
