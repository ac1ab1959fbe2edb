//! Hostile schemas and inputs: one test for each bound, with its number.

use std::mem;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use contract::limits::{MAX_ARGUMENT_CHECK_STEPS, MAX_MATCHED_BYTES, MAX_SCHEMA_STEPS_PER_VALUE};

use super::super::budget::Budget;
use super::super::pattern::KnownPatterns;
use super::super::walk::Walk;
use super::super::{CompiledSchema, MAX_MESSAGE_BYTES, with_defaults};
use super::{verdict, wrapped};

fn steps(schema: &Value, input: &Value) -> usize {
    let known = KnownPatterns::default();
    let mut walk = Walk::new(schema, &known);
    walk.root(input);
    Budget::for_input(input).left() - walk.steps_left()
}

/// Definitions that each refer to the next one twice: 2^40 paths.
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
fn exponential_schemas_stop_at_the_budget_after_names_were_enforced() {
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema = doubling(keyword);
        let before = Instant::now();
        assert!(verdict(&schema, &json!({})).starts_with("input: missing property \"a\""), "{keyword}");
        let taken = steps(&schema, &json!({"b": 1}));
        assert!((MAX_SCHEMA_STEPS_PER_VALUE - 100..=MAX_SCHEMA_STEPS_PER_VALUE).contains(&taken), "{keyword} {taken}");
        assert!(before.elapsed() < Duration::from_secs(5), "{keyword} {:?}", before.elapsed());
    }
    // Parts of the schema that the budget did not reach do not reject the input.
    assert_eq!(verdict(&doubling("anyOf"), &json!({"a": 1})), "");
}

#[test]
fn reference_cycles_are_detected_at_once() {
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
fn depth_10_000_neither_overflows_the_stack_nor_hides_problems_above_it() {
    let mut nested = json!({"type": "string"});
    let mut negated = json!({"type": "string"});
    let mut input = json!(1);
    for _ in 0..10_000 {
        nested = wrapped("properties", wrapped("a", nested));
        negated = wrapped("not", negated);
        input = wrapped("a", input);
    }
    let recursive = json!({"properties": {"a": {"$ref": "#"}, "b": {"type": "string"}}});
    for (schema, refused) in [(&nested, true), (&negated, false), (&recursive, true)] {
        let message = verdict(schema, &input);
        assert_eq!(message.contains("nested too deeply to check"), refused, "{message}");
        assert_eq!(message.is_empty(), !refused, "{message}");
        CompiledSchema::new(schema);
    }
    let mut beside = input;
    beside["b"] = json!(1);
    assert_eq!(verdict(&recursive, &beside), "input.b: expected string, was 1");
    let literal = wrapped("const", beside);
    assert_eq!(verdict(&literal, &literal["const"]), "");
    let defaults = wrapped("properties", wrapped("a", wrapped("default", nested)));
    assert_eq!(with_defaults(&defaults, json!({})), json!({}));
    // Dropping them recurses as deep as they nest, which is not under test here.
    mem::forget((literal, defaults, negated));
}

#[test]
fn values_are_checked_to_a_fixed_depth() {
    let at = |depth: usize| {
        let mut schema = json!({"type": "string"});
        (0..depth).for_each(|_| schema = json!({"allOf": [schema]}));
        verdict(&schema, &json!(1))
    };
    assert_eq!(at(127), "input: expected string, was 1");
    assert_eq!(at(128), "");
}

#[test]
fn unused_megabytes_of_schema_or_input_take_no_steps() {
    let many: Map<String, Value> = (0..20_000).map(|n| (format!("property{n}"), json!({"type": "string"}))).collect();
    let schema = json!({"properties": many, "required": ["property7"], "additionalProperties": false});
    assert_eq!(verdict(&schema, &json!({"property7": "a"})), "");
    assert!(steps(&schema, &json!({"property7": "a"})) < 20);
    assert!(verdict(&schema, &json!({"propertyX": "a"})).len() < 400);

    let junk: Map<String, Value> = (0..200_000).map(|n| (format!("junk{n}"), Value::Null)).collect();
    let mut keywords = junk.clone();
    keywords.insert("required".to_owned(), json!(["a"]));
    assert_eq!(verdict(&Value::Object(keywords), &json!({})), "input: missing property \"a\"");
    let open = json!({"properties": {}, "additionalProperties": {}});
    let junk = Value::Object(junk);
    assert!(steps(&open, &junk) < MAX_ARGUMENT_CHECK_STEPS / 2);
    assert_eq!(verdict(&open, &junk), "");

    let text = "x".repeat(1 << 20);
    assert_eq!(verdict(&json!({"maxLength": 5}), &json!(text)), "input: expected at most 5 characters, was 1048576");
    assert!(verdict(&json!({"const": "y"}), &json!(text)).len() < 120);
}

#[test]
fn hostile_patterns_are_refused_or_run_in_linear_time() {
    // Without a period, so that the engine's state cache overflows and its slow path is used.
    let mut state = 1_u32;
    let mixed = (0..20_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    });
    let texts = ["a".repeat(20_000), mixed.collect()];
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
            assert!(taken < Duration::from_secs(10), "{pattern} {taken:?}");
        }
    }
}

