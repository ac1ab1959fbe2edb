//! Hostile schemas: for each one, the result is fast, short and syntactically complete.

use std::time::{Duration, Instant};

use contract::tool::Operation;
use serde_json::{Map, Value, json};

use super::function;
use crate::declare::function::{FUNCTION_BYTES, Function, MAX_METHOD_NAME_BYTES};

/// Far more than needed, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// Small, so that unbounded recursion overflows it.
const STACK_BYTES: usize = 512 << 10;

fn check(name: &str, description: &str, schema: &Value) -> String {
    // The longest possible names, in the deepest position.
    let (operation, method) = (Operation::ReadResource, "m".repeat(MAX_METHOD_NAME_BYTES));
    let longest =
        || Function { operation, method: &method, ..function(description, schema, Some(schema)) }.declaration(4);
    assert!(longest().len() <= FUNCTION_BYTES, "{name} has {} bytes", longest().len());
    let render = || function(description, schema, Some(schema)).declaration(2);
    let started = Instant::now();
    let shown = std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, render).unwrap().join().unwrap()
    });
    assert!(started.elapsed() < PATIENCE, "{name} took {:?}", started.elapsed());
    assert!(shown.len() <= FUNCTION_BYTES, "{name} has {} bytes", shown.len());
    assert_closed(&shown);
    assert_eq!(render(), shown, "{name}");
    shown
}

/// Asserts what holds for every declaration: brackets match, strings and comments end, no character is hidden.
pub(super) fn assert_closed(text: &str) {
    let mut open = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let end = match letter {
            '"' => string_end(rest),
            '/' if rest.starts_with("/*") => rest.find("*/").map(|at| at + 2),
            '/' if rest.starts_with("//") => rest.find('\n'),
            _ => Some(letter.len_utf8()),
        };
        match letter {
            '(' | '[' | '{' | '<' => open.push(letter),
            ')' | ']' | '}' | '>' => {
                let pair = open.pop().map(|open| format!("{open}{letter}")).unwrap_or_default();
                assert!(["()", "[]", "{}", "<>"].contains(&pair.as_str()), "{pair} at {rest:.40} in\n{text}");
            }
            _ => assert!(letter == '\n' || !letter.is_control(), "{letter:?} in\n{text}"),
        }
        rest = end.and_then(|end| rest.get(end..)).unwrap_or_else(|| panic!("open at {rest:.40} in\n{text}"));
    }
    assert!(open.is_empty() && text.ends_with(";\n"), "{text}");
}

fn string_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return Some(at + 1),
            '\n' => return None,
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    None
}

/// Wraps the value in one keyword. `json!` would copy the value, and each copy recurses through all of its depth.
fn with(keyword: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(keyword.to_owned(), value)]))
}

fn nested(levels: usize, wrap: fn(Value) -> Value) -> Value {
    (0..levels).fold(json!({"type": "string"}), |inner, _| wrap(inner))
}

#[test]
fn deep_schemas() {
    type Wrap = fn(Value) -> Value;
    let wraps: [(&str, Wrap); 8] = [
        ("properties", |inner| with("properties", with("a", inner))),
        ("items", |inner| with("items", inner)),
        ("tuples", |inner| with("prefixItems", Value::Array(vec![inner]))),
        ("maps", |inner| with("additionalProperties", inner)),
        ("patterns", |inner| with("patternProperties", with("a", inner))),
        ("anyOf", |inner| with("anyOf", Value::Array(vec![inner, Value::Null, Value::Bool(false)]))),
        ("allOf", |inner| with("allOf", Value::Array(vec![inner]))),
        ("default", |inner| with("default", inner)),
    ];
    for (name, wrap) in wraps {
        let schema = with("properties", with("field", nested(10_000, wrap)));
        let shown = check(name, "", &schema);
        let is_told = shown.contains("Shortened; ") || name == "default" && shown.contains("{…}");
        assert!(is_told, "{name}: {shown}");
        // Dropping it recurses as deep as it nests, more than a stack allows.
        std::mem::forget(schema);
    }
}

