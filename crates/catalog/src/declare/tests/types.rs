//! Cases of a schema and the type that it becomes.

use serde_json::json;

use super::{check, shown};

#[test]
fn type_names_of_every_kind_become_typescript_types() {
    check(&[
        ("string", json!({"type": "string"}), "string"),
        ("number", json!({"type": "number"}), "number"),
        ("integer", json!({"type": "integer"}), "number"),
        ("boolean", json!({"type": "boolean"}), "boolean"),
        ("null", json!({"type": "null"}), "null"),
        ("Python's", json!({"type": "array", "items": {"type": "str"}}), "string[]"),
        ("Python's dict", json!({"type": "dict"}), "Record<string, unknown>"),
        ("no known type", json!({"type": "date (yyyy-mm-dd)"}), "unknown"),
        ("empty schema", json!({}), "unknown"),
        ("true", json!(true), "unknown"),
        ("false", json!(false), "never"),
        ("several", json!({"type": ["string", "number", "null"]}), "string | number | null"),
        ("null comes last", json!({"type": ["null", "string"]}), "string | null"),
        (
            "several, with fields",
            json!({"type": ["object", "null"], "properties": {"a": {"type": "string"}}}),
            "{ a?: string } | null",
        ),
        ("nullable", json!({"type": "string", "nullable": true}), "string | null"),
        ("nullable twice", json!({"type": ["string", "null"], "nullable": true}), "string | null"),
    ]);
}

#[test]
fn a_missing_type_is_what_the_keywords_imply() {
    check(&[
        ("properties", json!({"properties": {"a": true}}), "{ a?: unknown }"),
        ("required", json!({"required": ["a"]}), "{ a: unknown }"),
        ("required as a flag", json!({"required": true}), "unknown"),
        ("items", json!({"items": {"type": "number"}}), "number[]"),
        ("pattern", json!({"pattern": "^a"}), "string"),
        ("minimum", json!({"minimum": 1}), "number"),
        ("description only", json!({"description": "x"}), "unknown"),
    ]);
}

