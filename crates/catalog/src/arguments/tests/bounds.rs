//! Hostile schemas and inputs: each bound has its number here.

use std::mem;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::super::pattern::Known;
use super::super::walk::Walk;
use super::super::{Compiled, MAX_MESSAGE_BYTES, MAX_STEPS, with_defaults};
use super::{verdict, wrapped};

fn steps(schema: &Value, input: &Value) -> usize {
    let known = Known::default();
    let mut walk = Walk::new(schema, &known);
    walk.root(input);
    walk.steps_taken()
}

/// Definitions each of which offers the next one twice: 2^40 ways to go.
fn doubling(keyword: &str) -> Value {
    let mut definitions = Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
        definitions.insert(level.to_string(), json!({keyword: [next, next]}));
    }
    definitions.insert("40".to_owned(), json!({"type": "string"}));
    json!({"type": "object", "required": ["a"], "$ref": "#/$defs/0", "$defs": definitions})
}

#[test]
fn exponential_schemas_end_at_the_budget_and_names_are_enforced_before() {
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema = doubling(keyword);
        let before = Instant::now();
        assert!(verdict(&schema, &json!({})).starts_with("input: missing property \"a\""), "{keyword}");
        assert_eq!(steps(&schema, &json!({"b": 1})), MAX_STEPS, "{keyword}");
        assert!(before.elapsed() < Duration::from_secs(5), "{keyword} {:?}", before.elapsed());
    }
    // What the budget did not reach is not held against the input.
    assert_eq!(verdict(&doubling("anyOf"), &json!({"a": 1})), "");
}

#[test]
fn circles_are_seen_at_once() {
    let cases = [
        json!({"$ref": "#", "required": ["a"]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "required": ["a"]}),
        json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "required": ["a"]}),
        json!({"not": {"$ref": "#"}, "required": ["a"]}),
    ];
    for schema in cases {
        assert_eq!(verdict(&schema, &json!({})), "input: missing property \"a\"", "{schema}");
        assert_eq!(verdict(&schema, &json!({"a": 1})), "", "{schema}");
        assert!(steps(&schema, &json!({"a": 1})) < 20, "{schema}");
    }
}

#[test]
fn depth_10_000_neither_overflows_nor_hides_what_is_above() {
    let mut nested = json!({"type": "string"});
    let mut negated = json!({"type": "string"});
    let mut input = json!(1);
    for _ in 0..10_000 {
        nested = wrapped("properties", wrapped("a", nested));
        negated = wrapped("not", negated);
        input = wrapped("a", input);
    }
    let recursive = json!({"properties": {"a": {"$ref": "#"}, "b": {"type": "string"}}});
    for schema in [&nested, &negated, &recursive] {
        assert_eq!(verdict(schema, &input), "");
        Compiled::new(schema);
    }
    let mut beside = input;
    beside["b"] = json!(1);
    assert_eq!(verdict(&recursive, &beside), "input.b: expected string, was 1");
    let literal = wrapped("const", beside);
    assert_eq!(verdict(&literal, &literal["const"]), "");
    let defaults = wrapped("properties", wrapped("a", wrapped("default", nested)));
    assert_eq!(with_defaults(&defaults, json!({})), json!({}));
    // Dropping them is as recursive as they are, and not ours to test.
    mem::forget((literal, defaults, negated));
}

#[test]
fn the_depth_that_is_enforced() {
    let at = |depth: usize| {
        let mut schema = json!({"type": "string"});
        (0..depth).for_each(|_| schema = json!({"allOf": [schema]}));
        verdict(&schema, &json!(1))
    };
    assert_eq!(at(127), "input: expected string, was 1");
    assert_eq!(at(128), "");
}

#[test]
fn a_megabyte_of_schema_or_input_is_no_work_where_it_is_not_used() {
    let many: Map<String, Value> = (0..20_000).map(|n| (format!("property{n}"), json!({"type": "string"}))).collect();
    let schema = json!({"properties": many, "required": ["property7"], "additionalProperties": false});
    assert_eq!(verdict(&schema, &json!({"property7": "a"})), "");
    assert!(steps(&schema, &json!({"property7": "a"})) < 20);
    assert!(verdict(&schema, &json!({"propertyX": "a"})).len() < 400);

    let junk: Map<String, Value> = (0..200_000).map(|n| (format!("junk{n}"), Value::Null)).collect();
    let mut keywords = junk.clone();
    keywords.insert("required".to_owned(), json!(["a"]));
    assert_eq!(verdict(&Value::Object(keywords), &json!({})), "input: missing property \"a\"");
    assert_eq!(steps(&json!({"properties": {}, "additionalProperties": {}}), &Value::Object(junk)), MAX_STEPS);

    let text = "x".repeat(1 << 20);
    assert_eq!(verdict(&json!({"maxLength": 5}), &json!(text)), "input: expected at most 5 characters, was 1048576");
    assert!(verdict(&json!({"const": "y"}), &json!(text)).len() < 120);
}

