//! `type`, `enum` and `const`: whether the input is the right kind of value.

use contract::spelling::nearest;
use serde_json::{Number, Value};

use super::problem::MismatchKind;
use super::show;
use super::verdict::Verdict;
use super::walk::{Keywords, Walk};

/// The maximum number of types in one `type`; JSON has seven.
const MAX_TYPES: usize = 16;

/// The maximum number of candidates for "did you mean", the steps that a search for the nearest costs, and the maximum
/// length of a candidate.
const MAX_CANDIDATES: usize = 200;
const NEAREST_STEPS: usize = 100;
const MAX_CANDIDATE_BYTES: usize = 128;

impl<'a> Walk<'a> {
    pub(super) fn literal(&mut self, keywords: &'a Keywords, input: &'a Value) -> Verdict {
        let mut verdict = Verdict::Fits;
        if let Some(word) = keywords.get("type") {
            verdict = has_type(word, input);
            if verdict == Verdict::Fails {
                let expected = show::expected(keywords).unwrap_or_default();
                return self.mismatch(MismatchKind::Type, expected, input, json_hint(input));
            }
        }
        if let Some(literal) = keywords.get("const") {
            let equal = self.equal(literal, input);
            if equal == Verdict::Fails {
                return self.mismatch(MismatchKind::Literal, show::value(literal), input, String::new());
            }
            verdict = verdict.and(equal);
        }
        match keywords.get("enum") {
            Some(Value::Array(literals)) if !literals.is_empty() => verdict.and(self.one_of(literals, input)),
            Some(_) => Verdict::Unknown,
            None => verdict,
        }
    }

    fn one_of(&mut self, literals: &'a [Value], input: &'a Value) -> Verdict {
        let mut best = Verdict::Fails;
        for literal in literals {
            best = best.min(self.equal(literal, input));
            if best == Verdict::Fits {
                return best;
            }
        }
        if best == Verdict::Fails {
            let words = literals.iter().filter_map(Value::as_str);
            let meant = input.as_str().and_then(|word| self.suggestion(word, words));
            let hint = meant.map(|word| format!("; did you mean {}?", show::quoted(word, 60))).unwrap_or_default();
            return self.mismatch(MismatchKind::Literal, show::one_of(literals), input, hint);
        }
        best
    }

    /// Returns the word that was probably meant, among as many as are worth comparing; `None` if the message has no
    /// space for it.
    pub(super) fn suggestion<'w>(&mut self, word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
        if !self.has_room() || self.spend(NEAREST_STEPS).is_err() {
            return None;
        }
        let is_worth_it = |other: &&str| {
            let left = self.letter_pairs.checked_sub(word.len() * other.len());
            self.letter_pairs = left.unwrap_or(self.letter_pairs);
            left.is_some()
        };
        let short = words.take(MAX_CANDIDATES).filter(|other| other.len() <= MAX_CANDIDATE_BYTES);
        nearest(word, short.filter(is_worth_it))
    }
}

fn has_type(word: &Value, input: &Value) -> Verdict {
    match word {
        Value::String(word) => is(word, input),
        Value::Array(words) if !words.is_empty() && words.len() <= MAX_TYPES => {
            let is = |word: &Value| word.as_str().map_or(Verdict::Unknown, |word| is(word, input));
            words.iter().map(is).min().unwrap_or(Verdict::Unknown)
        }
        _ => Verdict::Unknown,
    }
}

/// Also accepts type names that JSON Schema does not have but servers write.
fn is(word: &str, input: &Value) -> Verdict {
    match word {
        "string" | "str" | "STRING" => input.is_string().into(),
        "number" | "float" | "double" | "NUMBER" => input.is_number().into(),
        "integer" | "int" | "INTEGER" => input.as_number().is_some_and(is_integer).into(),
        "boolean" | "bool" | "BOOLEAN" => input.is_boolean().into(),
        "null" | "NULL" => input.is_null().into(),
        "array" | "list" | "ARRAY" => input.is_array().into(),
        "object" | "dict" | "OBJECT" => input.is_object().into(),
        _ => Verdict::Unknown,
    }
}

fn is_integer(number: &Number) -> bool {
    number.as_i128().is_some() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// Models often pass the JSON text of a value instead of the value.
fn json_hint(input: &Value) -> String {
    let is_json = input.as_str().is_some_and(|text| text.starts_with(['{', '[']));
    if is_json { "; pass the value itself, not its JSON text".to_owned() } else { String::new() }
}
