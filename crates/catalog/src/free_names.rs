//! Names for many things, no two alike.

use std::collections::{BTreeMap, BTreeSet};

use contract::limits::MAX_IDENTIFIER_BYTES;

/// Names given out once each, with a number where one was taken.
pub(crate) struct FreeNames {
    is_reserved: fn(&str) -> bool,
    taken: BTreeSet<String>,
    /// The number to try next. Without it, a server whose names all collide takes quadratic time.
    numbers: BTreeMap<String, usize>,
}

impl FreeNames {
    pub(crate) fn new(is_reserved: fn(&str) -> bool) -> Self {
        Self { is_reserved, taken: BTreeSet::new(), numbers: BTreeMap::new() }
    }

    /// The name itself, or with the first number that makes it free, in a length that can be written. ASCII only.
    pub(crate) fn take(&mut self, wanted: &str) -> String {
        let wanted = cut(wanted, MAX_IDENTIFIER_BYTES);
        let number = self.numbers.entry(wanted.to_owned()).or_insert(1);
        loop {
            let name = numbered(wanted, *number);
            *number += 1;
            if !(self.is_reserved)(&name) && self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

fn numbered(name: &str, number: usize) -> String {
    if number == 1 {
        return name.to_owned();
    }
    let number = number.to_string();
    format!("{}{number}", cut(name, MAX_IDENTIFIER_BYTES - number.len()))
}

/// Names are ASCII, so any byte is a place to cut.
fn cut(name: &str, limit: usize) -> &str {
    name.get(..limit).unwrap_or(name)
}
