//! Random schemas: the text is always bounded, closed and deterministic.

use serde_json::{Map, Value, json};

use super::function;
use super::hostile::assert_closed;
use crate::declare::function::FUNCTION_BYTES;

const KEYWORDS: [&str; 34] = [
    "type",
    "type",
    "type",
    "properties",
    "properties",
    "properties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$ref",
    "enum",
    "const",
    "required",
    "additionalProperties",
    "patternProperties",
    "prefixItems",
    "additionalItems",
    "nullable",
    "description",
    "default",
    "examples",
    "format",
    "pattern",
    "minimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
    "deprecated",
    "minLength",
    "$defs",
    "definitions",
    "title",
];

const WORDS: [&str; 24] = [
    "string",
    "number",
    "integer",
    "boolean",
    "null",
    "array",
    "object",
    "a",
    "b",
    "c",
    "*/",
    "\n",
    "`",
    "\"",
    "\\",
    "\u{202e}",
    "é",
    "",
    "__proto__",
    "delete",
    "#",
    "#/properties/a",
    "#/$defs/b",
    "#/definitions/c",
];

/// SplitMix64 generator, so that every run uses the same schemas.
struct Generator(u64);

impl Generator {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    fn word(&mut self) -> String {
        let count = 1 + self.below(2);
        (0..count).map(|_| WORDS[self.below(WORDS.len())]).collect()
    }

    fn junk(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => [json!(true), json!(false), json!(3)][self.below(3)].clone(),
            2 => json!([-3.0, 0.0, 1.0, 2.5, 1e300][self.below(5)]),
            3 | 4 => Value::from(self.word()),
            5 => self.list(depth - 1, Self::junk),
            6 => self.map(depth - 1, Self::junk),
            _ => self.schema(depth - 1),
        }
    }

    fn list(&mut self, depth: usize, make: fn(&mut Self, usize) -> Value) -> Value {
        (0..self.below(5)).map(|_| make(self, depth)).collect()
    }

    fn map(&mut self, depth: usize, make: fn(&mut Self, usize) -> Value) -> Value {
        (0..self.below(5)).map(|_| (self.word(), make(self, depth))).collect::<Map<_, _>>().into()
    }

    fn schema(&mut self, depth: usize) -> Value {
        if depth == 0 || self.below(12) == 0 {
            return self.junk(depth);
        }
        let mut keywords = Map::new();
        for _ in 0..1 + self.below(5) {
            let keyword = KEYWORDS[self.below(KEYWORDS.len())];
            let value = match keyword {
                _ if self.below(10) == 0 => self.junk(depth - 1),
                "type" => Value::from(WORDS[self.below(7)]),
                "$ref" => Value::from(WORDS[20 + self.below(4)]),
                "properties" | "patternProperties" | "$defs" | "definitions" => self.map(depth - 1, Self::schema),
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => self.list(depth - 1, Self::schema),
                "items" | "additionalProperties" | "additionalItems" => self.schema(depth - 1),
                "enum" | "required" | "examples" => self.list(0, Self::junk),
                _ => self.junk(1),
            };
            keywords.insert(keyword.to_owned(), value);
        }
        Value::Object(keywords)
    }
}

#[test]
fn random_schemas_give_bounded_closed_declarations() {
    let mut generator = Generator(7);
    let (mut short, mut long) = (0, 0);
    for _ in 0..1000 {
        let (input, output) = (generator.schema(6), generator.schema(4));
        let description = generator.word();
        let shown = function(&description, &input, Some(&output)).declaration(2);
        assert!(shown.len() <= FUNCTION_BYTES, "{} bytes of {input}", shown.len());
        assert_closed(&shown);
        assert_eq!(function(&description, &input.clone(), Some(&output)).declaration(2), shown);
        if shown.len() < 200 { short += 1 } else { long += 1 }
    }
    // The random schemas are not all trivial.
    assert!(short > 100 && long > 100, "{short} short, {long} long");
}
