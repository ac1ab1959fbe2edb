//! For any schema and any input: no panic, no more steps than the budget, and the same result twice.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::pattern::KnownPatterns;
use super::super::verdict::Verdict;
use super::super::walk::Walk;
use super::super::{CompiledSchema, MAX_MESSAGE_BYTES, with_defaults};
use super::check;

const WORDS: [&str; 44] = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minProperties",
    "maxProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "$ref",
    "$defs",
    "definitions",
    "nullable",
    "default",
    "format",
    "contains",
    "$schema",
    "a",
    "b",
    "aa",
    "",
    "0",
    "x y",
];

const TEXTS: [&str; 20] = [
    "string",
    "number",
    "integer",
    "object",
    "array",
    "null",
    "boolean",
    "a",
    "b",
    "ab",
    "",
    "#",
    "#/$defs/a",
    "#/properties/b",
    "#/anyOf/0",
    "^a",
    "(",
    "\\d+",
    "\u{202e}é",
    "http://x/draft-07/schema#",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2..5_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(TEXTS.as_slice()).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ]
}

/// Random JSON with schema keywords in every position.
fn junk() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 60, 6, |inner| {
        let fields = prop::collection::vec((prop::sample::select(WORDS.as_slice()), inner.clone()), 0..6);
        prop_oneof![
            1 => prop::collection::vec(inner, 0..5).prop_map(Value::from),
            3 => fields.prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schema_and_any_input_get_one_bounded_answer(schema in junk(), input in junk()) {
        let known = KnownPatterns::default();
        let mut walk = Walk::new(&schema, &known);
        let verdict = walk.root(&input);
        // The verdict for an input this small never depends on its size.
        prop_assert!(verdict != Verdict::InputTooLarge);
        let first = walk.finish(verdict);
        prop_assert_eq!(first.is_err(), verdict == Verdict::Fails);
        prop_assert_eq!(&check(&schema, &input), &first);
        prop_assert_eq!(&CompiledSchema::new(&schema).check(&schema, &input), &first);
        if let Err(bad) = first {
            prop_assert!((1..=MAX_MESSAGE_BYTES).contains(&bad.to_string().len()), "{}", bad);
        }
    }

    #[test]
    fn negation_never_makes_both_fail(schema in junk(), input in junk()) {
        let negated = json!({"not": schema});
        // In the negated schema, references would lead to other places.
        let refers = schema.to_string().contains("$ref");
        prop_assert!(refers || check(&schema, &input).is_ok() || check(&negated, &input).is_ok());
    }

    #[test]
    fn defaults_only_add_and_adding_twice_adds_nothing(schema in junk(), input in junk()) {
        let filled = with_defaults(&schema, input.clone());
        prop_assert_eq!(&with_defaults(&schema, filled.clone()), &filled);
        match (&input, &filled) {
            (Value::Object(before), Value::Object(after)) => {
                prop_assert!(before.iter().all(|(name, value)| after.get(name) == Some(value)));
            }
            _ => prop_assert_eq!(&input, &filled),
        }
    }
}