#[test]
fn values_are_literals_while_they_are_few() {
    let letters: Vec<String> = (0..400).map(|number| format!("v{number}")).collect();
    let long = shown(&json!({"enum": letters}));
    assert!(long.starts_with("\"v0\" | \"v1\" | "), "{long}");
    assert!(long.ends_with("| \"v125\" | string /* … 274 more */"), "{long}");
    check(&[
        ("enum", json!({"enum": ["a", "b"]}), "\"a\" | \"b\""),
        ("enum of one type", json!({"type": "string", "enum": ["a"]}), "\"a\""),
        ("numbers", json!({"enum": [1, 2.5, -3]}), "1 | 2.5 | -3"),
        ("mixed", json!({"enum": ["a", 1, true, null]}), "\"a\" | 1 | true | null"),
        ("repeated", json!({"enum": ["a", "a"]}), "\"a\""),
        ("both truths", json!({"enum": [true, false]}), "boolean"),
        ("no values", json!({"type": "string", "enum": []}), "string"),
        ("nullable", json!({"enum": ["a"], "nullable": true}), "\"a\" | null"),
        ("structures are widened", json!({"enum": [{"a": 1}, [1]]}), "Record<string, unknown> | unknown[]"),
        ("a long text is widened", json!({"enum": ["a", "x".repeat(200)]}), "\"a\" | string"),
        ("junk", json!({"type": "number", "enum": "a"}), "number"),
        ("const", json!({"const": "a"}), "\"a\""),
        ("const number", json!({"type": "integer", "const": 7}), "7"),
        ("const null", json!({"const": null}), "null"),
        ("const structure", json!({"const": {"a": 1}}), "Record<string, unknown>"),
        ("escapes", json!({"const": "a\"\\\n\u{2028}\u{202e}`*/"}), r#""a\"\\\n\u{2028}\u{202e}`*/""#),
    ]);
}

#[test]
fn lists_and_tuples_of_every_draft_become_types() {
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    check(&[
        ("no items", json!({"type": "array"}), "unknown[]"),
        ("items", json!({"type": "array", "items": text}), "string[]"),
        ("items true", json!({"type": "array", "items": true}), "unknown[]"),
        ("items false", json!({"type": "array", "items": false}), "never[]"),
        ("nested", json!({"type": "array", "items": {"type": "array", "items": text}}), "string[][]"),
        ("union", json!({"type": "array", "items": {"type": ["string", "null"]}}), "(string | null)[]"),
        ("objects", json!({"type": "array", "items": {"properties": {"a": text}}}), "{ a?: string }[]"),
        ("open tuple", json!({"type": "array", "prefixItems": [text, number]}), "[string, number, ...unknown[]]"),
        ("closed tuple", json!({"type": "array", "prefixItems": [text, number], "items": false}), "[string, number]"),
        ("tuple and rest", json!({"type": "array", "prefixItems": [text], "items": number}), "[string, ...number[]]"),
        ("full tuple", json!({"type": "array", "prefixItems": [text, number], "maxItems": 2}), "[string, number]"),
        (
            "optional items",
            json!({"prefixItems": [text, {"type": ["number", "null"]}], "minItems": 1, "maxItems": 2}),
            "[string, (number | null)?]",
        ),
        ("draft 7", json!({"type": "array", "items": [text, number]}), "[string, number, ...unknown[]]"),
        ("draft 7, closed", json!({"type": "array", "items": [text], "additionalItems": false}), "[string]"),
        (
            "draft 7, rest",
            json!({"type": "array", "items": [text], "additionalItems": number}),
            "[string, ...number[]]",
        ),
        ("no items at all", json!({"type": "array", "prefixItems": [], "items": text}), "[...string[]]"),
    ]);
}

#[test]
fn objects_and_maps_become_types() {
    let text = json!({"type": "string"});
    check(&[
        ("no fields", json!({"type": "object"}), "Record<string, unknown>"),
        ("empty properties", json!({"type": "object", "properties": {}}), "Record<string, unknown>"),
        (
            "closed and empty",
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
            "Record<string, never>",
        ),
        (
            "required first",
            json!({"properties": {"a": text, "b": text}, "required": ["b"]}),
            "{ b: string; a?: string }",
        ),
        ("required twice", json!({"properties": {"a": text}, "required": ["a", "a", 7, null]}), "{ a: string }"),
        (
            "required and undeclared",
            json!({"properties": {"a": text}, "required": ["b"]}),
            "{ b: unknown; a?: string }",
        ),
        (
            "undeclared, of a known type",
            json!({"required": ["b"], "additionalProperties": {"type": "number"}}),
            "{\n  b: number;\n  [key: string]: unknown; // others: number\n}",
        ),
        ("closed", json!({"properties": {"a": text}, "additionalProperties": false}), "{ a?: string }"),
        (
            "open",
            json!({"properties": {"a": text}, "additionalProperties": true}),
            "{ a?: string; [key: string]: unknown }",
        ),
    ]);
}

#[test]
fn maps_odd_names_and_junk_become_types() {
    let text = json!({"type": "string"});
    check(&[
        ("map", json!({"type": "object", "additionalProperties": text}), "Record<string, string>"),
        ("map of anything", json!({"type": "object", "additionalProperties": {}}), "Record<string, unknown>"),
        (
            "map of objects",
            json!({"additionalProperties": {"properties": {"a": text}}}),
            "Record<string, { a?: string }>",
        ),
        ("patterns", json!({"type": "object", "patternProperties": {"^x-": text}}), "Record<string, string>"),
        (
            "patterns and others",
            json!({"patternProperties": {"^x": text, "^y": {"const": 1}}, "additionalProperties": {"type": "boolean"}}),
            "Record<string, string | 1 | boolean>",
        ),
        ("forbidden field", json!({"properties": {"a": false}}), "{ a?: never }"),
        (
            "names",
            json!({"properties": {"a-b": true, "1": true, "delete": true, "": true, "é": true}}),
            "{\n  \"a-b\"?: unknown;\n  \"1\"?: unknown;\n  delete?: unknown;\n  \"\"?: unknown;\n  \"é\"?: unknown;\n}",
        ),
        ("hostile name", json!({"properties": {"a\n*/`\u{200b}": true}}), "{ \"a\\n*/`\\u{200b}\"?: unknown }"),
        (
            "junk",
            json!({"type": "object", "properties": [1], "required": "a", "additionalProperties": 3}),
            "Record<string, unknown>",
        ),
        (
            "junk fields",
            json!({"properties": {"a": null, "b": 3, "c": "string", "d": []}}),
            "{ a?: unknown; b?: unknown; c?: unknown; d?: unknown }",
        ),
    ]);
}
