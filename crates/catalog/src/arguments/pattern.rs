//! Regular expressions of schemas, run by an engine that takes linear time and compiled within a size.
//!
//! What that engine does not know (look-around, back references) is not enforced.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use contract::limits::{MAX_MATCHED_BYTES, MAX_MATCHED_PATTERNS};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Patterns that are compiled before a check. Others are compiled when they are met.
const MAX_KNOWN: usize = 32;

const MAX_PATTERN_BYTES: usize = 512;

/// A compiled pattern, and one that counts as simple. Matching takes at worst this times the text.
const MAX_COMPILED_BYTES: usize = 64 << 10;
const MAX_SIMPLE_BYTES: usize = 16 << 10;

/// What a byte of text counts as where the pattern is not simple.
const COSTLY_WEIGHT: usize = 8;

/// The engine's scratch memory for one pattern.
const MAX_CACHE_BYTES: usize = 256 << 10;

/// Places of a schema that are searched for patterns.
const MAX_PLACES: usize = 10_000;

/// Patterns compiled before the check. None for those that cannot be.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(BTreeMap<String, Option<Compiled>>);

/// A pattern, and what a byte of text that is matched with it counts as.
#[derive(Clone, Debug)]
struct Compiled {
    regex: Regex,
    weight: usize,
}

/// Why it cannot be said whether a text matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmatched {
    /// The pattern is none, or none that this engine knows.
    BadPattern,
    TooMuchText,
    TooManyPatterns,
}

impl Known {
    /// Whatever looks like a pattern: what is none does no harm but the time.
    pub(super) fn of(schema: &Value) -> Self {
        let mut known = BTreeMap::new();
        let mut places = vec![schema];
        for _ in 0..MAX_PLACES {
            let Some(place) = places.pop().filter(|_| known.len() < MAX_KNOWN) else { break };
            let mut learn = |text: &str| known.entry(text.to_owned()).or_insert_with(|| compile(text)).is_some();
            place.get("pattern").and_then(Value::as_str).map(&mut learn);
            let names = place.get("patternProperties").and_then(Value::as_object);
            names.into_iter().flatten().take(MAX_KNOWN).for_each(|(name, _)| {
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
    met: HashMap<&'a str, Cow<'a, Option<Compiled>>>,
    /// Left to be matched.
    bytes: usize,
    /// Values of the input.
    values: usize,
}

impl<'a> Used<'a> {
    pub(super) fn new(known: &'a Known, values: usize) -> Self {
        Self { known, met: HashMap::new(), bytes: MAX_MATCHED_BYTES, values }
    }

    /// Says how many values the input has.
    pub(super) fn expect(&mut self, values: usize) {
        self.values = values;
    }

    /// The answer does not depend on what was known beforehand.
    pub(super) fn matches(&mut self, pattern: &'a str, text: &str) -> Result<bool, Unmatched> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(Unmatched::BadPattern);
        }
        if !self.met.contains_key(pattern) {
            if self.met.len() >= MAX_MATCHED_PATTERNS {
                // An input of fewer values than that can need so many only of a schema that is odd.
                let by_input = self.values > MAX_MATCHED_PATTERNS;
                return Err(if by_input { Unmatched::TooManyPatterns } else { Unmatched::BadPattern });
            }
            let compiled = self.known.0.get(pattern).map_or_else(|| Cow::Owned(compile(pattern)), Cow::Borrowed);
            self.met.insert(pattern, compiled);
        }
        let compiled = self.met.get(pattern).and_then(|compiled| (**compiled).as_ref()).ok_or(Unmatched::BadPattern)?;
        let cost = text.len().saturating_mul(compiled.weight);
        self.bytes = self.bytes.checked_sub(cost).ok_or(Unmatched::TooMuchText)?;
        Ok(compiled.regex.is_match(text))
    }
}

fn compile(pattern: &str) -> Option<Compiled> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    let translated = translated(pattern)?;
    let build = |size: usize| {
        RegexBuilder::new(&translated).size_limit(size).dfa_size_limit(MAX_CACHE_BYTES).nest_limit(50).build().ok()
    };
    let simple = build(MAX_SIMPLE_BYTES).map(|regex| Compiled { regex, weight: 1 });
    simple.or_else(|| build(MAX_COMPILED_BYTES).map(|regex| Compiled { regex, weight: COSTLY_WEIGHT }))
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
