//! Number keywords.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::super::show;
use super::super::verdict::Verdict;
use super::equal::{compare, integer};
use super::{Keywords, Walk};

pub(super) fn check<'a>(
    walk: &mut Walk<'a>,
    keyword: &str,
    keywords: &'a Keywords,
    argument: &'a Value,
    input: &'a Number,
) -> Verdict {
    // In draft 4, these were flags of `minimum` and `maximum`.
    let has_flag = |key: &str| keywords.get(key) == Some(&Value::Bool(true));
    let (allowed, words): (fn(Ordering) -> bool, &str) = match keyword {
        "minimum" if has_flag("exclusiveMinimum") => (Ordering::is_gt, "more than"),
        "maximum" if has_flag("exclusiveMaximum") => (Ordering::is_lt, "less than"),
        "minimum" => (Ordering::is_ge, "at least"),
        "maximum" => (Ordering::is_le, "at most"),
        "exclusiveMinimum" | "exclusiveMaximum" if argument.is_boolean() => return Verdict::Fits,
        "exclusiveMinimum" => (Ordering::is_gt, "more than"),
        "exclusiveMaximum" => (Ordering::is_lt, "less than"),
        "multipleOf" => return check_multiple(walk, argument, input),
        _ => return Verdict::Fits,
    };
    match argument.as_number().and_then(|bound| compare(input, bound)) {
        Some(order) if allowed(order) => Verdict::Fits,
        Some(_) => walk.fail(|| format!("expected {words} {}, was {input}", show::value(argument))),
        None => Verdict::Unknown,
    }
}

fn check_multiple<'a>(walk: &mut Walk<'a>, argument: &'a Value, input: &'a Number) -> Verdict {
    match argument.as_number().map_or(Verdict::Unknown, |unit| is_multiple(input, unit)) {
        Verdict::Fails => walk.fail(|| format!("expected a multiple of {}, was {input}", show::value(argument))),
        verdict => verdict,
    }
}

fn is_multiple(number: &Number, unit: &Number) -> Verdict {
    if unit.as_f64().is_none_or(|unit| unit <= 0.0) {
        return Verdict::Unknown;
    }
    if let (Some(number), Some(unit)) = (integer(number), integer(unit)) {
        return (number % unit == 0).into();
    }
    let (Some(number), Some(unit)) = (number.as_f64(), unit.as_f64()) else { return Verdict::Unknown };
    let times = number / unit;
    // `0.3 / 0.1` is not exactly 3: each of the three values has a rounding error of up to one digit in 53.
    let tolerance = (times.abs() * 4.0 * f64::EPSILON).max(1e-9);
    if !times.is_finite() || tolerance > 0.25 {
        // The tolerance is useless here because floats are too far apart; the remainder of the two numbers is exact.
        return (number % unit == 0.0).into();
    }
    ((times - times.round()).abs() <= tolerance).into()
}