#[test]
fn a_check_uses_256_patterns_whichever_properties_come_first() {
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
    assert!(verdict(&properties(256), &input(256, "x")).starts_with("input.p255: expected text that matches"));
    let message = verdict(&properties(257), &input(257, "x"));
    assert!(message.starts_with("input.p256: needs more than 256 patterns"), "{message}");
    // A schema that needs more than that for one value is faulty, and does not make its tool uncallable.
    let many: Vec<Value> = (0..300).map(|n| json!({"pattern": format!("^x{{0,{n}}}$")})).collect();
    assert_eq!(verdict(&json!({"allOf": many}), &json!("")), "");
    // The result does not depend on which patterns were compiled before.
    for count in [32, 33, 257] {
        let (schema, input) = (properties(count), input(count, "x"));
        let known = CompiledSchema::new(&schema).check(&schema, &input).err().map(|bad| bad.to_string());
        assert_eq!(known.unwrap_or_default(), verdict(&schema, &input));
    }
}

#[test]
fn long_texts_are_matched_with_their_patterns_or_refused() {
    let simple = json!({"pattern": "^/safe/"});
    let costly = json!({"pattern": r"^/safe/[\w/.-]{0,200}"});
    for (schema, most) in [(&simple, MAX_MATCHED_BYTES), (&costly, MAX_MATCHED_BYTES / 8)] {
        for (length, prefix, expected) in [
            (10, "/safe/", ""),
            (10, "/etc/passwd", "expected text that matches"),
            (65 << 10, "/etc/passwd", if most > 65 << 10 { "expected text that matches" } else { "too much text" }),
            (most, "/safe/", ""),
            (most, "/etc/passwd", "expected text that matches"),
            (most + 1, "/safe/", "too much text to match"),
            (most + 1, "/etc/passwd", "too much text to match"),
            (16 << 20, "/etc/passwd", "too much text to match"),
        ] {
            let text = format!("{prefix}{}", "x".repeat(length.max(prefix.len()) - prefix.len()));
            let message = verdict(&json!({"properties": {"path": schema}}), &json!({"path": text}));
            assert!(
                message.contains(expected) && message.is_empty() == expected.is_empty(),
                "{length} {prefix} {message}"
            );
        }
    }
    // The limit applies to all texts of a call together.
    let many = json!(vec!["/safe/".repeat(100); 2_000]);
    assert!(verdict(&json!({"items": simple}), &many).contains("too much text to match"));
}

