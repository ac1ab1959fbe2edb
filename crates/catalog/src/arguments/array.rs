//! Array keywords.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::Value;

use super::budget::Excess;
use super::equal::{integer, same};
use super::path::Segment;
use super::verdict::Verdict;
use super::walk::{Keywords, Walk};

/// The maximum depth to which two items are compared.
const MAX_COMPARED_DEPTH: usize = 64;

impl<'a> Walk<'a> {
    pub(super) fn array(
        &mut self,
        keyword: &str,
        keywords: &'a Keywords,
        argument: &'a Value,
        items: &'a [Value],
    ) -> Verdict {
        match (keyword, argument) {
            ("minItems" | "maxItems", _) => self.length(keyword, argument, items.len(), ["item", "items"]),
            ("uniqueItems", Value::Bool(true)) => self.unique(items),
            // Before draft 2020-12, a list under `items` had the meaning of `prefixItems`, and `additionalItems` that
            // of `items`.
            ("prefixItems" | "items", Value::Array(schemas)) => self.each(items.iter().zip(schemas).enumerate()),
            ("items", schema) => self.after("prefixItems", keywords, schema, items),
            ("additionalItems", schema) if keywords.get("items").is_some_and(Value::is_array) => {
                self.after("items", keywords, schema, items)
            }
            _ => Verdict::Fits,
        }
    }

    /// Checks the items after those that the list under the keyword `prefix` covers.
    fn after(&mut self, prefix: &str, keywords: &'a Keywords, schema: &'a Value, items: &'a [Value]) -> Verdict {
        let taken = keywords.get(prefix).and_then(Value::as_array).map_or(0, Vec::len);
        let rest = items.get(taken..).unwrap_or_default();
        self.each((taken..).zip(rest.iter().map(|item| (item, schema))))
    }

    fn each(&mut self, pairs: impl Iterator<Item = (usize, (&'a Value, &'a Value))>) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (position, (item, schema)) in pairs {
            if let Err(spent) = self.spend_on_input(1) {
                return verdict.and(spent);
            }
            verdict = verdict.and(self.part(Segment::Index(position), schema, item));
        }
        verdict
    }

    /// Compares only items with equal hashes, so that the cost stays proportional to the input.
    fn unique(&mut self, items: &'a [Value]) -> Verdict {
        let hashes = RandomState::new();
        let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
        for (position, item) in items.iter().enumerate() {
            let hash = match self.hash(&hashes, item, MAX_COMPARED_DEPTH) {
                Ok(hash) => hash,
                Err(spent) => return spent,
            };
            let alike = seen.entry(hash).or_default();
            for &earlier in alike.iter() {
                let Some(other) = items.get(earlier) else { continue };
                if same(other, item) {
                    return self.fail(|| format!("expected unique items, but [{position}] equals [{earlier}]"));
                }
            }
            alike.push(position);
        }
        Verdict::Fits
    }

    /// Hashes a value so that equal values have equal hashes; `1` and `1.0` are equal.
    fn hash(&mut self, hashes: &RandomState, value: &Value, depth: usize) -> Result<u64, Verdict> {
        self.spend_on_input(1)?;
        let Some(depth) = depth.checked_sub(1) else { return Err(self.too_much(Excess::Depth)) };
        Ok(match value {
            Value::Null => hashes.hash_one(0_u8),
            Value::Bool(flag) => hashes.hash_one((1_u8, flag)),
            Value::Number(number) => match integer(number) {
                Some(integer) => hashes.hash_one((2_u8, integer)),
                None => hashes.hash_one((6_u8, number.as_f64().map(f64::to_bits))),
            },
            Value::String(text) => {
                self.spend_on_input(text.len() / 1024)?;
                hashes.hash_one((3_u8, text))
            }
            Value::Array(items) => {
                let mut all = hashes.build_hasher();
                for item in items {
                    all.write_u64(self.hash(hashes, item, depth)?);
                }
                hashes.hash_one((4_u8, all.finish()))
            }
            // The order of names does not matter.
            Value::Object(fields) => {
                let mut sum = 0_u64;
                for (name, field) in fields {
                    let field = self.hash(hashes, field, depth)?;
                    sum = sum.wrapping_add(hashes.hash_one((name, field)));
                }
                hashes.hash_one((5_u8, sum))
            }
        })
    }
}
