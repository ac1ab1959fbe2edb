//! Comments on a field with what its type cannot express: description, bounds, default.

use serde_json::Value;

use super::refs;
use crate::text::{brief, clean, cut};

const MAX_TEXT: usize = 240;
const MAX_FACTS: usize = 200;
const MAX_VALUE: usize = 60;

/// The maximum number of schemas that describe the same field: a reference and its target, a choice and its only
/// member.
const MAX_LAYERS: usize = 5;

/// Returns a field's description.
pub(super) fn text(root: &Value, schemas: &[&Value]) -> String {
    let text = find(&all_layers(root, schemas), "description").and_then(Value::as_str).unwrap_or_default();
    clean(text, MAX_TEXT)
}

/// Returns a field's bounds, format, default and examples.
pub(super) fn facts(root: &Value, schemas: &[&Value]) -> String {
    let layers = all_layers(root, schemas);
    let mut facts = own_facts(&layers);
    if let Some(item) = find(&layers, "items").filter(|items| items.is_object()) {
        let each = own_facts(&self::layers(root, item));
        facts.extend((!each.is_empty()).then(|| format!("each {}", each.join(", "))));
    }
    cut(facts.join(", "), MAX_FACTS)
}

fn all_layers<'a>(root: &'a Value, schemas: &[&'a Value]) -> Vec<&'a Value> {
    schemas.iter().take(MAX_LAYERS).flat_map(|schema| layers(root, schema)).collect()
}

fn layers<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let mut layers = vec![schema];
    let mut last = schema;
    while layers.len() < MAX_LAYERS {
        let next = match last.get("$ref") {
            Some(reference) => refs::resolve(root, reference),
            None => ["anyOf", "oneOf", "allOf"].iter().find_map(|key| only_member(last.get(key)?)),
        };
        let Some(next) = next else { break };
        layers.push(next);
        last = next;
    }
    layers
}

/// Returns the only alternative that is not `null`.
fn only_member(list: &Value) -> Option<&Value> {
    let list = list.as_array().filter(|list| list.len() <= 2)?;
    let mut members = list.iter().filter(|member| member.get("type").and_then(Value::as_str) != Some("null"));
    members.next().filter(|_| members.next().is_none())
}

fn find<'a>(layers: &[&'a Value], key: &str) -> Option<&'a Value> {
    layers.iter().find_map(|layer| layer.get(key))
}

fn own_facts(layers: &[&Value]) -> Vec<String> {
    let text = |key: &str| find(layers, key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let is_set = |key: &str| find(layers, key) == Some(&Value::Bool(true));
    let mut facts = Vec::new();
    let mut add = |fact: Option<String>| facts.extend(fact);
    add(is_set("deprecated").then(|| "deprecated".to_owned()));
    add(find(layers, "type").and_then(kind));
    add(text("format").map(|format| clean(format, 32)));
    add(text("contentMediaType").map(|media| clean(media, 32)));
    add(text("contentEncoding").map(|encoding| clean(encoding, 32)));
    add(range(limit(layers, "minimum", "exclusiveMinimum", ">"), limit(layers, "maximum", "exclusiveMaximum", "<")));
    add(number(layers, "multipleOf").map(|step| format!("multiple of {step}")));
    add(count(layers, "minLength", "maxLength").map(|range| format!("length {range}")));
    add(count(layers, "minItems", "maxItems").map(|range| format!("{range} items")));
    add(is_set("uniqueItems").then(|| "unique".to_owned()));
    add(text("pattern").map(|pattern| format!("matches /{}/", clean(pattern, MAX_VALUE))));
    let keys = find(layers, "patternProperties").and_then(Value::as_object).and_then(|patterns| patterns.keys().next());
    add(keys.map(|pattern| format!("keys match /{}/", clean(pattern, MAX_VALUE))));
    let default = find(layers, "default").filter(|value| !value.is_null());
    add(default.map(|value| format!("default {}", brief(value, MAX_VALUE))));
    let example = find(layers, "examples").and_then(|examples| examples.get(0)).or_else(|| find(layers, "example"));
    add(example.filter(|value| !value.is_null()).map(|value| format!("e.g. {}", brief(value, MAX_VALUE))));
    facts
}

/// Returns the part of `type` that TypeScript cannot express.
fn kind(declared: &Value) -> Option<String> {
    const KNOWN: [&str; 14] = [
        "string", "str", "number", "float", "double", "boolean", "bool", "null", "array", "list", "object", "dict",
        "any", "",
    ];
    match declared {
        Value::String(word) if word == "int" => Some("integer".to_owned()),
        Value::String(word) => (!KNOWN.contains(&word.as_str())).then(|| clean(word, 32)),
        Value::Array(words) => {
            let has = |wanted: &str| words.iter().take(8).any(|word| word == wanted);
            (has("integer") && !has("number")).then(|| "integer".to_owned())
        }
        _ => None,
    }
}

/// Returns a bound, unless it is the range of safe integers, which generators write for "no bound".
fn number<'a>(layers: &[&'a Value], key: &str) -> Option<&'a Value> {
    find(layers, key).filter(|value| value.as_f64().is_some_and(|number| number.abs() < 9e15))
}

/// Returns a bound and its sign. Draft 4 made a bound exclusive with a flag beside it.
fn limit(layers: &[&Value], inclusive: &str, exclusive: &str, sign: &str) -> Option<(String, String)> {
    if let Some(bound) = number(layers, exclusive) {
        return Some((sign.to_owned(), bound.to_string()));
    }
    let bound = number(layers, inclusive)?.to_string();
    let is_exclusive = find(layers, exclusive) == Some(&Value::Bool(true));
    Some((if is_exclusive { sign.to_owned() } else { format!("{sign}=") }, bound))
}

fn range(low: Option<(String, String)>, high: Option<(String, String)>) -> Option<String> {
    match (low, high) {
        (Some((above, low)), Some((below, high))) if above == ">=" && below == "<=" => Some(format!("{low}..{high}")),
        (Some((above, low)), Some((below, high))) => Some(format!("{above} {low}, {below} {high}")),
        (Some((sign, bound)), None) | (None, Some((sign, bound))) => Some(format!("{sign} {bound}")),
        (None, None) => None,
    }
}

fn count(layers: &[&Value], least: &str, most: &str) -> Option<String> {
    let bound = |key: &str| find(layers, key).and_then(Value::as_u64).map(|bound| bound.to_string());
    let least = bound(least).filter(|bound| bound != "0");
    match (least, bound(most)) {
        (Some(least), Some(most)) if least == most => Some(most),
        (Some(least), Some(most)) => Some(format!("{least}..{most}")),
        (Some(least), None) => Some(format!(">= {least}")),
        (None, Some(most)) => Some(format!("<= {most}")),
        (None, None) => None,
    }
}
