//! `enum` and `const`: values as literal types, as many as are useful.

use serde_json::Value;

use super::super::shape::{Object, Type, Word, union};
use super::Builder;
use crate::text::quoted;

/// The maximum length of a literal; for a longer value, its kind is shown.
const MAX_LITERAL: usize = 120;

/// The maximum number of omitted enum values that are inspected.
const MAX_VALUES: usize = 4096;

/// A reference to at most this many values is shown in place.
const MAX_SHORT: usize = 6;

/// Returns the literal type of a scalar; for other values, the type of their kind.
pub(super) fn of<'a>(value: &Value) -> Type<'a> {
    match value {
        Value::String(text) if text.len() > MAX_LITERAL => Type::Word(Word::String),
        Value::String(text) => Type::Literal(Word::String, quoted(text)),
        Value::Number(number) => Type::Literal(Word::Number, number.to_string()),
        Value::Bool(truth) => Type::Literal(Word::Boolean, truth.to_string()),
        Value::Null => Type::Word(Word::Null),
        Value::Array(_) => Type::Array(Box::new(Type::UNKNOWN)),
        Value::Object(_) => Type::Object(Object::default()),
    }
}

impl<'a> Builder<'a> {
    /// Returns the union of the values while they are few enough, then the word for the rest.
    pub(super) fn literals(&mut self, values: &[Value], declared: Option<&Value>) -> Type<'a> {
        let mut members = Vec::new();
        let mut bytes = 0;
        for value in values {
            let member = of(value);
            bytes += if let Type::Literal(_, text) = &member { text.len() + 3 } else { 8 };
            if bytes > self.detail.literal_bytes || !self.step() {
                break;
            }
            members.push(member);
        }
        let left = values.get(members.len()..).unwrap_or_default();
        if !left.is_empty() {
            self.is_cut = true;
            let word = match declared.and_then(Value::as_str) {
                Some("string") => Word::String,
                Some("number" | "integer") => Word::Number,
                _ => common_word(left),
            };
            members.push(Type::More(word, left.len()));
        }
        union(members)
    }
}

/// Returns the word that covers all the values, or `unknown`.
fn common_word(values: &[Value]) -> Word {
    let word = |value: &Value| match value {
        Value::String(_) => Word::String,
        Value::Number(_) => Word::Number,
        Value::Bool(_) => Word::Boolean,
        Value::Null => Word::Null,
        Value::Array(_) | Value::Object(_) => Word::Unknown,
    };
    let first = values.first().map_or(Word::Unknown, word);
    if values.len() <= MAX_VALUES && values.iter().all(|value| word(value) == first) { first } else { Word::Unknown }
}

/// Returns whether a schema is as short in place as by a name.
pub(super) fn is_short(schema: &Value) -> bool {
    const LONG: [&str; 9] = [
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "properties",
        "patternProperties",
        "additionalProperties",
        "items",
        "prefixItems",
    ];
    LONG.iter().all(|key| schema.get(key).is_none())
        && schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.len() <= MAX_SHORT)
}
