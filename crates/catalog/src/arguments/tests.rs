//! What is said of arguments, and that no schema can make saying it dear.

mod bounds;
mod junk;
mod messages;

use serde_json::{Map, Value};

use super::check;

/// What is wrong, or nothing.
fn verdict(schema: &Value, input: &Value) -> String {
    check(schema, input).err().map(|bad| bad.to_string()).unwrap_or_default()
}

fn run(cases: &[(Value, Value, &str)]) {
    for (schema, input, expected) in cases {
        assert_eq!(verdict(schema, input), *expected, "{schema} {input}");
    }
}

/// Without `json!`, which copies what it wraps.
fn wrapped(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}
