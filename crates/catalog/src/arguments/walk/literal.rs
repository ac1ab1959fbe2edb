//! `type`, `enum` and `const`: whether the input is the right kind of value.

use contract::spelling::nearest;
use serde_json::{Number, Value};

use super::super::problem::MismatchKind;
use super::super::show;
use super::super::verdict::Verdict;
use super::equal::equal;
use super::{Keywords, Walk};

/// The maximum number of types in one `type`; JSON has seven.
const MAX_TYPES: usize = 16;

/// The maximum number of candidates for "did you mean", the steps that a search for the nearest costs, and the maximum
/// length of a candidate.
const MAX_CANDIDATES: usize = 200;
const NEAREST_STEPS: usize = 100;
const MAX_CANDIDATE_BYTES: usize = 128;

pub(super) fn check<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, input: &'a Value) -> Verdict {
    let mut verdict = Verdict::Fits;
    if let Some(word) = keywords.get("type") {
        verdict = has_type(word, input);
        if verdict == Verdict::Fails {
            let expected = show::expected(keywords).unwrap_or_default();
            return walk.mismatch(MismatchKind::Type, expected, input, json_hint(input));
        }
    }
    if let Some(literal) = keywords.get("const") {
        let equal = equal(walk, literal, input);
        if equal == Verdict::Fails {
            return walk.mismatch(MismatchKind::Literal, show::value(literal), input, String::new());
        }
        verdict = verdict.and(equal);
    }
    match keywords.get("enum") {
        Some(Value::Array(literals)) if !literals.is_empty() => verdict.and(check_enum(walk, literals, input)),
        Some(_) => Verdict::Unknown,
        None => verdict,
    }
}

fn check_enum<'a>(walk: &mut Walk<'a>, literals: &'a [Value], input: &'a Value) -> Verdict {
    let mut best = Verdict::Fails;
    for literal in literals {
        best = best.min(equal(walk, literal, input));
        if best == Verdict::Fits {
            return best;
        }
    }
    if best == Verdict::Fails {
        let words = literals.iter().filter_map(Value::as_str);
        let meant = input.as_str().and_then(|word| suggestion(walk, word, words));
        let hint = meant.map(|word| format!("; did you mean {}?", show::quoted(word, 60))).unwrap_or_default();
        return walk.mismatch(MismatchKind::Literal, show::one_of(literals), input, hint);
    }
    best
}

/// Returns the word that was probably meant, among as many as are worth comparing; `None` if the message has no
/// space for it.
pub(super) fn suggestion<'w>(walk: &mut Walk<'_>, word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if !walk.has_room() || walk.spend(NEAREST_STEPS).is_err() {
        return None;
    }
    let is_worth_it = |other: &&str| {
        let left = walk.letter_pairs.checked_sub(word.len() * other.len());
        walk.letter_pairs = left.unwrap_or(walk.letter_pairs);
        left.is_some()
    };
    let short = words.take(MAX_CANDIDATES).filter(|other| other.len() <= MAX_CANDIDATE_BYTES);
    nearest(word, short.filter(is_worth_it))
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
