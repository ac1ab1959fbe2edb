//! Fields and the comments beside them.

use serde_json::json;

use super::function;

#[test]
fn facts_that_a_type_cannot_express_become_comments() {
    let cases = [
        (json!({"type": "integer"}), "number; // integer"),
        (json!({"type": ["integer", "null"]}), "number | null; // integer"),
        (json!({"type": "string", "format": "date-time"}), "string; // date-time"),
        (json!({"type": "number", "minimum": 1, "maximum": 9}), "number; // 1..9"),
        (json!({"type": "number", "minimum": 0.5}), "number; // >= 0.5"),
        (json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), "number; // > 0, < 1"),
        (json!({"type": "number", "maximum": 5, "exclusiveMaximum": true}), "number; // < 5"),
        (json!({"type": "number", "maximum": 9_007_199_254_740_991_u64}), "number;"),
        (json!({"type": "number", "multipleOf": 5}), "number; // multiple of 5"),
        (json!({"type": "string", "minLength": 1, "maxLength": 9}), "string; // length 1..9"),
        (json!({"type": "string", "minLength": 2}), "string; // length >= 2"),
        (json!({"type": "string", "pattern": "^[a-z]*/"}), "string; // matches /^[a-z]*//"),
        (json!({"type": "array", "minItems": 2, "maxItems": 2, "uniqueItems": true}), "unknown[]; // 2 items, unique"),
        (json!({"type": "array", "items": {"type": "string", "format": "uri"}}), "string[]; // each uri"),
        (json!({"type": "string", "default": "a\nb"}), "string; // default \"a\\nb\""),
        (json!({"type": "string", "default": null}), "string;"),
        (json!({"default": {"a": [1, {"b": [2]}]}}), "unknown; // default {\"a\":[1,{\"b\":[…]}]}"),
        (json!({"type": "string", "examples": ["x", "y"]}), "string; // e.g. \"x\""),
        (json!({"type": "string", "example": "x"}), "string; // e.g. \"x\""),
        (json!({"type": "string", "deprecated": true}), "string; // deprecated"),
        (json!({"type": "string", "contentEncoding": "base64"}), "string; // base64"),
        (json!({"type": "date"}), "unknown; // date"),
        (json!({"patternProperties": {"^x-": true}}), "Record<string, unknown>; // keys match /^x-/"),
        (
            json!({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": null}),
            "number | null; // integer, >= 1",
        ),
        (json!({"$ref": "#/$defs/d"}), "string; // date"),
        (json!({"format": 7, "minimum": "1", "pattern": [], "examples": {}, "minLength": -1}), "string;"),
    ];
    for (field, expected) in cases {
        let schema = json!({
            "properties": {"a": field},
            "$defs": {"d": {"type": "string", "format": "date"}},
        });
        let shown = function("", &schema, None).declaration(2);
        assert_eq!(shown, format!("  function run(input?: {{\n    a?: {expected}\n  }}): Promise<McpToolResult>;\n"));
    }
}
