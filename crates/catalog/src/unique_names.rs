//! Allocation of unique names.

use std::collections::{BTreeMap, BTreeSet};

use contract::limits::MAX_IDENTIFIER_BYTES;

/// Space for the number suffix: enough for more names than any catalog has.
const NUMBER_BYTES: usize = 8;

/// Names that are given out once each, with a number appended if one is taken.
pub(crate) struct UniqueNames {
    max_bytes: usize,
    is_reserved: fn(&str) -> bool,
    taken: BTreeSet<String>,
    /// The next number to try for a stem. Without it, many colliding names would take quadratic time.
    numbers: BTreeMap<String, usize>,
}

impl UniqueNames {
    pub(crate) fn new(is_reserved: fn(&str) -> bool) -> Self {
        Self { max_bytes: MAX_IDENTIFIER_BYTES, is_reserved, taken: BTreeSet::new(), numbers: BTreeMap::new() }
    }

    /// Names of at most this length, none of which is reserved. There is always room for a number.
    pub(crate) fn with_max_bytes(max_bytes: usize) -> Self {
        Self { max_bytes: max_bytes.max(2 * NUMBER_BYTES), ..Self::new(|_| false) }
    }

    /// Takes the name itself, if it is free and needs no change.
    pub(crate) fn take_unchanged(&mut self, wanted: &str) -> bool {
        wanted.len() <= self.max_bytes && !(self.is_reserved)(wanted) && self.taken.insert(wanted.to_owned())
    }

    /// Returns the name, or the name with the first number that makes it unique, in a bounded length. ASCII only.
    pub(crate) fn take(&mut self, wanted: &str) -> String {
        let mut name = cut(wanted, self.max_bytes).to_owned();
        let stem = cut(wanted, self.max_bytes - NUMBER_BYTES);
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
