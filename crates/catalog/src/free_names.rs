//! Names for many things, no two alike.

use std::collections::{BTreeMap, BTreeSet};

use contract::limits::MAX_IDENTIFIER_BYTES;

/// Room for the number: more names than any catalog has.
const NUMBER_BYTES: usize = 8;

/// Names given out once each, with a number where one was taken.
pub(crate) struct FreeNames {
    is_reserved: fn(&str) -> bool,
    taken: BTreeSet<String>,
    /// The number to try next for a stem. Without it, names that all collide take quadratic time.
    numbers: BTreeMap<String, usize>,
}

impl FreeNames {
    pub(crate) fn new(is_reserved: fn(&str) -> bool) -> Self {
        Self { is_reserved, taken: BTreeSet::new(), numbers: BTreeMap::new() }
    }

    /// The name itself, or with the first number that makes it free, in a length that can be written. ASCII only.
    pub(crate) fn take(&mut self, wanted: &str) -> String {
        let mut name = cut(wanted, MAX_IDENTIFIER_BYTES).to_owned();
        let stem = cut(wanted, MAX_IDENTIFIER_BYTES - NUMBER_BYTES);
        while (self.is_reserved)(&name) || !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(stem.to_owned()).or_insert(2);
            name = format!("{stem}{number}");
            *number += 1;
        }
        name
    }
}

/// Any byte of such a name is a place to cut.
fn cut(name: &str, limit: usize) -> &str {
    name.get(..limit).unwrap_or(name)
}
