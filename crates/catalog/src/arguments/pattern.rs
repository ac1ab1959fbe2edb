//! Regular expressions in schemas, compiled within a size limit and run by an engine that takes linear time.
//!
//! Features that this engine does not support (look-around, back references) are not enforced.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use contract::limits::{MAX_MATCHED_BYTES, MAX_MATCHED_PATTERNS};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// The number of patterns compiled before a check. Others are compiled on first use.
const MAX_KNOWN: usize = 32;

const MAX_PATTERN_BYTES: usize = 512;

/// The maximum size of a compiled pattern, and of one that counts as simple. Matching takes at worst this size times
/// the text.
const MAX_COMPILED_BYTES: usize = 64 << 10;
const MAX_SIMPLE_BYTES: usize = 16 << 10;

/// The weight of a byte of text if the pattern is not simple.
const COSTLY_WEIGHT: usize = 8;

/// The engine's scratch memory for one pattern.
const MAX_CACHE_BYTES: usize = 256 << 10;

/// The maximum number of places in a schema that are searched for patterns.
const MAX_PLACES: usize = 10_000;

/// Patterns compiled before the check; `None` for those that cannot be compiled.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownPatterns(BTreeMap<String, Option<CompiledPattern>>);

/// A compiled pattern and the weight of a byte of text that is matched against it.
#[derive(Clone, Debug)]
struct CompiledPattern {
    regex: Regex,
    weight: usize,
}

/// The reason why a text could not be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchError {
    /// The pattern is invalid, or the engine does not support it.
    BadPattern,
    TooMuchText,
    TooManyPatterns,
}

impl KnownPatterns {
    /// Collects everything that looks like a pattern. A string that is not one only costs time.
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

/// The patterns that one check has used, and the text it may still match.
#[derive(Debug)]
pub(super) struct UsedPatterns<'a> {
    known: &'a KnownPatterns,
    /// Borrowed if compiled before: a clone of a pattern loses its cached states.
    met: HashMap<&'a str, Cow<'a, Option<CompiledPattern>>>,
    /// The bytes that may still be matched.
    bytes: usize,
    /// The number of values in the input.
    values: usize,
}

impl<'a> UsedPatterns<'a> {
    pub(super) fn new(known: &'a KnownPatterns, values: usize) -> Self {
        Self { known, met: HashMap::new(), bytes: MAX_MATCHED_BYTES, values }
    }

    /// Sets the number of values in the input.
    pub(super) fn expect(&mut self, values: usize) {
        self.values = values;
    }

    /// Returns whether the text matches. The result does not depend on which patterns were compiled before.
    pub(super) fn matches(&mut self, pattern: &'a str, text: &str) -> Result<bool, MatchError> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(MatchError::BadPattern);
        }
        if !self.met.contains_key(pattern) {
            if self.met.len() >= MAX_MATCHED_PATTERNS {
                // Only a faulty schema needs this many patterns for an input with fewer values than that.
                let by_input = self.values > MAX_MATCHED_PATTERNS;
                return Err(if by_input { MatchError::TooManyPatterns } else { MatchError::BadPattern });
            }
            let compiled = self.known.0.get(pattern).map_or_else(|| Cow::Owned(compile(pattern)), Cow::Borrowed);
            self.met.insert(pattern, compiled);
        }
        let compiled =
            self.met.get(pattern).and_then(|compiled| (**compiled).as_ref()).ok_or(MatchError::BadPattern)?;
        let cost = text.len().saturating_mul(compiled.weight);
        self.bytes = self.bytes.checked_sub(cost).ok_or(MatchError::TooMuchText)?;
        Ok(compiled.regex.is_match(text))
    }
}

fn compile(pattern: &str) -> Option<CompiledPattern> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    let translated = translated(pattern)?;
    let build = |size: usize| {
        RegexBuilder::new(&translated).size_limit(size).dfa_size_limit(MAX_CACHE_BYTES).nest_limit(50).build().ok()
    };
    let simple = build(MAX_SIMPLE_BYTES).map(|regex| CompiledPattern { regex, weight: 1 });
    simple.or_else(|| build(MAX_COMPILED_BYTES).map(|regex| CompiledPattern { regex, weight: COSTLY_WEIGHT }))
}

/// Translates JavaScript syntax into the engine's, where the same text would have another meaning. `None` if it has no
/// meaning that both share.
fn translated(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match (letters.next()?, in_class) {
                // In JavaScript, digits and word characters are ASCII.
                ('d', _) => out.push_str("[0-9]"),
                ('D', _) => out.push_str("[^0-9]"),
                ('w', _) => out.push_str("[0-9A-Za-z_]"),
                ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                ('b', false) => out.push_str(r"(?-u:\b)"),
                // `\B` for ASCII words can match inside a multi-byte character.
                ('B', false) => return None,
                (other, _) => out.extend(['\\', other]),
            },
            // Nested sets and set operations exist only in the engine's syntax.
            '[' | '&' | '~' if in_class => out.extend(['\\', letter]),
            '[' => {
                in_class = true;
                out.push('[');
                out.extend(letters.next_if_eq(&'^'));
                // An empty set: the engine would read the bracket as a member.
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
