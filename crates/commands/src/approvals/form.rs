//! The form of a tool's question, as a list of fields and with a sample answer, so that the user does not have to read its
//! JSON Schema.

use mcp::server::plain;
use serde_json::{Map, Value, json};

/// The most fields that are listed and that a sample has; required ones come first.
const MAX_FIELDS: usize = 40;

/// The longest sample.
const MAX_CHARS: usize = 4_000;

/// The longest description of a field, and the longest list of its choices.
const MAX_FIELD_CHARS: usize = 200;

/// Returns a line for each field: its name, its type or choices, and what it is for.
pub(super) fn field_list(form: &Value) -> String {
    let fields = fields(form);
    let mut text = String::new();
    for Field { name, schema, is_required } in fields.iter().take(MAX_FIELDS) {
        let about = ["title", "description"].iter().filter_map(|key| schema.get(*key)?.as_str());
        let about = about.collect::<Vec<_>>().join(": ");
        let about = if about.is_empty() { String::new() } else { format!(": {}", one_line(&about)) };
        let optional = if *is_required { "" } else { ", optional" };
        text += &format!("\n  {} ({}{optional}){about}", one_line(name), kind(schema));
    }
    match fields.len().saturating_sub(MAX_FIELDS) {
        0 => text,
        more => format!("{text}\n  and {more} more"),
    }
}

/// Returns an answer to a form as one line of JSON. Its values have the right types, but the user must choose them.
pub(super) fn sample_answer(form: &Value) -> String {
    let fields = fields(form);
    let answer: Map<String, Value> =
        fields.iter().take(MAX_FIELDS).map(|field| (field.name.to_owned(), sample(field.schema))).collect();
    plain(&Value::Object(answer).to_string(), MAX_CHARS)
}

/// A field of a form.
struct Field<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
}

/// Returns the fields of a form, required ones first.
fn fields(form: &Value) -> Vec<Field<'_>> {
    let required: Vec<&str> =
        form.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = form.get("properties").and_then(Value::as_object).into_iter().flatten();
    let field = |(name, schema)| Field { name, schema, is_required: required.contains(&name) };
    let mut fields: Vec<Field<'_>> = properties.map(|(name, schema)| field((name.as_str(), schema))).collect();
    fields.sort_by_key(|field| !field.is_required);
    fields
}

/// Returns the choices of a field, or its type.
fn kind(schema: &Value) -> String {
    let items = schema.get("items").filter(|_| schema.get("type").is_some_and(|kind| kind == "array"));
    if let Some(items) = items {
        return format!("list of {}", kind(items));
    }
    let list = |name: &str| schema.get(name)?.as_array();
    let values = list("enum").map(|values| values.iter().collect::<Vec<_>>());
    let consts = || {
        let choices = list("oneOf").or_else(|| list("anyOf"))?;
        Some(choices.iter().filter_map(|choice| choice.get("const")).collect::<Vec<_>>())
    };
    match values.or_else(consts).filter(|values| !values.is_empty()) {
        Some(values) => one_line(&values.into_iter().map(Value::to_string).collect::<Vec<_>>().join(" | ")),
        None => one_line(schema.get("type").and_then(Value::as_str).unwrap_or("any")),
    }
}

fn one_line(text: &str) -> String {
    plain(&text.replace(['\n', '\r'], " "), MAX_FIELD_CHARS)
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

    use super::{MAX_CHARS, field_list, sample_answer};

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
    fn fields_are_listed_with_their_types_and_choices_and_required_ones_first() {
        let form = json!({
            "required": ["sure"],
            "properties": {
                "color": {"type": "string", "enum": ["red", "green"], "title": "Color", "description": "of the\ndoor"},
                "tags": {"type": "array", "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}},
                "sure": {"type": "boolean", "description": "Really?"},
                "free": {},
            },
        });
        let expected = r#"
  sure (boolean): Really?
  color ("red" | "green", optional): Color: of the door
  tags (list of "a" | "b", optional)
  free (any, optional)"#;
        assert_eq!(field_list(&form), expected);
    }

    #[test]
    fn a_hostile_form_gives_a_short_line_without_control_characters() {
        let names = (0..1_000).map(|number| (format!("\u{202e}{number}\n"), json!({"default": "x".repeat(9_999)})));
        let form = json!({"properties": names.collect::<serde_json::Map<_, _>>(), "required": "all"});
        let sample = sample_answer(&form);
        assert!(sample.chars().count() <= MAX_CHARS + 100 && !sample.contains(['\u{202e}', '\n']), "{sample}");
        assert_eq!(sample_answer(&json!(null)), "{}");
        let list = field_list(&form);
        assert!(
            list.ends_with("\n  and 960 more") && list.lines().count() == 42 && !list.contains('\u{202e}'),
            "{list}"
        );
        assert_eq!(field_list(&json!(null)), "");
    }
}
