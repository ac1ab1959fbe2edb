//! Keywords about arrays.

use serde_json::Value;

use super::path::Segment;
use super::verdict::Verdict;
use super::walk::{Keywords, Walk};

/// Longer arrays are not searched for equal items: that costs the square of their length.
const MAX_UNIQUE: usize = 100;

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
            // Before 2020-12 a list of `items` was what is `prefixItems` now, and `additionalItems` what is `items`.
            ("prefixItems" | "items", Value::Array(schemas)) => self.each(items.iter().zip(schemas).enumerate()),
            ("items", schema) => self.after("prefixItems", keywords, schema, items),
            ("additionalItems", schema) if keywords.get("items").is_some_and(Value::is_array) => {
                self.after("items", keywords, schema, items)
            }
            _ => Verdict::Fits,
        }
    }

    /// The items that the list under another keyword leaves.
    fn after(&mut self, prefix: &str, keywords: &'a Keywords, schema: &'a Value, items: &'a [Value]) -> Verdict {
        let taken = keywords.get(prefix).and_then(Value::as_array).map_or(0, Vec::len);
        let rest = items.get(taken..).unwrap_or_default();
        self.each((taken..).zip(rest.iter().map(|item| (item, schema))))
    }

    fn each(&mut self, pairs: impl Iterator<Item = (usize, (&'a Value, &'a Value))>) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (position, (item, schema)) in pairs {
            if !self.spend(1) {
                return verdict.and(Verdict::Unknown);
            }
            verdict = verdict.and(self.part(Segment::Index(position), schema, item));
        }
        verdict
    }

    fn unique(&mut self, items: &'a [Value]) -> Verdict {
        if items.len() > MAX_UNIQUE {
            return Verdict::Unknown;
        }
        let mut verdict = Verdict::Fits;
        for (position, item) in items.iter().enumerate() {
            for (earlier, other) in items.iter().enumerate().take(position) {
                let differs = self.equal(other, item).not();
                if differs == Verdict::Fails {
                    return self.fail(|| format!("expected no two equal items, but [{position}] is [{earlier}] again"));
                }
                verdict = verdict.and(differs);
            }
        }
        verdict
    }
}
