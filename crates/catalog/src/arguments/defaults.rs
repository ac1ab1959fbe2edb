//! Default values for properties that the input does not have.

use serde_json::Value;

use super::pattern::KnownPatterns;
use super::verdict::Verdict;
use super::walk::Walk;
use crate::reference;

/// The maximum number of properties checked for a default.
const MAX_PROPERTIES: usize = 1_000;

/// The maximum number of values inside one default. Copying is recursive and costs memory, so larger defaults are left
/// to the tool.
const MAX_VALUES: usize = 1_000;

/// The maximum length of the texts and property names inside one default.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The maximum nesting depth of one default.
const MAX_LEVELS: usize = 32;

/// Returns the input with the `default` of each missing top-level property filled in.
///
/// A default that its own schema rejects, such as `null` for a string, is skipped, and so is one that is too large to
/// copy. An input that is not an object is returned unchanged.
pub fn with_defaults(schema: &Value, mut input: Value) -> Value {
    let Some(fields) = input.as_object_mut() else { return input };
    let known = KnownPatterns::default();
    let mut walk = Walk::new(schema, &known);
    for (name, property) in properties(schema).into_iter().flatten().take(MAX_PROPERTIES) {
        let Some(default) = property.get("default").filter(|_| !fields.contains_key(name)) else { continue };
        if is_small(default) && matches!(walk.trial(property, default).0, Verdict::Fits | Verdict::Unknown) {
            fields.insert(name.clone(), default.clone());
        }
    }
    input
}

fn properties(schema: &Value) -> Option<&serde_json::Map<String, Value>> {
    let own = schema.get("properties");
    // Generators often put the whole schema under `$defs`.
    own.or_else(|| reference::follow(schema, schema.get("$ref")?)?.get("properties"))?.as_object()
}

fn is_small(value: &Value) -> bool {
    let mut values = vec![(value, 0)];
    let mut bytes = 0;
    for _ in 0..MAX_VALUES {
        let Some((value, level)) = values.pop() else { return bytes <= MAX_TEXT_BYTES };
        if level > MAX_LEVELS {
            return false;
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => values.extend(items.iter().take(MAX_VALUES).map(|item| (item, level + 1))),
            Value::Object(fields) => {
                for (name, field) in fields.iter().take(MAX_VALUES) {
                    bytes += name.len();
                    values.push((field, level + 1));
                }
            }
        }
    }
    false
}
