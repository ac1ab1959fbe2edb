//! The messages of the argument check, and its cost for hostile schemas and inputs.

mod bounds;
mod junk;
mod messages;

use serde_json::{Map, Value};

use super::check;

/// The message of a failed check, or an empty string.
fn verdict(schema: &Value, input: &Value) -> String {
    check(schema, input).err().map(|bad| bad.to_string()).unwrap_or_default()
}

fn run(cases: &[(Value, Value, &str)]) {
    for (schema, input, expected) in cases {
        assert_eq!(verdict(schema, input), *expected, "{schema} {input}");
    }
}

/// Wraps a value in an object without `json!`, which would copy the value.
fn wrapped(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}
