//! Schemas made of schemas: choices, parts and references.

use serde_json::json;

use super::check;

#[test]
fn combined_schemas_become_types() {
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let a = json!({"properties": {"a": text}, "required": ["a"]});
    let b = json!({"properties": {"b": number}});
    check(&[
        ("anyOf", json!({"anyOf": [text, number]}), "string | number"),
        ("oneOf", json!({"oneOf": [text, {"type": "null"}]}), "string | null"),
        ("repeated", json!({"anyOf": [text, text, {"anyOf": [number, text]}]}), "string | number"),
        ("with anything", json!({"anyOf": [text, {}]}), "unknown"),
        ("with nothing", json!({"anyOf": [text, false]}), "string"),
        ("objects", json!({"oneOf": [a, b]}), "{ a: string } | { b?: number }"),
        (
            "documented values",
            json!({"type": "string", "oneOf": [{"const": "x", "title": "X"}, {"const": "y"}]}),
            "\"x\" | \"y\"",
        ),
        (
            "a type beside untyped choices",
            json!({"type": "string", "anyOf": [{"format": "date"}, {"format": "time"}]}),
            "string",
        ),
        ("allOf objects", json!({"allOf": [b, a]}), "{ a: string; b?: number }"),
        ("allOf and own fields", json!({"properties": {"c": text}, "allOf": [a]}), "{ a: string; c?: string }"),
        ("allOf on one field", json!({"allOf": [b, {"required": ["b"]}]}), "{ b: number }"),
        ("allOf of one", json!({"allOf": [text]}), "string"),
        ("allOf narrows", json!({"allOf": [text, {"enum": ["x"]}]}), "\"x\""),
        (
            "allOf of choices",
            json!({"allOf": [a, {"anyOf": [b, {"properties": {"c": text}}]}]}),
            "{ a: string } & ({ b?: number } | { c?: string })",
        ),
        ("allOf lists", json!({"allOf": [{"type": "array"}, {"items": text}]}), "string[]"),
        ("impossible", json!({"allOf": [text, number]}), "never"),
        (
            "one of two is required",
            json!({"properties": {"a": text, "b": text}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            "{ a?: string; b?: string } & ({ a: unknown } | { b: unknown })",
        ),
        ("what no type says", json!({"type": "string", "not": {"const": "x"}, "if": a, "then": b}), "string"),
        ("junk", json!({"type": "string", "anyOf": "x", "allOf": {}, "oneOf": [null, 3]}), "string"),
    ]);
}

#[test]
fn references_become_types() {
    let to = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}});
    let point = json!({"properties": {"x": {"type": "number"}}});
    check(&[
        ("used once", json!({"$ref": "#/$defs/p", "$defs": {"p": point}}), "{ x?: number }"),
        ("draft 7", json!({"$ref": "#/definitions/p", "definitions": {"p": point}}), "{ x?: number }"),
        (
            "any place",
            json!({"properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}),
            "{ a?: string; b?: string }",
        ),
        ("escaped", json!({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": point}}), "{ x?: number }"),
        (
            "used twice",
            json!({"prefixItems": [to("my-point"), to("my-point")], "items": false, "$defs": {"my-point": point}}),
            "type f_MyPoint = { x?: number };\n[f_MyPoint, f_MyPoint]",
        ),
        (
            "a short one twice",
            json!({"prefixItems": [to("e"), to("e")], "items": false, "$defs": {"e": {"enum": ["x", "y"]}}}),
            "[\"x\" | \"y\", \"x\" | \"y\"]",
        ),
        (
            "recursive",
            json!({"$ref": "#/$defs/node", "$defs": {"node": node}}),
            "type f_Node = { next?: f_Node };\nf_Node",
        ),
        (
            "recursive root",
            json!({"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}),
            "type f_Output = { children?: f_Output[] };\nf_Output",
        ),
        (
            "recursive map",
            json!({"additionalProperties": {"$ref": "#"}}),
            "type f_Output = { [key: string]: f_Output };\nf_Output",
        ),
        (
            "recursive choice",
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]}),
            "type f_Output = string | f_Output[];\nf_Output",
        ),
        (
            "two that need each other",
            json!({"items": to("a"), "$defs": {"a": {"properties": {"b": to("b")}}, "b": {"items": to("a")}}}),
            "type f_A = { b?: f_B };\ntype f_B = f_A[];\nf_A[]",
        ),
        (
            "merged with its base",
            json!({"allOf": [{"$ref": "#/$defs/p"}], "properties": {"y": {"type": "number"}}, "$defs": {"p": point}}),
            "{ x?: number; y?: number }",
        ),
        (
            "beside other keywords",
            json!({"$ref": "#/$defs/p", "required": ["x"], "$defs": {"p": point}}),
            "{ x: number }",
        ),
        (
            "optional",
            json!({"anyOf": [{"$ref": "#/$defs/p"}, {"type": "null"}], "$defs": {"p": point}}),
            "{ x?: number } | null",
        ),
    ]);
}

#[test]
fn references_that_lead_nowhere_become_unknown() {
    check(&[
        ("nothing but itself", json!({"$ref": "#"}), "unknown"),
        (
            "a ring",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "unknown",
        ),
        (
            "circular choice",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}]}}}),
            "unknown",
        ),
        ("elsewhere", json!({"$ref": "https://example.com/schema.json"}), "unknown"),
        ("an anchor", json!({"$ref": "#here"}), "unknown"),
        ("missing", json!({"$ref": "#/$defs/none"}), "unknown"),
        ("junk", json!({"$ref": 7, "type": "string"}), "string"),
        ("bad escape", json!({"$ref": "#/%zz/%e9"}), "unknown"),
    ]);
}
