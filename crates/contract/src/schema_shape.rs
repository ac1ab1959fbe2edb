//! Checks that a JSON Schema is one: that types exist, `required` is a list of names, and so on.
//!
//! Arguments are checked leniently against the schemas of MCP servers: a part that cannot be understood checks nothing,
//! because a faulty schema must not make its tool uncallable. The author of a plugin or of a program that embeds Cellmate
//! can correct the schema, so these are refused.

use serde_json::Value;

use crate::config::{ConfigError, Path};

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Keywords whose value is a schema.
const SCHEMA: [&str; 11] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
const SCHEMAS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords whose value is an object of schemas.
const NAMED_SCHEMAS: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

/// Keywords whose value is a number that is not negative.
const COUNTS: [&str; 6] = ["maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"];

const NUMBERS: [&str; 3] = ["maximum", "minimum", "multipleOf"];

const TEXTS: [&str; 3] = ["$ref", "description", "pattern"];

/// Checks the schema of a tool's input, which is always an object. `path` is the schema's path in errors.
pub fn check_input_schema(schema: &Value, path: &Path) -> Result<(), ConfigError> {
    let expected = "a JSON Schema for an object, such as `{\"type\": \"object\", \"properties\": {}}`";
    if !schema.is_object() {
        return Err(ConfigError::wrong_value(path, schema, expected));
    }
    check_schema(schema, path)?;
    let accepts_objects = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|word| word == "object"),
        Some(word) => word == "object",
        None => true,
    };
    match schema.get("type").filter(|_| !accepts_objects) {
        Some(found) => {
            Err(ConfigError::wrong_value(&path.child("type"), found, "`object`, because a tool's input is an object"))
        }
        None => Ok(()),
    }
}

/// Checks a schema and all schemas in it. `path` is the schema's path in errors.
pub fn check_schema(schema: &Value, path: &Path) -> Result<(), ConfigError> {
    let fields = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(fields) => fields,
        _ => return Err(ConfigError::wrong_value(path, schema, "a JSON Schema: an object, `true` or `false`")),
    };
    for (key, value) in fields {
        check_keyword(key, value, &path.child(key))?;
    }
    Ok(())
}

fn check_keyword(key: &str, value: &Value, path: &Path) -> Result<(), ConfigError> {
    let expect = |is_right: bool, expected: &str| match is_right {
        true => Ok(()),
        false => Err(ConfigError::wrong_value(path, value, expected)),
    };
    match (key, value) {
        ("type", Value::Array(types)) if !types.is_empty() => {
            each(types).try_for_each(|(position, word)| check_type(word, &path.item(position)))
        }
        ("type", word) => check_type(word, path),
        ("required", _) => {
            let names = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
            expect(names, "a list of names, such as `[\"city\"]`")
        }
        ("enum", _) => expect(value.is_array(), "a list of values"),
        // Older drafts have a list of schemas here.
        ("items", Value::Array(schemas)) => {
            each(schemas).try_for_each(|(position, schema)| check_schema(schema, &path.item(position)))
        }
        // Older drafts have a switch here.
        ("exclusiveMaximum" | "exclusiveMinimum", _) => expect(value.is_number() || value.is_boolean(), "a number"),
        _ if SCHEMA.contains(&key) => check_schema(value, path),
        (_, Value::Array(schemas)) if SCHEMAS.contains(&key) && !schemas.is_empty() => {
            each(schemas).try_for_each(|(position, schema)| check_schema(schema, &path.item(position)))
        }
        _ if SCHEMAS.contains(&key) => expect(false, "a list of JSON Schemas"),
        (_, Value::Object(schemas)) if NAMED_SCHEMAS.contains(&key) => {
            schemas.iter().try_for_each(|(name, schema)| check_schema(schema, &path.child(name)))
        }
        _ if NAMED_SCHEMAS.contains(&key) => expect(false, "an object with a JSON Schema for each name"),
        _ if COUNTS.contains(&key) => {
            expect(value.as_f64().is_some_and(|number| number >= 0.0), "a number that is not negative")
        }
        _ if NUMBERS.contains(&key) => expect(value.is_number(), "a number"),
        _ if TEXTS.contains(&key) => expect(value.is_string(), "a text"),
        _ => Ok(()),
    }
}

fn each(values: &[Value]) -> impl Iterator<Item = (usize, &Value)> {
    values.iter().enumerate()
}

fn check_type(word: &Value, path: &Path) -> Result<(), ConfigError> {
    if word.as_str().is_some_and(|word| TYPES.contains(&word)) {
        return Ok(());
    }
    let expected = "a type of JSON Schema: `object`, `array`, `string`, `number`, `integer`, `boolean` or `null`, or a list of them";
    Err(ConfigError::unknown_word(path, word, expected, TYPES))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check_input_schema, check_schema};
    use crate::config::Path;

    fn input_error(schema: &Value) -> String {
        check_input_schema(schema, &Path::root("schema")).map_err(|error| error.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn a_broken_schema_is_refused_with_the_place_and_what_is_expected() {
        let cases = [
            (json!("nonsense"), "`schema`: expected a JSON Schema for an object"),
            (json!(true), "`schema`: expected a JSON Schema for an object"),
            (json!({"type": "string"}), "`schema.type`: expected `object`"),
            (json!({"type": ["string", "null"]}), "`schema.type`: expected `object`"),
            (json!({"type": []}), "`schema.type`: expected a type"),
            (json!({"properties": {"a": {"type": "strin"}}}), "`schema.properties.a.type`: expected a type"),
            (json!({"properties": {"a": {"type": "strin"}}}), "did you mean `string`?"),
            (json!({"properties": {"a": {"type": ["null", 7]}}}), "`schema.properties.a.type[1]`"),
            (json!({"required": "a"}), "`schema.required`: expected a list of names"),
            (json!({"required": [1]}), "`schema.required`"),
            (json!({"properties": ["a"]}), "`schema.properties`: expected an object"),
            (json!({"properties": {"a": "string"}}), "`schema.properties.a`: expected a JSON Schema"),
            (json!({"anyOf": {}}), "`schema.anyOf`: expected a list"),
            (json!({"anyOf": [{"type": "text"}]}), "`schema.anyOf[0].type`"),
            (json!({"$defs": {"x": {"items": {"enum": 1}}}}), "`schema[\"$defs\"].x.items.enum`"),
            (json!({"properties": {"a": {"minLength": "3"}}}), "`schema.properties.a.minLength`"),
            (json!({"properties": {"a": {"maximum": "3"}}}), "`schema.properties.a.maximum`"),
            (json!({"properties": {"a": {"pattern": 3}}}), "`schema.properties.a.pattern`"),
        ];
        for (schema, expected) in cases {
            let found = input_error(&schema);
            assert!(found.contains(expected), "{schema}: {found}");
        }
    }

    #[test]
    fn schemas_of_any_draft_and_unknown_keywords_are_accepted() {
        let schemas = [
            json!({}),
            json!({"type": ["object", "null"]}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/x", "$defs": {"x": true}}),
            json!({"type": "object", "properties": {"type": {"type": "string"}, "required": {"const": "type"}}}),
            json!({"properties": {"a": {"items": [{"type": "integer"}], "minimum": 0, "exclusiveMinimum": true}}}),
            json!({"additionalProperties": false, "x-order": 3, "default": "x", "examples": "x", "nullable": true}),
        ];
        for schema in schemas {
            assert_eq!(input_error(&schema), "", "{schema}");
        }
        assert!(check_schema(&json!({"type": "string"}), &Path::root("schema")).is_ok());
    }
}
