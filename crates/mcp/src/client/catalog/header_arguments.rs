//! Arguments that a tool's schema marks with `x-mcp-header`: over HTTP they are also sent in headers.

use std::collections::BTreeSet;

use serde_json::Value;

/// How deep nested objects are searched for such arguments.
const MAX_DEPTH: usize = 8;

const MARK: &str = "x-mcp-header";

/// Returns the marked arguments of one call with their header names.
pub(crate) fn header_arguments(schema: &Value, input: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(schema, input, MAX_DEPTH, &mut found);
    found
}

fn collect(schema: &Value, input: &Value, depth: usize, found: &mut Vec<(String, String)>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|_| depth > 0) else { return };
    for (name, property) in properties {
        let Some(value) = input.get(name) else { continue };
        let header = property.get(MARK).and_then(Value::as_str);
        let text = match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        if let (Some(header), Some(text)) = (header, text) {
            found.push((header.to_owned(), text));
        }
        collect(property, value, depth - 1, found);
    }
}

/// Checks that the marks can be followed. A tool with invalid marks must not be called over HTTP: its server, or a
/// proxy in front of it, would decide by a header that is missing.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    check_level(schema, MAX_DEPTH, &mut BTreeSet::new())
}

fn check_level(schema: &Value, depth: usize, seen: &mut BTreeSet<String>) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|_| depth > 0) else {
        return Ok(());
    };
    for property in properties.values() {
        if let Some(mark) = property.get(MARK) {
            let header = mark.as_str().filter(|header| !header.is_empty() && header.chars().all(is_token));
            let header = header.ok_or_else(|| format!("its schema has an `{MARK}` that is not a valid header name"))?;
            if !matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
                return Err(format!(
                    "its schema has an `{MARK}` on a property that is not a string, integer or boolean"
                ));
            }
            if !seen.insert(header.to_ascii_lowercase()) {
                return Err(format!("its schema uses an `{MARK}` twice"));
            }
        }
        check_level(property, depth - 1, seen)?;
    }
    Ok(())
}

/// Returns true for characters that are allowed in a header name.
fn is_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check, header_arguments};

    fn schema(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    #[test]
    fn marked_arguments_are_sent_in_headers() {
        let schema = schema(json!({
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"dry": {"type": "boolean", "x-mcp-header": "Dry"}}},
            "other": {"type": "string"},
        }));
        assert_eq!(check(&schema), Ok(()));
        let found = header_arguments(&schema, &json!({"region": "eu", "deep": {"dry": true}, "other": "x"}));
        assert_eq!(found, [("Region".to_owned(), "eu".to_owned()), ("Dry".to_owned(), "true".to_owned())]);
    }

    #[test]
    fn invalid_marks_are_rejected() {
        for bad in [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": "a b"}}),
            json!({"a": {"type": "string", "x-mcp-header": "a\r\nb: c"}}),
            json!({"a": {"type": "string", "x-mcp-header": 7}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "object", "x-mcp-header": "A"}}),
            json!({"a": {"x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
        ] {
            assert!(check(&schema(bad.clone())).is_err(), "{bad}");
        }
    }
}
