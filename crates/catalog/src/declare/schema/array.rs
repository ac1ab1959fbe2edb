//! `type: array`: lists and tuples, with the keywords of every draft.

use serde_json::{Map, Value};

use super::super::shape::{Tuple, Type};
use super::{Nesting, ShapeBuilder};

const MAX_ITEMS: usize = 16;

/// Returns the type of an array with these keywords.
pub(super) fn of<'a>(builder: &mut ShapeBuilder<'a>, keywords: &'a Map<String, Value>, nesting: Nesting) -> Type<'a> {
    let items = keywords.get("items");
    // Draft 2020-12 has `prefixItems` followed by `items`; earlier, the list was `items`, followed by
    // `additionalItems`.
    match (keywords.get("prefixItems"), items) {
        (Some(Value::Array(first)), rest) => tuple(builder, first, rest, keywords, nesting),
        (_, Some(Value::Array(first))) => tuple(builder, first, keywords.get("additionalItems"), keywords, nesting),
        (_, Some(item)) => Type::Array(Box::new(builder.schema(item, nesting))),
        (_, None) => Type::Array(Box::new(Type::UNKNOWN)),
    }
}

fn tuple<'a>(
    builder: &mut ShapeBuilder<'a>,
    first: &'a [Value],
    rest: Option<&'a Value>,
    keywords: &'a Map<String, Value>,
    nesting: Nesting,
) -> Type<'a> {
    let bound = |key: &str| keywords.get(key).and_then(Value::as_u64).and_then(|bound| usize::try_from(bound).ok());
    let items: Vec<Type<'a>> = first.iter().take(MAX_ITEMS).map(|item| builder.schema(item, nesting)).collect();
    let is_full = bound("maxItems").is_some_and(|most| most <= first.len());
    let rest = match rest {
        _ if first.len() > MAX_ITEMS => Some(builder.omit()),
        _ if is_full => None,
        Some(rest) => Some(builder.schema(rest, nesting)).filter(|rest| *rest != Type::NEVER),
        None => Some(Type::UNKNOWN),
    };
    // Strictly, nothing is required without a lower bound, but a tuple is meant to be complete.
    let required = bound("minItems").unwrap_or(items.len()).min(items.len());
    Type::Tuple(Tuple { items, required, rest: rest.map(Box::new) })
}
