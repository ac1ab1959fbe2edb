//! Converts a JSON Schema to types. Accepts every draft and common mistakes of servers; a part that cannot be converted
//! becomes `unknown`.
//!
//! The work is bounded for every schema: recursion is at most [`MAX_DEPTH`] deep, at most [`MAX_STEPS`] subschemas and
//! enum values are converted, and the target of a `$ref` is converted once, as a definition.

mod array;
mod literal;
mod object;
mod reference;

use serde_json::{Map, Value};

use super::refs;
use super::shape::{Type, Word, intersect, union};

/// The maximum recursion depth.
const MAX_DEPTH: usize = 32;

/// The maximum number of subschemas and enum values that are converted for one schema.
const MAX_STEPS: usize = 1024;

/// The maximum number of members of an `allOf` that are converted.
const MAX_ALL_OF: usize = 64;

/// The maximum number of members of an `anyOf` or `oneOf` that are converted.
const MAX_CHOICES: usize = 32;

/// The maximum number of names in a `type` array that are read. JSON Schema has seven.
const MAX_TYPE_NAMES: usize = 8;

/// How much of a schema is converted and printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detail {
    /// The maximum nesting depth of objects.
    pub(super) levels: usize,
    /// The maximum number of definitions, not counting the schema itself.
    pub(super) definitions: usize,
    /// The maximum number of fields of one object.
    pub(super) fields: usize,
    /// The maximum total length of the literals of one enum, as printed.
    pub(super) literal_bytes: usize,
    /// The maximum length of a nested field's description; 0 prints none. Descriptions of top-level fields are printed
    /// elsewhere and have their own limit.
    pub(super) note_bytes: usize,
}

/// The result of converting a schema. The first definition is the schema itself, the others are the targets of its
/// references.
pub(super) struct Shape<'a> {
    pub(super) root: &'a Value,
    pub(super) definitions: Vec<Definition<'a>>,
    /// Whether a part of the schema was omitted, for any reason.
    pub(super) is_cut: bool,
    /// Whether [`MAX_STEPS`] was reached, so that the rest of the schema was omitted.
    pub(super) is_exhausted: bool,
}

pub(super) struct Definition<'a> {
    pub(super) name: String,
    pub(super) value: Type<'a>,
}

/// Converts a schema. `name` becomes the name of its first definition.
pub(super) fn shape<'a>(root: &'a Value, name: &str, detail: Detail) -> Shape<'a> {
    let mut builder =
        ShapeBuilder { root, detail, steps: MAX_STEPS, is_cut: false, schemas: Vec::new(), built: Vec::new() };
    builder.define(root, name);
    let mut next = 0;
    while let Some(schema) = builder.schemas.get(next).copied() {
        let value = builder.schema(schema, Nesting { levels: detail.levels, depth: 0 });
        if let Some(definition) = builder.built.get_mut(next) {
            definition.value = value;
        }
        next += 1;
    }
    Shape { root, definitions: builder.built, is_cut: builder.is_cut, is_exhausted: builder.steps == 0 }
}

/// How deep the builder is in a definition.
#[derive(Clone, Copy)]
struct Nesting {
    /// How many more levels of objects are converted.
    levels: usize,
    /// The recursion depth.
    depth: usize,
}

impl Nesting {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

struct ShapeBuilder<'a> {
    root: &'a Value,
    detail: Detail,
    /// How many steps are left of [`MAX_STEPS`].
    steps: usize,
    is_cut: bool,
    /// The definitions' schemas, in the order of `built`; those after the current one are still to be built.
    schemas: Vec<&'a Value>,
    built: Vec<Definition<'a>>,
}

