//! JSON Schemas of requests and responses, in the subset that this interface uses.

use serde_json::{Map, Value, json};

/// Whether an object always has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
}

use Presence::{Optional, Required};

/// Returns the schema of an object with these fields and no others.
pub(crate) fn object(fields: &[(&str, Presence, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, _, schema)| ((*name).to_owned(), schema.clone())).collect();
    let required: Vec<&str> =
        fields.iter().filter(|(_, presence, _)| *presence == Required).map(|(name, ..)| *name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Returns the schema of an object with any further fields.
pub(crate) fn open_object(fields: &[(&str, Presence, Value)]) -> Value {
    let mut schema = object(fields);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("additionalProperties".to_owned(), Value::Bool(true));
    }
    schema
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

pub(crate) fn short_text(max: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": max})
}

pub(crate) fn integer() -> Value {
    json!({"type": "integer"})
}

pub(crate) fn boolean() -> Value {
    json!({"type": "boolean"})
}

/// Returns the schema of any JSON value.
pub(crate) fn any() -> Value {
    json!({})
}

pub(crate) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

pub(crate) fn nullable_text() -> Value {
    json!({"type": ["string", "null"]})
}

pub(crate) fn nullable_integer() -> Value {
    json!({"type": ["integer", "null"]})
}

pub(crate) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// Returns the schema of a page of these items.
pub(crate) fn page(items: Value) -> Value {
    object(&[("items", Required, list(items)), ("nextCursor", Required, nullable_text())])
}

/// Returns the schema of an error's body.
pub(crate) fn error() -> Value {
    let error = open_object(&[("type", Required, text()), ("message", Required, text())]);
    open_object(&[("error", Required, error)])
}

/// Returns the schema of the result of an abort.
pub(crate) fn aborted() -> Value {
    object(&[("aborted", Required, boolean())])
}

/// Returns the schema of a request that has no fields.
pub(crate) fn nothing() -> Value {
    object(&[("reason", Optional, short_text(super::limits::MAX_NOTE_CHARS))])
}
