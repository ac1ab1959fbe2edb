//! Regular expressions of schemas, run by an engine that takes linear time and compiled within a size.
//!
//! What that engine does not know (look-around, back references) is not enforced.

use std::borrow::Cow;
use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Different patterns one check uses; those after are not enforced.
const MAX_PATTERNS: usize = 32;

const MAX_PATTERN_BYTES: usize = 512;

/// A compiled pattern. Matching takes at worst this times the text.
const MAX_COMPILED_BYTES: usize = 64 << 10;

/// The engine's scratch memory for one pattern.
const MAX_CACHE_BYTES: usize = 256 << 10;

/// Text that one check matches with patterns.
const MAX_MATCHED_BYTES: usize = 64 << 10;

/// Places of a schema that are searched for patterns.
const MAX_PLACES: usize = 10_000;

/// Patterns compiled before the check. None for those that cannot be.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(BTreeMap<String, Option<Regex>>);

impl Known {
    /// Whatever looks like a pattern: what is none does no harm but the time.
    pub(super) fn of(schema: &Value) -> Self {
        let mut known = BTreeMap::new();
        let mut places = vec![schema];
        for _ in 0..MAX_PLACES {
            let Some(place) = places.pop().filter(|_| known.len() < MAX_PATTERNS) else { break };
            let mut learn = |text: &str| known.entry(text.to_owned()).or_insert_with(|| compile(text)).is_some();
            place.get("pattern").and_then(Value::as_str).map(&mut learn);
            let names = place.get("patternProperties").and_then(Value::as_object);
            names.into_iter().flatten().take(MAX_PATTERNS).for_each(|(name, _)| {
                learn(name);
            });
            match place {
                Value::Array(items) => places.extend(items.iter().take(MAX_PLACES)),
                Value::Object(fields) => places.extend(fields.values().take(MAX_PLACES)),
                _ => {}
            }
        }
        Self(known)
    }
}

/// The patterns one check has met, and how much it may still match.
#[derive(Debug)]
pub(super) struct Used<'a> {
    known: &'a Known,
    /// Borrowed where known: a copy of a pattern starts without the states it has found.
    met: Vec<(&'a str, Cow<'a, Option<Regex>>)>,
    bytes: usize,
}

impl<'a> Used<'a> {
    pub(super) fn new(known: &'a Known) -> Self {
        Self { known, met: Vec::new(), bytes: MAX_MATCHED_BYTES }
    }

    /// None where that cannot be said.
    pub(super) fn matches(&mut self, pattern: &'a str, text: &str) -> Option<bool> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return None;
        }
        // Counted alike whether the pattern was known or not, so that the answer is the same.
        self.bytes = self.bytes.checked_sub(text.len())?;
        if let Some((_, compiled)) = self.met.iter().find(|(met, _)| *met == pattern) {
            return (**compiled).as_ref().map(|pattern| pattern.is_match(text));
        }
        if self.met.len() >= MAX_PATTERNS {
            return None;
        }
        let compiled = self.known.0.get(pattern).map_or_else(|| Cow::Owned(compile(pattern)), Cow::Borrowed);
        let matches = (*compiled).as_ref().map(|pattern| pattern.is_match(text));
        self.met.push((pattern, compiled));
        matches
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    RegexBuilder::new(&translated(pattern)?)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .nest_limit(50)
        .build()
        .ok()
}

/// From JavaScript's syntax to the engine's, where the same text would mean something else.
/// None for what has no meaning in both.
fn translated(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match (letters.next()?, in_class) {
                // Digits and word characters are ASCII.
                ('d', _) => out.push_str("[0-9]"),
                ('D', _) => out.push_str("[^0-9]"),
                ('w', _) => out.push_str("[0-9A-Za-z_]"),
                ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                ('b', false) => out.push_str(r"(?-u:\b)"),
                // Not between ASCII words is anywhere else, which may split a character.
                ('B', false) => return None,
                (other, _) => out.extend(['\\', other]),
            },
            // Sets inside sets and operations on them are the engine's own.
            '[' | '&' | '~' if in_class => out.extend(['\\', letter]),
            '[' => {
                in_class = true;
                out.push('[');
                out.extend(letters.next_if_eq(&'^'));
                // An empty set: the engine would take the bracket for a member.
                if letters.peek() == Some(&']') {
                    return None;
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            _ => out.push(letter),
        }
    }
    Some(out)
}