#[test]
fn large_inputs_do_not_hide_violations_of_the_schema() {
    let wanted = json!({
        "items": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "uniqueItems": true},
        "tree": {"$ref": "#/$defs/tree"},
        "one": {"type": "array", "items": {"oneOf": (0..50).map(|n| json!({"const": n})).collect::<Vec<_>>()}},
        "map": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false},
        "name": {"type": "string", "maxLength": 10},
        "n": {"type": "integer", "maximum": 5},
        "path": {"type": "string", "pattern": "^/safe/"},
        "__proto__": {"type": "object", "maxProperties": 0},
    });
    let tree = json!({"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}, "leaf": {"const": "ok"}}});
    let schema =
        json!({"type": "object", "properties": wanted, "$defs": {"tree": tree}, "additionalProperties": false});
    let mut nested = json!({"leaf": "bad"});
    (0..900).for_each(|_| nested = wrapped("child", nested.take()));
    let names: Map<String, Value> = (0..30_000).map(|n| (format!("a{n}"), json!(1))).collect();
    let bulks = [
        ("items", json!(vec![1; 200_000])),
        ("items", json!(vec!["x"; 200_000])),
        ("set", (0..200_000).collect()),
        ("set", json!(vec![vec![0; 100]; 2_000])),
        ("set", (0..2_000).map(|n| json!([9_007_199_254_740_993_i64 + n, vec![0; 90]])).collect()),
        ("tree", nested),
        ("one", json!(vec![49; 150_000])),
        ("map", Value::Object(names)),
        ("name", json!("x".repeat(15 << 20))),
    ];
    let wrong = [
        ("n", json!(99)),
        ("path", json!("/etc/passwd")),
        ("path", json!("x".repeat(100_000))),
        ("path", json!("x".repeat(10 << 20))),
        ("__proto__", json!({"a": 1})),
        ("n\u{301}", json!(1)),
        ("N", json!(1)),
    ];
    for (number, (name, bulk)) in bulks.iter().enumerate() {
        // The largest inputs take a second each in an unoptimised build.
        let tried = if number == 0 { wrong.len() } else { 1 };
        for (key, value) in wrong.iter().take(tried) {
            for first in [true, false] {
                let mut fields = Map::new();
                if first {
                    fields.insert((*name).to_owned(), bulk.clone());
                }
                fields.insert((*key).to_owned(), value.clone());
                fields.insert((*name).to_owned(), bulk.clone());
                let before = Instant::now();
                let message = verdict(&schema, &Value::Object(fields));
                assert!(!message.is_empty(), "{name} {key} {first}");
                assert!(before.elapsed() < Duration::from_secs(20), "{name} {key} {:?}", before.elapsed());
            }
        }
    }
    // Large inputs that match are accepted if they can be checked.
    for (name, bulk) in [&bulks[0], &bulks[2], &bulks[7]] {
        assert_eq!(verdict(&schema, &wrapped(name, bulk.clone())), "", "{name}");
    }
    assert!(verdict(&schema, &wrapped("one", bulks[6].1.clone())).starts_with("input.one["), "too many to check");
}

/// Repeats operations that are cheap once.
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
fn five_problems_are_reported_in_at_most_2_000_bytes() {
    let numbers: Vec<Value> = (0..1_000).map(Value::from).collect();
    let message = verdict(&json!({"items": {"type": "string"}}), &json!(numbers));
    assert_eq!(message.lines().count(), 6);
    assert_eq!(message.lines().last(), Some("and more problems"));
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
            let message = verdict(&schema, &wrapped(&long, Value::Object(fields)));
            assert!((1..=MAX_MESSAGE_BYTES).contains(&message.len()), "{} {message}", message.len());
            assert!(!message.contains('\u{202e}'));
        }
    }
}

#[test]
fn duplicate_items_are_found_among_any_number() {
    let schema = json!({"uniqueItems": true});
    for count in [2, 100, 101, 100_000] {
        assert_ne!(verdict(&schema, &Value::from(vec![0; count])), "", "{count}");
    }
    let mut items: Vec<Value> = (0..50_000).map(|n| json!({"a": n, "b": [n]})).collect();
    assert_eq!(verdict(&schema, &Value::from(items.clone())), "");
    items.push(json!({"b": [7.0], "a": 7}));
    let message = verdict(&schema, &Value::from(items));
    assert_eq!(message, "input: expected unique items, but [50000] equals [7]");
    let mut deep = json!(1);
    (0..100).for_each(|_| deep = json!([deep]));
    assert!(verdict(&schema, &json!([deep, deep])).contains("nested too deeply"));
}

#[test]
fn numbers_of_any_size_are_checked_or_refused() {
    let cases = [
        (json!({"multipleOf": 10}), json!(1e300), ""),
        (json!({"multipleOf": 7}), json!(1e300), "expected a multiple"),
        (json!({"multipleOf": 10}), json!(1e20), ""),
        (json!({"multipleOf": 3}), json!(1e20), "expected a multiple"),
        (json!({"multipleOf": 0.01}), json!(123_456.78), ""),
        (json!({"multipleOf": 0.01}), json!(123_456_789.013), "expected a multiple"),
        (json!({"multipleOf": 0.01}), json!(1e300), "expected a multiple"),
        (json!({"multipleOf": 1e-300}), json!(1e300), "expected a multiple"),
        (json!({"multipleOf": 0}), json!(1), ""),
        (json!({"multipleOf": -1}), json!(1.5), ""),
        (json!({"maximum": 9_007_199_254_740_992.0}), json!(9_007_199_254_740_993_i64), "expected at most"),
        (json!({"maximum": 5}), json!(1e308), "expected at most"),
        (json!({"maximum": 5}), json!(u64::MAX), "expected at most"),
        (json!({"minimum": 0}), json!(-0.0), ""),
        (json!({"exclusiveMinimum": 0}), json!(-0.0), "expected more than"),
        (json!({"type": "integer", "maximum": 5}), json!(5.5), "expected integer"),
    ];
    for (schema, input, expected) in cases {
        let message = verdict(&schema, &input);
        assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{schema} {input} {message}");
    }
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
#[ignore = "prints timings; run it by hand"]
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
    let compiled = CompiledSchema::new(&patterned);
    time("one pattern, compiled", &|| assert_eq!(compiled.check(&patterned, &input), Ok(())));
}
