//! A sample answer to the form of a tool's question, so that the user does not have to read its JSON Schema.

use mcp::server::plain;
use serde_json::{Map, Value, json};

/// The most fields that a sample has; required ones come first.
const MAX_FIELDS: usize = 12;

/// The longest sample.
const MAX_CHARS: usize = 1_000;

/// Returns an answer to a form as one line of JSON. Its values have the right types, but the user must choose them.
pub(super) fn sample_answer(form: &Value) -> String {
    let required: Vec<&str> =
        form.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = form.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut fields: Vec<(&String, &Value)> = fields.collect();
    fields.sort_by_key(|(name, _)| !required.contains(&name.as_str()));
    let fields = fields.into_iter().take(MAX_FIELDS.max(required.len()));
    let answer: Map<String, Value> = fields.map(|(name, field)| (name.clone(), sample(field))).collect();
    plain(&Value::Object(answer).to_string(), MAX_CHARS)
}

/// Returns a value for one field: its default, its first choice, or the simplest value of its type.
fn sample(field: &Value) -> Value {
    let first = |list: &str| field.get(list)?.as_array()?.first().cloned();
    let choice = || first("oneOf").or_else(|| first("anyOf")).and_then(|choice| choice.get("const").cloned());
    let given = field.get("default").or_else(|| field.get("const")).cloned();
    if let Some(value) = given.or_else(|| first("enum")).or_else(choice) {
        return value;
    }
    match field.get("type").and_then(Value::as_str) {
        Some("boolean") => json!(true),
        Some("integer" | "number") => field.get("minimum").cloned().unwrap_or(json!(1)),
        Some("array") => json!([field.get("items").map_or(json!("text"), sample)]),
        Some("object") => json!({}),
        _ => match field.get("format").and_then(Value::as_str) {
            Some("email") => json!("name@example.com"),
            Some("uri") => json!("https://example.com"),
            Some("date") => json!("2026-01-31"),
            Some("date-time") => json!("2026-01-31T12:00:00Z"),
            _ => json!("text"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAX_CHARS, sample_answer};

    #[test]
    fn a_sample_has_every_field_with_a_value_of_its_type() {
        let form = json!({
            "type": "object",
            "required": ["sure", "count"],
            "properties": {
                "note": {"type": "string"},
                "email": {"type": "string", "format": "email"},
                "color": {"type": "string", "enum": ["red", "green"]},
                "size": {"oneOf": [{"const": "s", "title": "Small"}]},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
                "level": {"type": "integer", "default": 3},
                "count": {"type": "integer", "minimum": 2},
                "sure": {"type": "boolean"},
            },
        });
        let sample: serde_json::Value = serde_json::from_str(&sample_answer(&form)).unwrap();
        let expected = json!({
            "sure": true, "count": 2, "note": "text", "email": "name@example.com", "color": "red", "size": "s",
            "tags": ["a"], "level": 3,
        });
        assert_eq!(sample, expected);
    }

    #[test]
    fn a_hostile_form_gives_a_short_line_without_control_characters() {
        let names = (0..1_000).map(|number| (format!("\u{202e}{number}\n"), json!({"default": "x".repeat(9_999)})));
        let form = json!({"properties": names.collect::<serde_json::Map<_, _>>(), "required": "all"});
        let sample = sample_answer(&form);
        assert!(sample.chars().count() <= MAX_CHARS + 100 && !sample.contains(['\u{202e}', '\n']), "{sample}");
        assert_eq!(sample_answer(&json!(null)), "{}");
    }
}