#[test]
fn hostile_patterns_are_refused_or_run_in_linear_time() {
    // Without a period, so that the engine's table of states overflows and its slow way is taken.
    let mut state = 1_u32;
    let mixed = (0..60_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    });
    let texts = ["a".repeat(60_000), mixed.collect()];
    let patterns = [
        "(a|b)*a(a|b){200}c".to_owned(),
        "[ab]*a[ab]{300}c".to_owned(),
        "[ab]*a[ab]{1000}c".to_owned(),
        "(a+)+$b".to_owned(),
        "^(a|aa)+$b".to_owned(),
        "((a{1,100}){1,100}){1,100}".to_owned(),
        r"\p{L}{500}".to_owned(),
        "a?".repeat(170) + &"a".repeat(170),
        "(a|b|ab)*c".repeat(50),
        "(".repeat(256) + &")".repeat(256),
        "(?i)".to_owned() + &"[a-zß-ü]".repeat(60),
        ".*".repeat(250) + "c",
        "x".repeat(10_000),
    ];
    for pattern in patterns {
        for text in &texts {
            let before = Instant::now();
            verdict(&json!({"pattern": pattern}), &json!(text));
            let taken = before.elapsed();
            assert!(taken < Duration::from_secs(20), "{pattern} {taken:?}");
        }
    }
}

#[test]
fn a_check_uses_32_patterns_and_64_kib_of_text() {
    let properties = |count: usize| -> Value {
        let schemas: Map<String, Value> =
            (0..count).map(|n| (format!("p{n}"), json!({"pattern": format!("^{n}$")}))).collect();
        json!({"properties": schemas})
    };
    let input = |count: usize, last: &str| -> Value {
        let mut values: Map<String, Value> = (0..count).map(|n| (format!("p{n}"), json!(n.to_string()))).collect();
        values.insert(format!("p{}", count - 1), json!(last));
        Value::Object(values)
    };
    assert_ne!(verdict(&properties(32), &input(32, "x")), "");
    assert_eq!(verdict(&properties(33), &input(33, "x")), "");
    assert_ne!(verdict(&json!({"pattern": "b"}), &json!("a".repeat(64 << 10))), "");
    assert_eq!(verdict(&json!({"pattern": "b"}), &json!("a".repeat((64 << 10) + 1))), "");
    // Known beforehand or not, the answer is the same.
    for count in [32, 33] {
        let (schema, input) = (properties(count), input(count, "x"));
        let known = Compiled::new(&schema).check(&schema, &input).err().map(|bad| bad.to_string());
        assert_eq!(known.unwrap_or_default(), verdict(&schema, &input));
    }
}

/// What costs little once, done over and over.
#[test]
fn everything_that_takes_time_is_counted() {
    let items = Value::from(vec![json!({}); 30_000]);
    let long = "x".repeat(1 << 18);
    let word = |n: usize| format!("{n:0>64}");
    let words: Vec<String> = (0..5_000).map(word).collect();
    let named: Map<String, Value> = words.iter().map(|word| (word.clone(), json!({}))).collect();
    let fields: Map<String, Value> = (5_000..9_000).map(|n| (word(n), json!(1))).collect();
    let again = |schema: Value| json!({"$defs": {"x": schema}, "anyOf": vec![json!({"$ref": "#/$defs/x"}); 30_000]});
    let cases = [
        (json!({"items": {"required": vec![1; 300_000]}}), items.clone()),
        (again(json!({"const": long, "not": {}})), json!(long)),
        (again(json!({"minLength": 1 << 20})), json!(long)),
        (again(json!({"pattern": long})), json!(long)),
        (again(json!({"enum": words})), json!("y".repeat(64))),
        (again(json!({"properties": named, "additionalProperties": false})), Value::Object(fields.clone())),
        (again(json!({"required": words})), Value::Object(fields)),
        (again(json!({"prefixItems": vec![true; 30_000], "items": false})), items.clone()),
        (again(json!({"uniqueItems": true})), json!(vec![json!({"a": [1, 2, 3]}); 100])),
        (again(json!({"$ref": format!("#{}", "/x".repeat(255))})), json!(1)),
    ];
    for (position, (schema, input)) in cases.iter().enumerate() {
        let before = Instant::now();
        verdict(schema, input);
        let taken = before.elapsed();
        assert!(taken < Duration::from_secs(20), "{position} {taken:?}");
    }
}