#[test]
fn webs_of_references() {
    let web = |count: usize, keyword: &dyn Fn(Value) -> Value| {
        let definition = |at: usize| (format!("d{at}"), keyword(json!({"$ref": format!("#/$defs/d{}", at + 1)})));
        let definitions: Map<String, Value> = (0..count).map(definition).collect();
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    check("sharing", "", &web(10_000, &|next| json!({"properties": {"a": next, "b": next, "c": next}})));
    check("sharing by allOf", "", &web(10_000, &|next| json!({"allOf": [next, next, {"properties": {"a": next}}]})));
    check(
        "sharing by anyOf",
        "",
        &web(10_000, &|next| json!({"anyOf": [next, {"items": next}, {"additionalProperties": next}]})),
    );
    check("a chain", "", &web(10_000, &|next| next));
    let deep = |next: Value| (0..30).fold(next, |inner, _| json!({"items": inner}));
    check("arrays", "", &web(100, &deep));

    let all: Vec<Value> = (0..100).map(|at| json!({"$ref": format!("#/$defs/d{at}")})).collect();
    let everyone: Map<String, Value> =
        (0..100).map(|at| (format!("d{at}"), json!({"anyOf": all, "properties": {"x": {"allOf": all}}}))).collect();
    check("all refer to all", "", &json!({"properties": {"a": {"oneOf": all}}, "$defs": everyone}));

    let long = format!("#/$defs/{}", "x".repeat(1 << 20));
    check("a long reference", "", &json!({"properties": {"a": {"$ref": long}}, "$defs": {"x": {"$ref": long}}}));
}

#[test]
fn large_schemas() {
    let book = "word */ `x` \u{202e}\n".repeat(700_000);
    assert!(book.len() > 10 << 20);
    check(
        "a description",
        &book,
        &json!({"properties": {"a": {"description": book, "default": book, "pattern": book, "type": book}}}),
    );
    check("blanks", &" \n".repeat(5 << 20), &json!({"properties": {"a": {"description": " ".repeat(10 << 20)}}}));
    check("endings", &"*/".repeat(5 << 20), &json!({"properties": {"a": {"description": "*/".repeat(5 << 20)}}}));
    check(
        "names",
        "",
        &json!({"properties": {(&book): {"type": "string"}, "b": {"required": [&book]}}, "required": [&book]}),
    );
    check(
        "values",
        "",
        &json!({"properties": {"a": {"enum": [&book, 1]}, "b": {"const": &book}, "c": {"default": {(&book): &book}}}}),
    );

    let many: Map<String, Value> =
        (0..100_000).map(|at| (format!("p{at}"), json!({"type": "string", "description": "d"}))).collect();
    let names: Vec<&String> = many.keys().collect();
    let shown = check("properties", "", &json!({"properties": many, "required": names}));
    assert!(shown.contains("    p0: string;\n") && shown.contains(" more */\n"), "{shown}");
    let shared = json!({
        "properties": {"a": {"$ref": "#/$defs/m"}, "b": {"allOf": vec![json!({"$ref": "#/$defs/m"}); 100]}},
        "$defs": {"m": {"properties": many, "required": names, "type": names}},
    });
    check("shared properties", "", &shared);
    check(
        "values",
        "",
        &json!({"properties": {"a": {"enum": names}, "b": {"type": names}, "c": {"default": names, "items": names}}}),
    );
    let lists = vec![json!({"properties": {"a": {"type": "string"}}}); 100_000];
    check("choices", "", &json!({"anyOf": lists}));
    check("parts", "", &json!({"allOf": lists}));
    check("items", "", &json!({"properties": {"a": {"prefixItems": lists}}}));
    check("patterns", "", &json!({"patternProperties": many}));
}
