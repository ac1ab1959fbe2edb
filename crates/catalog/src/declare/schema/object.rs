//! `type: object`: fields, required ones first, and the type of other keys.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::super::shape::{Field, Object, Type, union};
use super::{Nesting, ShapeBuilder};
use crate::text::MAX_NAME;

const MAX_PATTERNS: usize = 8;

/// Returns the type of an object with these keywords.
pub(super) fn of<'a>(builder: &mut ShapeBuilder<'a>, keywords: &'a Map<String, Value>, nesting: Nesting) -> Type<'a> {
    let properties = keywords.get("properties").and_then(Value::as_object);
    let declared = properties.map_or(0, Map::len);
    if nesting.levels == 0 && declared > 0 {
        builder.is_cut = true;
        return Type::Object(Object { omitted_fields: declared, ..Object::default() });
    }
    let nesting = Nesting { levels: nesting.levels.saturating_sub(1), ..nesting };
    let fields = fields_of(builder, keywords, properties, nesting);
    let shown = fields.iter().filter(|field| properties.is_some_and(|all| all.contains_key(&field.name))).count();
    let omitted_fields = declared.saturating_sub(shown);
    builder.is_cut |= omitted_fields > 0;
    let rest = rest_of(builder, keywords, fields.is_empty() && omitted_fields == 0, nesting);
    Type::Object(Object { fields, omitted_fields, rest: rest.map(Box::new) })
}

/// Returns the fields, required ones first. Inspects only as many names as are shown.
fn fields_of<'a>(
    builder: &mut ShapeBuilder<'a>,
    keywords: &'a Map<String, Value>,
    properties: Option<&'a Map<String, Value>>,
    nesting: Nesting,
) -> Vec<Field<'a>> {
    let required = keywords.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let known = |name: &str| properties.and_then(|all| all.get(name));
    let first = required.iter().filter_map(Value::as_str).map(|name| (name, known(name), true));
    let others = properties.into_iter().flatten().map(|(name, schema)| (name.as_str(), Some(schema), false));
    let mut seen = HashSet::new();
    let mut fields = Vec::new();
    for (name, schema, required) in first.chain(others).take(builder.detail.fields * 2) {
        if fields.len() == builder.detail.fields {
            break;
        }
        if name.len() > MAX_NAME || !seen.insert(name) {
            continue;
        }
        let value = match schema.or_else(|| keywords.get("additionalProperties")) {
            Some(schema) => builder.schema(schema, nesting),
            None => Type::UNKNOWN,
        };
        fields.push(Field { name: name.to_owned(), required, value, schemas: schema.into_iter().collect() });
    }
    fields
}

/// Returns the type of undeclared keys. `additionalProperties: false` needs no note: readers assume it if fields
/// are declared.
fn rest_of<'a>(
    builder: &mut ShapeBuilder<'a>,
    keywords: &'a Map<String, Value>,
    is_empty: bool,
    nesting: Nesting,
) -> Option<Type<'a>> {
    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
    let mut values: Vec<Type<'a>> =
        patterns.into_iter().flatten().take(MAX_PATTERNS).map(|(_, schema)| builder.schema(schema, nesting)).collect();
    if patterns.is_some_and(|patterns| patterns.len() > MAX_PATTERNS) {
        values.push(builder.omit());
    }
    match keywords.get("additionalProperties") {
        Some(Value::Bool(false)) if is_empty => values.push(Type::NEVER),
        Some(schema @ (Value::Bool(true) | Value::Object(_))) => values.push(builder.schema(schema, nesting)),
        _ => {}
    }
    if values.is_empty() { None } else { Some(union(values)) }
}
