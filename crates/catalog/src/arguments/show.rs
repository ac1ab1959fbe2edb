//! Short descriptions of values and schemas for a model.

use serde_json::{Map, Value};

const MAX_VALUE_BYTES: usize = 60;
const MAX_LIST_BYTES: usize = 120;

/// Describes a value: scalars by their value, others by their kind.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text, MAX_VALUE_BYTES),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Quotes a text in at most `limit` bytes, with invisible characters escaped.
pub(super) fn quoted(text: &str, limit: usize) -> String {
    let whole = format!("{:?}", head(text, limit));
    if whole.len() <= limit && text.len() <= limit {
        return whole;
    }
    // An escape may be cut, too: `\u{20…` says as much as all of it would.
    let kept = whole.strip_suffix('"').unwrap_or(&whole);
    format!("{}…\"", head(kept, limit.saturating_sub("…\"".len())))
}

/// Joins as many items as fit, with commas.
pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    let mut list = String::new();
    for item in items {
        let gap = if list.is_empty() { "" } else { ", " };
        if !list.is_empty() && list.len() + gap.len() + item.len() > MAX_LIST_BYTES {
            list.push_str(", …");
            break;
        }
        list.push_str(gap);
        list.push_str(&item);
    }
    list
}

/// Returns the kind of value that a property's schema expects, if a few words can say it.
pub(super) fn expected(keywords: &Map<String, Value>) -> Option<String> {
    if let Some(literal) = keywords.get("const") {
        return Some(value(literal));
    }
    if let Some(literals) = keywords.get("enum").and_then(Value::as_array) {
        return Some(one_of(literals));
    }
    types(keywords.get("type")?)
}

pub(super) fn one_of(literals: &[Value]) -> String {
    match literals {
        [literal] => value(literal),
        literals => format!("one of {}", list(literals.iter().map(value))),
    }
}

fn types(word: &Value) -> Option<String> {
    let words = if let Value::Array(words) = word { words.as_slice() } else { std::slice::from_ref(word) };
    // Text from a server is quoted wherever it is shown. A type is not quoted, so it must be a plain word.
    let is_plain = |word: &&str| word.len() <= 16 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let words: Vec<_> = words.iter().take(8).filter_map(Value::as_str).filter(is_plain).collect();
    (!words.is_empty()).then(|| words.join(" or "))
}

/// Returns the text, or its beginning and `…` in at most `limit` bytes.
pub(super) fn cut(text: String, limit: usize) -> String {
    if text.len() <= limit { text } else { format!("{}…", head(&text, limit.saturating_sub("…".len()))) }
}

/// Returns at most `limit` bytes of the text, in whole characters.
fn head(text: &str, limit: usize) -> &str {
    let end = text.floor_char_boundary(limit);
    text.get(..end).unwrap_or_default()
}
