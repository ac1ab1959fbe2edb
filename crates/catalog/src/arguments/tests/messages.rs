//! Schema, input, and the message that the model reads.

use serde_json::{Value, json};

use super::super::{check, with_defaults};
use super::run;

#[test]
fn types_are_enforced() {
    run(&[
        (json!({"type": "string"}), json!("a"), ""),
        (json!({"type": "string"}), json!(5), "input: expected string, was 5"),
        (json!({"type": "integer"}), json!("5"), r#"input: expected integer, was "5""#),
        (json!({"type": "integer"}), json!(5.0), ""),
        (json!({"type": "integer"}), json!(5.5), "input: expected integer, was 5.5"),
        (json!({"type": "integer"}), json!(1e300), ""),
        (json!({"type": "number"}), json!(u64::MAX), ""),
        (json!({"type": "object"}), json!([1]), "input: expected object, was array"),
        (
            json!({"type": "object"}),
            json!("{\"a\": 1}"),
            r#"input: expected object, was "{\"a\": 1}"; pass the value itself, not its JSON text"#,
        ),
        (json!({"type": ["string", "null"]}), Value::Null, ""),
        (json!({"type": ["string", "null"]}), json!({}), "input: expected string or null, was {}"),
        (json!({"type": "string", "nullable": true}), Value::Null, ""),
        (json!({"type": "string", "nullable": false}), Value::Null, "input: expected string, was null"),
        // Type names that some servers write.
        (json!({"type": "int"}), json!(true), "input: expected int, was true"),
        (json!({"type": "STRING"}), json!(true), "input: expected STRING, was true"),
    ]);
}

#[test]
fn a_value_that_is_no_input_is_called_by_its_name() {
    let schema = json!({"properties": {"count": {"type": "integer"}}, "required": ["input"]});
    let bad = check(&schema, &json!({"count": "input"})).unwrap_err().naming("details");
    assert_eq!(bad.to_string(), "details: missing property \"input\"\ndetails.count: expected integer, was \"input\"");
}

#[test]
fn names_are_enforced_and_the_nearest_is_suggested() {
    let issue = json!({
        "type": "object",
        "properties": {"title": {"type": "string"}, "body": {"type": "string"}, "labels": {"enum": ["bug", "wish"]}},
        "required": ["title"],
        "additionalProperties": false,
    });
    let open = json!({"properties": {"title": {"type": "string"}}, "required": ["title", "owner"]});
    run(&[
        (issue.clone(), json!({"title": "a", "body": "b"}), ""),
        (
            issue.clone(),
            json!({"titel": "a"}),
            "input: unknown property \"titel\"; did you mean \"title\"?\ninput: missing property \"title\" (string)",
        ),
        (
            issue.clone(),
            json!({"title": "a", "zebra": 1}),
            r#"input: unknown property "zebra"; known properties: "title", "body", "labels""#,
        ),
        // A name that is already present cannot be the one that was meant.
        (
            issue.clone(),
            json!({"title": "a", "titel": "b"}),
            r#"input: unknown property "titel"; known properties: "title", "body", "labels""#,
        ),
        (
            issue,
            json!({"title": "a", "labels": "bugs"}),
            r#"input.labels: expected one of "bug", "wish", was "bugs"; did you mean "bug"?"#,
        ),
        (
            open,
            json!({"titel": "a"}),
            "input: missing property \"title\" (string); did you misspell it as \"titel\"?\ninput: missing property \"owner\"",
        ),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"a": 1}),
            r#"input: unknown property "a"; no properties are allowed"#,
        ),
        (json!({"additionalProperties": {"type": "string"}}), json!({"a": 1}), "input.a: expected string, was 1"),
        (
            json!({"properties": {"items": {"items": {"required": ["name"], "properties": {"name": {"const": "x"}}}}}}),
            json!({"items": [{"name": "x"}, {}, {"name": "y"}]}),
            "input.items[1]: missing property \"name\" (\"x\")\ninput.items[2].name: expected \"x\", was \"y\"",
        ),
        (json!({"properties": {"a": false}}), json!({"a": 1}), "input.a: must be left out"),
    ]);
}

#[test]
fn pattern_properties_count_as_declared() {
    let schema =
        json!({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false, "minProperties": 1});
    run(&[
        (schema.clone(), json!({"x-a": "b"}), ""),
        (schema.clone(), json!({"x-a": 1}), "input[\"x-a\"]: expected string, was 1"),
        (schema.clone(), json!({"y": 1}), "input: unknown property \"y\"; no properties are allowed"),
        (schema, json!({}), "input: expected at least 1 property, was 0"),
        // If a pattern cannot be compiled, no name is known to be undeclared.
        (json!({"patternProperties": {"(?=x)": {}}, "additionalProperties": false}), json!({"y": 1}), ""),
        (json!({"maxProperties": 1}), json!({"a": 1, "b": 1}), "input: expected at most 1 property, was 2"),
    ]);
}

