//! String keywords.

use serde_json::Value;

use super::budget::Excess;
use super::pattern::MatchError;
use super::show;
use super::verdict::Verdict;
use super::walk::Walk;

impl<'a> Walk<'a> {
    pub(super) fn string(&mut self, keyword: &str, argument: &'a Value, text: &'a str) -> Verdict {
        match keyword {
            // Counting characters reads the whole text.
            "minLength" | "maxLength" => match self.spend_on_input(text.len() / 1024) {
                Ok(()) => self.length(keyword, argument, text.chars().count(), ["character", "characters"]),
                Err(spent) => spent,
            },
            "pattern" => self.pattern(argument, text),
            _ => Verdict::Fits,
        }
    }

    /// Checks a `min…` or `max…` keyword against a count.
    pub(super) fn length(&mut self, keyword: &str, argument: &Value, length: usize, unit: [&str; 2]) -> Verdict {
        let Some(bound) = count(argument) else { return Verdict::Unknown };
        let [one, many] = unit;
        let unit = if bound == 1 { one } else { many };
        match keyword.starts_with("min") {
            true if length < bound => self.fail(|| format!("expected at least {bound} {unit}, was {length}")),
            false if length > bound => self.fail(|| format!("expected at most {bound} {unit}, was {length}")),
            _ => Verdict::Fits,
        }
    }

    fn pattern(&mut self, argument: &'a Value, text: &'a str) -> Verdict {
        let Some(pattern) = argument.as_str() else { return Verdict::Unknown };
        match self.patterns.matches(pattern, text) {
            Ok(true) => Verdict::Fits,
            Ok(false) => self.fail(|| {
                format!("expected text that matches {}, was {}", show::quoted(pattern, 100), show::quoted(text, 60))
            }),
            Err(unmatched) => self.unmatched(unmatched),
        }
    }

    pub(super) fn unmatched(&mut self, unmatched: MatchError) -> Verdict {
        match unmatched {
            MatchError::BadPattern => Verdict::Unknown,
            MatchError::TooMuchText => self.too_much(Excess::Text),
            MatchError::TooManyPatterns => self.too_much(Excess::Patterns),
        }
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
