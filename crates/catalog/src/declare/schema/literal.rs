//! Converts the values of `enum` and `const` to literal types, up to a limit.

use serde_json::Value;

use super::super::shape::{Object, Type, Word, union};
use super::ShapeBuilder;
use crate::text::quoted;

/// The maximum length of a string literal in bytes. A longer string becomes the type `string`.
const MAX_LITERAL_BYTES: usize = 120;

/// The maximum number of omitted enum values for which a common type is looked for.
const MAX_COMPARED_VALUES: usize = 4096;

/// A `$ref` to an enum with at most this many values is inlined.
const MAX_INLINE_VALUES: usize = 6;

/// Returns the literal type of a scalar, and the general type of an array, object or long string.
pub(super) fn of<'a>(value: &Value) -> Type<'a> {
    match value {
        Value::String(text) if text.len() > MAX_LITERAL_BYTES => Type::Word(Word::String),
        Value::String(text) => Type::Literal(Word::String, quoted(text)),
        Value::Number(number) => Type::Literal(Word::Number, number.to_string()),
        Value::Bool(truth) => Type::Literal(Word::Boolean, truth.to_string()),
        Value::Null => Type::Word(Word::Null),
        Value::Array(_) => Type::Array(Box::new(Type::UNKNOWN)),
        Value::Object(_) => Type::Object(Object::default()),
    }
}

/// Returns the union of the values. Values beyond the limit become one member: their common type and their number.
pub(super) fn union_of<'a>(builder: &mut ShapeBuilder<'a>, values: &[Value], declared: Option<&Value>) -> Type<'a> {
    let mut members = Vec::new();
    let mut bytes = 0;
    for value in values {
        let member = of(value);
        // A literal counts with its separator ` | `, any other type as 8 bytes.
        bytes += if let Type::Literal(_, text) = &member { text.len() + 3 } else { 8 };
        if bytes > builder.detail.literal_bytes || !builder.step() {
            break;
        }
        members.push(member);
    }
    let omitted = values.get(members.len()..).unwrap_or_default();
    if !omitted.is_empty() {
        builder.is_cut = true;
        let word = match declared.and_then(Value::as_str) {
            Some("string") => Word::String,
            Some("number" | "integer") => Word::Number,
            _ => common_word(omitted),
        };
        members.push(Type::More(word, omitted.len()));
    }
    union(members)
}

/// Returns the type that all values have, or `unknown` if they differ or are too many to compare.
fn common_word(values: &[Value]) -> Word {
    let word = |value: &Value| match value {
        Value::String(_) => Word::String,
        Value::Number(_) => Word::Number,
        Value::Bool(_) => Word::Boolean,
        Value::Null => Word::Null,
        Value::Array(_) | Value::Object(_) => Word::Unknown,
    };
    let first = values.first().map_or(Word::Unknown, word);
    if values.len() <= MAX_COMPARED_VALUES && values.iter().all(|value| word(value) == first) {
        first
    } else {
        Word::Unknown
    }
}

/// Returns whether the target of a `$ref` is inlined instead of becoming a definition, because it is short.
pub(super) fn fits_inline(schema: &Value) -> bool {
    const COMPOUND: [&str; 9] = [
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
    COMPOUND.iter().all(|key| schema.get(key).is_none())
        && schema.get("enum").and_then(Value::as_array).is_none_or(|values| values.len() <= MAX_INLINE_VALUES)
}
