//! Resolves `$ref` for declarations. Only references into the same schema are known; everything else is `unknown`.

use serde_json::Value;

use crate::reference::{MAX_REFERENCE, follow};

/// The maximum length of a chain of references.
const MAX_HOPS: usize = 8;

/// Returns the schema that a reference leads to, through references that add nothing else.
pub(super) fn resolve<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let mut target = follow(root, reference)?;
    for _ in 0..MAX_HOPS {
        match target.get("$ref") {
            Some(next) if is_bare(target) => target = follow(root, next)?,
            _ => return Some(target),
        }
    }
    None
}

/// Returns whether a schema is a reference with no other keyword that describes the value.
pub(super) fn is_bare(schema: &Value) -> bool {
    const WORDS: [&str; 14] = [
        "$ref",
        "title",
        "description",
        "default",
        "example",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$id",
        "$defs",
        "definitions",
    ];
    schema.as_object().is_some_and(|fields| {
        fields.len() <= WORDS.len()
            && fields.contains_key("$ref")
            && fields.keys().all(|key| WORDS.contains(&key.as_str()) || key.starts_with("x-"))
    })
}

/// Returns a type name for the target of a reference: the last part of the reference.
pub(super) fn name(reference: &Value) -> String {
    let text = reference.as_str().filter(|text| text.len() <= MAX_REFERENCE).unwrap_or_default();
    let last = text.rsplit(['/', '#']).next().unwrap_or_default();
    let mut name = String::new();
    for word in last.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.extend(letters);
    }
    name.truncate(40);
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) { name } else { format!("Type{name}") }
}
