//! Allocation of unique names.

use std::collections::{BTreeMap, BTreeSet};

use contract::limits::MAX_IDENTIFIER_BYTES;

/// Space for the number suffix: enough for more names than any catalog has.
const NUMBER_BYTES: usize = 8;

/// Names that are given out once each, with a number appended if one is taken.
pub(crate) struct FreeNames {
    is_reserved: fn(&str) -> bool,
    taken: BTreeSet<String>,
    /// The next number to try for a stem. Without it, many colliding names would take quadratic time.
    numbers: BTreeMap<String, usize>,
}

impl FreeNames {
    pub(crate) fn new(is_reserved: fn(&str) -> bool) -> Self {
        Self { is_reserved, taken: BTreeSet::new(), numbers: BTreeMap::new() }
    }

    /// Takes the name itself, if it is free and needs no change.
    pub(crate) fn take_unchanged(&mut self, wanted: &str) -> bool {
        wanted.len() <= MAX_IDENTIFIER_BYTES && !(self.is_reserved)(wanted) && self.taken.insert(wanted.to_owned())
    }

    /// Returns the name, or the name with the first number that makes it unique, in a bounded length. ASCII only.
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

/// Names are ASCII, so any byte is a character boundary.
fn cut(name: &str, limit: usize) -> &str {
    name.get(..limit).unwrap_or(name)
}
