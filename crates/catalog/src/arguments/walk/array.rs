//! Array keywords.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::Value;

use super::super::budget::Excess;
use super::super::path::Segment;
use super::super::verdict::Verdict;
use super::equal::{integer, same};
use super::string::check_length;
use super::{Keywords, Walk};

/// The maximum depth to which two items are compared.
const MAX_COMPARED_DEPTH: usize = 64;

pub(super) fn check<'a>(
    walk: &mut Walk<'a>,
    keyword: &str,
    keywords: &'a Keywords,
    argument: &'a Value,
    items: &'a [Value],
) -> Verdict {
    match (keyword, argument) {
        ("minItems" | "maxItems", _) => check_length(walk, keyword, argument, items.len(), ["item", "items"]),
        ("uniqueItems", Value::Bool(true)) => check_unique(walk, items),
        // Before draft 2020-12, a list under `items` had the meaning of `prefixItems`, and `additionalItems` that
        // of `items`.
        ("prefixItems" | "items", Value::Array(schemas)) => check_each(walk, items.iter().zip(schemas).enumerate()),
        ("items", schema) => check_after(walk, "prefixItems", keywords, schema, items),
        ("additionalItems", schema) if keywords.get("items").is_some_and(Value::is_array) => {
            check_after(walk, "items", keywords, schema, items)
        }
        _ => Verdict::Fits,
    }
}

/// Checks the items after those that the list under the keyword `prefix` covers.
fn check_after<'a>(
    walk: &mut Walk<'a>,
    prefix: &str,
    keywords: &'a Keywords,
    schema: &'a Value,
    items: &'a [Value],
) -> Verdict {
    let taken = keywords.get(prefix).and_then(Value::as_array).map_or(0, Vec::len);
    let rest = items.get(taken..).unwrap_or_default();
    check_each(walk, (taken..).zip(rest.iter().map(|item| (item, schema))))
}

fn check_each<'a>(walk: &mut Walk<'a>, pairs: impl Iterator<Item = (usize, (&'a Value, &'a Value))>) -> Verdict {
    let mut verdict = Verdict::Fits;
    for (position, (item, schema)) in pairs {
        if let Err(spent) = walk.spend_on_input(1) {
            return verdict.and(spent);
        }
        verdict = verdict.and(walk.part(Segment::Index(position), schema, item));
    }
    verdict
}

/// Compares only items with equal hashes, so that the cost stays proportional to the input.
fn check_unique<'a>(walk: &mut Walk<'a>, items: &'a [Value]) -> Verdict {
    let hashes = RandomState::new();
    let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
    for (position, item) in items.iter().enumerate() {
        let hash = match hash(walk, &hashes, item, MAX_COMPARED_DEPTH) {
            Ok(hash) => hash,
            Err(spent) => return spent,
        };
        let alike = seen.entry(hash).or_default();
        for &earlier in alike.iter() {
            let Some(other) = items.get(earlier) else { continue };
            if same(other, item) {
                return walk.fail(|| format!("expected unique items, but [{position}] equals [{earlier}]"));
            }
        }
        alike.push(position);
    }
    Verdict::Fits
}

/// Hashes a value so that equal values have equal hashes; `1` and `1.0` are equal.
fn hash(walk: &mut Walk<'_>, hashes: &RandomState, value: &Value, depth: usize) -> Result<u64, Verdict> {
    walk.spend_on_input(1)?;
    let Some(depth) = depth.checked_sub(1) else { return Err(walk.too_much(Excess::Depth)) };
    Ok(match value {
        Value::Null => hashes.hash_one(0_u8),
        Value::Bool(flag) => hashes.hash_one((1_u8, flag)),
        Value::Number(number) => match integer(number) {
            Some(integer) => hashes.hash_one((2_u8, integer)),
            None => hashes.hash_one((6_u8, number.as_f64().map(f64::to_bits))),
        },
        Value::String(text) => {
            walk.spend_on_input(text.len() / 1024)?;
            hashes.hash_one((3_u8, text))
        }
        Value::Array(items) => {
            let mut all = hashes.build_hasher();
            for item in items {
                all.write_u64(hash(walk, hashes, item, depth)?);
            }
            hashes.hash_one((4_u8, all.finish()))
        }
        // The order of names does not matter.
        Value::Object(fields) => {
            let mut sum = 0_u64;
            for (name, field) in fields {
                let field = hash(walk, hashes, field, depth)?;
                sum = sum.wrapping_add(hashes.hash_one((name, field)));
            }
            hashes.hash_one((5_u8, sum))
        }
    })
}
