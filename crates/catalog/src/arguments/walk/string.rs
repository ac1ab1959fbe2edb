//! String keywords.

use serde_json::Value;

use super::super::show;
use super::super::verdict::Verdict;
use super::Walk;

pub(super) fn check<'a>(walk: &mut Walk<'a>, keyword: &str, argument: &'a Value, text: &'a str) -> Verdict {
    match keyword {
        // Counting characters reads the whole text.
        "minLength" | "maxLength" => match walk.spend_on_input(text.len() / 1024) {
            Ok(()) => check_length(walk, keyword, argument, text.chars().count(), ["character", "characters"]),
            Err(spent) => spent,
        },
        "pattern" => check_pattern(walk, argument, text),
        _ => Verdict::Fits,
    }
}

/// Checks a `min…` or `max…` keyword against a count.
pub(super) fn check_length(
    walk: &mut Walk<'_>,
    keyword: &str,
    argument: &Value,
    length: usize,
    unit: [&str; 2],
) -> Verdict {
    let Some(bound) = count(argument) else { return Verdict::Unknown };
    let [one, many] = unit;
    let unit = if bound == 1 { one } else { many };
    match keyword.starts_with("min") {
        true if length < bound => walk.fail(|| format!("expected at least {bound} {unit}, was {length}")),
        false if length > bound => walk.fail(|| format!("expected at most {bound} {unit}, was {length}")),
        _ => Verdict::Fits,
    }
}

fn check_pattern<'a>(walk: &mut Walk<'a>, argument: &'a Value, text: &'a str) -> Verdict {
    let Some(pattern) = argument.as_str() else { return Verdict::Unknown };
    match walk.patterns.matches(pattern, text) {
        Ok(true) => Verdict::Fits,
        Ok(false) => walk.fail(|| {
            format!("expected text that matches {}, was {}", show::quoted(pattern, 100), show::quoted(text, 60))
        }),
        Err(unmatched) => walk.unmatched(unmatched),
    }
}

/// Returns a bound on a length. A bound larger than memory is never reached.
fn count(argument: &Value) -> Option<usize> {
    let float = argument.as_f64()?;
    if float < 0.0 || float.fract() != 0.0 {
        return None;
    }
    // Float casts saturate.
    Some(float as usize)
}