#[test]
fn scalars_are_enforced() {
    run(&[
        (json!({"const": 1}), json!(1.0), ""),
        (json!({"const": {"a": [1, 2], "b": null}}), json!({"b": null, "a": [1, 2.0]}), ""),
        (json!({"const": [1]}), json!([1, 2]), "input: expected array, was array"),
        (json!({"enum": ["a", 1, null]}), json!("b"), r#"input: expected one of "a", 1, null, was "b""#),
        (json!({"minimum": 1}), json!(0), "input: expected at least 1, was 0"),
        (json!({"maximum": 1.5}), json!(2), "input: expected at most 1.5, was 2"),
        (json!({"exclusiveMinimum": 1}), json!(1), "input: expected more than 1, was 1"),
        (json!({"exclusiveMaximum": 1}), json!(1), "input: expected less than 1, was 1"),
        (json!({"minimum": 1, "exclusiveMinimum": true}), json!(1), "input: expected more than 1, was 1"),
        (json!({"minimum": 1, "exclusiveMinimum": false}), json!(1), ""),
        (json!({"maximum": u64::MAX}), json!(u64::MAX), ""),
        (
            json!({"maximum": i64::MAX}),
            json!(u64::MAX),
            "input: expected at most 9223372036854775807, was 18446744073709551615",
        ),
        (json!({"multipleOf": 5}), json!(12), "input: expected a multiple of 5, was 12"),
        (json!({"multipleOf": 0.1}), json!(0.3), ""),
        (json!({"multipleOf": 0.1}), json!(0.35), "input: expected a multiple of 0.1, was 0.35"),
        (json!({"minLength": 2}), json!("é"), "input: expected at least 2 characters, was 1"),
        (json!({"maxLength": 1}), json!("é"), ""),
        (json!({"maxLength": 1}), json!("ab"), "input: expected at most 1 character, was 2"),
        (json!({"maxLength": 1e300}), json!("ab"), ""),
        (json!({"pattern": "^a+$"}), json!("b"), r#"input: expected text that matches "^a+$", was "b""#),
    ]);
}

#[test]
fn patterns_mean_what_javascript_means() {
    let matches = |pattern: &str, text: &str| super::verdict(&json!({"pattern": pattern}), &json!(text)).is_empty();
    let cases = [
        (r"^\d{3}-\d$", "123-4", true),
        (r"^\d$", "\u{663}", false),
        (r"^[\w.-]{1,64}$", "a.b-c", true),
        (r"^[\w.-]{1,64}$", "a b", false),
        (r"^[^\d\s]+$", "a1", false),
        (r"^[[]$", "[", true),
        (r"^[&&]$", "&", true),
        (r"\bcat\b", "a cat", true),
        (r"\bcat\b", "cats", false),
        (r"^https?:\/\/", "https://x", true),
        (r"^\u0041$", "B", false),
        (r"^(?<year>\d{4})$", "12", false),
        (r"^\p{L}+$", "größe", true),
        // Not supported by the engine, or not valid in both languages: not enforced.
        (r"^(?=a)b$", "c", true),
        (r"(a)\1", "b", true),
        (r"((", "b", true),
        (r"[]a]", "b", true),
        ("\\", "b", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn arrays_are_enforced() {
    let tuple = json!({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"type": "boolean"}});
    let old = json!({"items": [{"type": "string"}], "additionalItems": false});
    run(&[
        (json!({"items": {"type": "string"}}), json!(["a", 1]), "input[1]: expected string, was 1"),
        (tuple.clone(), json!(["a", 1, true]), ""),
        (tuple.clone(), json!(["a"]), ""),
        (tuple, json!([1, 1, 1]), "input[0]: expected string, was 1\ninput[2]: expected boolean, was 1"),
        (old.clone(), json!(["a"]), ""),
        (old, json!(["a", 1]), "input[1]: must be left out"),
        (json!({"minItems": 1}), json!([]), "input: expected at least 1 item, was 0"),
        (json!({"maxItems": 1}), json!([1, 2]), "input: expected at most 1 item, was 2"),
        (json!({"uniqueItems": true}), json!([1, "1"]), ""),
        (json!({"uniqueItems": true}), json!([1, 2, 1.0]), "input: expected unique items, but [2] equals [0]"),
    ]);
}

#[test]
fn choices_report_the_problems_of_the_nearest_branch() {
    let shapes = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "number"}}, "required": ["kind", "a"]},
    ]});
    let either =
        json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]});
    let exclusive = json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    run(&[
        (shapes.clone(), json!({"kind": "square", "a": 1}), ""),
        (shapes.clone(), json!({"kind": "square", "a": "1"}), r#"input.a: expected number, was "1""#),
        (shapes.clone(), json!({"kind": "square"}), r#"input: missing property "a" (number)"#),
        (shapes.clone(), json!({"kind": "cube"}), r#"input.kind: expected "circle" or "square", was "cube""#),
        (shapes, json!(1), "input: expected object, was 1"),
        (either.clone(), json!(["a"]), ""),
        (either.clone(), json!([1]), "input[0]: expected string, was 1"),
        (either, json!(1), "input: expected string or array or null, was 1"),
        (exclusive.clone(), json!({"a": 1}), ""),
        (exclusive.clone(), json!({"a": 1, "b": 1}), "input: matches 2 of the 2 allowed forms, must match exactly one"),
        (exclusive, json!({}), r#"input: missing property "a""#),
        // The model could do nothing about these.
        (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), json!(1), ""),
        (json!({"oneOf": [{"format": "date"}, {"format": "time"}], "type": "object"}), json!({}), ""),
        (
            json!({"allOf": [{"type": "string"}, {"minLength": 2}]}),
            json!("a"),
            "input: expected at least 2 characters, was 1",
        ),
        (json!({"not": {"type": "string"}}), json!("a"), "input: is a value that the schema forbids"),
        (json!({"not": {"pattern": "(?=a)"}}), json!("a"), ""),
        (
            json!({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
            json!({"a": 1}),
            r#"input: missing property "b""#,
        ),
        (
            json!({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
            json!({"a": 2}),
            r#"input: missing property "c""#,
        ),
    ]);
}

#[test]
fn references_lead_inside_the_schema_only() {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}});
    let beside = json!({"$ref": "#/definitions/a%20b", "required": ["x"], "definitions": {"a b": {"type": "object"}}});
    let mut draft_7 = beside.clone();
    draft_7["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    run(&[
        (tree.clone(), json!({"children": [{"children": []}]}), ""),
        (tree, json!({"children": [{"children": [1]}]}), "input.children[0].children[0]: expected object, was 1"),
        (beside.clone(), json!(1), "input: expected object, was 1"),
        (beside, json!({}), r#"input: missing property "x""#),
        (draft_7, json!({}), ""),
        (json!({"$ref": "https://example.com/a.json"}), json!(1), ""),
        (json!({"$ref": "file:///etc/passwd"}), json!(1), ""),
        (json!({"$ref": "#anchor"}), json!(1), ""),
        (json!({"$ref": "#/nowhere", "required": ["a"]}), json!({}), r#"input: missing property "a""#),
    ]);
}

#[test]
fn faulty_schemas_do_not_stop_a_call_but_their_valid_parts_are_enforced() {
    let odd = json!({
        "type": "object",
        "$schema": 5,
        "properties": {"a": {"type": "file"}, "b": 7, "c": {"type": [], "minLength": "x", "enum": "y", "pattern": 1}},
        "patternProperties": [],
        "allOf": {}, "anyOf": [], "oneOf": 1, "not": 1, "if": 1,
        "x-own": {"anything": true},
        "required": ["a", 1],
    });
    run(&[
        (odd.clone(), json!({"a": 1, "b": 2, "c": "z"}), ""),
        (odd.clone(), json!({"b": 2}), r#"input: missing property "a" (file)"#),
        (odd, json!([]), "input: expected object, was []"),
        (
            json!({"required": ["a"], "properties": {"a": {"type": "x\ninput: all is well"}}}),
            json!({}),
            r#"input: missing property "a""#,
        ),
        (Value::Null, json!({}), ""),
        (json!([]), json!({}), ""),
        (json!("x"), json!({}), ""),
        (json!({}), json!(1), ""),
        (json!(true), json!(1), ""),
        // `properties` might have declared it.
        (json!({"properties": ["a"], "additionalProperties": false}), json!({"a": 1}), ""),
    ]);
}

#[test]
fn defaults_fill_what_is_missing_at_the_top() {
    let schema = json!({"properties": {
        "limit": {"type": "integer", "default": 10},
        "query": {"type": "string"},
        "sort": {"type": "string", "default": null},
        "page": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
        "deep": {"type": "object", "properties": {"a": {"default": 1}}, "default": {}},
    }});
    let through = json!({"$ref": "#/$defs/x", "$defs": {"x": schema}});
    let cases = [
        (&schema, json!({"query": "a"}), json!({"query": "a", "limit": 10, "page": null, "deep": {}})),
        (&schema, json!({"limit": 1, "page": 2, "deep": {"b": 1}}), json!({"limit": 1, "page": 2, "deep": {"b": 1}})),
        (&through, json!({}), json!({"limit": 10, "page": null, "deep": {}})),
        (&schema, json!([1]), json!([1])),
        (&schema, Value::Null, Value::Null),
        (&Value::Null, json!({"a": 1}), json!({"a": 1})),
    ];
    for (schema, input, expected) in cases {
        assert_eq!(with_defaults(schema, input.clone()), expected, "{input}");
    }
}