#[test]
fn five_problems_are_told_in_at_most_2_000_bytes() {
    let numbers: Vec<Value> = (0..1_000).map(Value::from).collect();
    let said = verdict(&json!({"items": {"type": "string"}}), &json!(numbers));
    assert_eq!(said.lines().count(), 6);
    assert_eq!(said.lines().last(), Some("and more of that kind"));
    assert_eq!(verdict(&json!({"items": {"type": "string"}}), &json!([1, 2, 3, 4, 5])).lines().count(), 5);

    for letter in ["x", "\u{202e}", "\"", "é"] {
        let long = letter.repeat(5_000);
        let names: Vec<String> = (0..20).map(|n| format!("{n}{long}")).collect();
        let literals = json!({"enum": names, "type": [long, "string"]});
        let inner: Map<String, Value> = names.iter().map(|name| (name.clone(), literals.clone())).collect();
        let schema = json!({"properties": {&long: {"properties": inner, "required": names, "additionalProperties": false,
            "anyOf": [{"required": names}, {"const": &long}, {"pattern": long}]}}});
        let wrong: Map<String, Value> = names.iter().map(|name| (format!("{name}?"), json!(long))).collect();
        let right: Map<String, Value> = names.iter().map(|name| (name.clone(), json!(long))).collect();
        for fields in [wrong, right, Map::new()] {
            let said = verdict(&schema, &wrapped(&long, Value::Object(fields)));
            assert!((1..=MAX_MESSAGE_BYTES).contains(&said.len()), "{} {said}", said.len());
            assert!(!said.contains('\u{202e}'));
        }
    }
}

#[test]
fn equal_items_are_sought_among_100() {
    let zeros = |count: usize| Value::from(vec![0; count]);
    assert_ne!(verdict(&json!({"uniqueItems": true}), &zeros(100)), "");
    assert_eq!(verdict(&json!({"uniqueItems": true}), &zeros(101)), "");
}

#[test]
fn large_defaults_are_left_out() {
    let schema = |default: Value| json!({"properties": {"a": {"default": default}}});
    let filled = |default: Value| with_defaults(&schema(default), json!({})) != json!({});
    assert!(filled(json!("x".repeat(64 << 10))));
    assert!(!filled(json!("x".repeat((64 << 10) + 1))));
    assert!(filled(json!(vec![0; 998])));
    assert!(!filled(json!(vec![0; 1_000])));
}

/// `cargo test -p cellmate-catalog --release arguments::tests::bounds::ordinary -- --ignored --nocapture`
#[test]
#[ignore = "prints a time, for a person to read"]
fn ordinary_check_is_fast() {
    let properties: Map<String, Value> =
        (0..10).map(|n| (format!("p{n}"), json!({"type": "string", "maxLength": 20, "description": "x"}))).collect();
    let input: Map<String, Value> = (0..10).map(|n| (format!("p{n}"), json!("abc"))).collect();
    let schema =
        json!({"type": "object", "properties": properties, "required": ["p0", "p1"], "additionalProperties": false});
    let patterned = json!({"properties": {"p0": {"pattern": "^[\\w.-]{1,64}$"}}});
    let input = Value::Object(input);
    let time = |name: &str, run: &dyn Fn()| {
        let before = Instant::now();
        (0..10_000).for_each(|_| run());
        println!("{name}: {:?}", before.elapsed() / 10_000);
    };
    time("ten properties", &|| assert_eq!(super::check(&schema, &input), Ok(())));
    time("one pattern", &|| assert_eq!(super::check(&patterned, &input), Ok(())));
    let compiled = Compiled::new(&patterned);
    time("one pattern, compiled", &|| assert_eq!(compiled.check(&patterned, &input), Ok(())));
}