impl<'a> ShapeBuilder<'a> {
    fn schema(&mut self, schema: &'a Value, nesting: Nesting) -> Type<'a> {
        if nesting.depth > MAX_DEPTH || !self.step() {
            return self.omit();
        }
        match schema {
            Value::Bool(false) => Type::NEVER,
            Value::Object(keywords) => self.keywords(schema, keywords, nesting.deeper()),
            _ => Type::UNKNOWN,
        }
    }

    fn keywords(&mut self, schema: &'a Value, keywords: &'a Map<String, Value>, nesting: Nesting) -> Type<'a> {
        let list = |key: &str| keywords.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut value = match keywords.get("$ref") {
            Some(reference) if refs::is_bare(schema) => self.reference(reference, nesting),
            Some(reference) => self.expanded(reference, nesting),
            None => Type::UNKNOWN,
        };
        let parts = list("allOf");
        self.is_cut |= parts.len() > MAX_ALL_OF;
        for part in parts.iter().take(MAX_ALL_OF) {
            let part = match part.get("$ref") {
                Some(reference) if refs::is_bare(part) => self.expanded(reference, nesting),
                _ => self.schema(part, nesting),
            };
            value = intersect(value, part);
        }
        value = intersect(value, self.declared(keywords, nesting));
        for key in ["anyOf", "oneOf"] {
            let choices = list(key);
            if !choices.is_empty() {
                value = intersect(value, self.choice(choices, nesting));
            }
        }
        if keywords.get("nullable") == Some(&Value::Bool(true)) {
            value = union(vec![value, Type::Word(Word::Null)]);
        }
        value
    }

    fn choice(&mut self, choices: &'a [Value], nesting: Nesting) -> Type<'a> {
        let mut members: Vec<Type<'a>> =
            choices.iter().take(MAX_CHOICES).map(|choice| self.schema(choice, nesting)).collect();
        if choices.len() > MAX_CHOICES {
            self.is_cut = true;
            members.push(Type::More(Word::Unknown, choices.len() - MAX_CHOICES));
        }
        union(members)
    }

    /// Returns the type that `const`, `enum` and `type` declare. The caller adds `$ref`, `allOf`, `anyOf` and `oneOf`.
    fn declared(&mut self, keywords: &'a Map<String, Value>, nesting: Nesting) -> Type<'a> {
        if let Some(value) = keywords.get("const") {
            return literal::of(value);
        }
        if let Some(values) = keywords.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty()) {
            return literal::union_of(self, values, keywords.get("type"));
        }
        match keywords.get("type") {
            Some(Value::String(word)) => self.named(word, keywords, nesting),
            Some(Value::Array(words)) => union(
                words
                    .iter()
                    .take(MAX_TYPE_NAMES)
                    .filter_map(Value::as_str)
                    .map(|word| self.named(word, keywords, nesting))
                    .collect(),
            ),
            _ => self.named(implied(keywords), keywords, nesting),
        }
    }

    /// Returns the type for a name in `type`. Also accepts names that JSON Schema does not define but servers use.
    fn named(&mut self, word: &str, keywords: &'a Map<String, Value>, nesting: Nesting) -> Type<'a> {
        match word {
            "string" | "str" => Type::Word(Word::String),
            "number" | "integer" | "int" | "float" | "double" => Type::Word(Word::Number),
            "boolean" | "bool" => Type::Word(Word::Boolean),
            "null" => Type::Word(Word::Null),
            "array" | "list" => array::of(self, keywords, nesting),
            "object" | "dict" => object::of(self, keywords, nesting),
            _ => Type::UNKNOWN,
        }
    }

    /// Records that a part of the schema is omitted, and returns the type that replaces it.
    fn omit(&mut self) -> Type<'a> {
        self.is_cut = true;
        Type::UNKNOWN
    }

    /// Counts one step. Returns false if none is left.
    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }
}

/// Returns the `type` name that the other keywords of a schema without `type` imply, or an empty string.
fn implied(keywords: &Map<String, Value>) -> &'static str {
    const IMPLIED: [(&str, &[&str]); 4] = [
        ("object", &["properties", "required", "additionalProperties", "patternProperties"]),
        ("array", &["items", "prefixItems", "minItems", "maxItems"]),
        ("string", &["pattern", "minLength", "maxLength"]),
        ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ];
    // In draft 3, `required` is a boolean in the property's own schema and says nothing about its type.
    let has = |key: &&str| keywords.get(*key).is_some_and(|value| *key != "required" || value.is_array());
    IMPLIED.iter().find(|(_, keys)| keys.iter().any(has)).map_or("", |(word, _)| word)
}
