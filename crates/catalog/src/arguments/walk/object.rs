//! Object keywords.

use serde_json::{Map, Value};

use super::super::path::Segment;
use super::super::show::{self, quoted};
use super::super::verdict::Verdict;
use super::literal::suggestion;
use super::string::check_length;
use super::{Keywords, Walk};

const MAX_NAME_BYTES: usize = 60;

/// The maximum number of an object's names that are compared with a misspelt one.
const MAX_NAMES: usize = 1_000;

type Fields = Map<String, Value>;

/// Checks that all required names are present and that no name is unknown.
pub(super) fn check_names<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, fields: &'a Fields) -> Verdict {
    let undeclared = if is_closed(keywords) { check_undeclared(walk, keywords, fields) } else { Verdict::Fits };
    undeclared.and(check_required(walk, keywords, fields))
}

fn check_undeclared<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, fields: &'a Fields) -> Verdict {
    let mut verdict = Verdict::Fits;
    for name in fields.keys() {
        if let Err(spent) = walk.spend_on_input(1) {
            return verdict.and(spent);
        }
        match is_declared(walk, keywords, name) {
            Ok(true) => {}
            Ok(false) => verdict = report_unknown(walk, keywords, fields, name),
            Err(open) => verdict = verdict.and(open),
        }
    }
    verdict
}

/// Returns an error if this cannot be decided: `properties` or a pattern is invalid and might have declared this
/// name, or the input is too large.
fn is_declared<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, name: &'a str) -> Result<bool, Verdict> {
    match keywords.get("properties") {
        Some(Value::Object(properties)) if properties.contains_key(name) => return Ok(true),
        Some(Value::Object(_)) | None => {}
        Some(_) => return Err(Verdict::Unknown),
    }
    let Some(patterns) = keywords.get("patternProperties") else { return Ok(false) };
    let Value::Object(patterns) = patterns else { return Err(Verdict::Unknown) };
    let mut open = None;
    for pattern in patterns.keys() {
        walk.spend_on_input(1)?;
        match walk.patterns.matches(pattern, name) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(unmatched) => open = open.max(Some(walk.unmatched(unmatched))),
        }
    }
    open.map_or(Ok(false), Err)
}

fn report_unknown<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, fields: &'a Fields, name: &'a str) -> Verdict {
    let properties = keywords.get("properties").and_then(Value::as_object);
    let known = || properties.into_iter().flatten().map(|(name, _)| name.as_str());
    let meant = suggestion(walk, name, known().take(MAX_NAMES).filter(|known| !fields.contains_key(*known)));
    walk.fail(|| {
        let hint = match meant {
            Some(meant) => format!("did you mean {}?", quoted(meant, MAX_NAME_BYTES)),
            None if known().next().is_none() => "no properties are allowed".to_owned(),
            None => format!("known properties: {}", show::list(known().map(|name| quoted(name, MAX_NAME_BYTES)))),
        };
        format!("unknown property {}; {hint}", quoted(name, MAX_NAME_BYTES))
    })
}

fn check_required<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, fields: &'a Fields) -> Verdict {
    // In draft 3, `required` was a flag of the property.
    let Some(Value::Array(required)) = keywords.get("required") else { return Verdict::Fits };
    let mut verdict = Verdict::Fits;
    for name in required {
        if let Err(spent) = walk.spend(1) {
            return verdict.and(spent);
        }
        verdict = match name.as_str() {
            Some(name) if !fields.contains_key(name) => report_missing(walk, keywords, fields, name),
            _ => verdict,
        };
    }
    verdict
}

fn report_missing<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, fields: &'a Fields, name: &'a str) -> Verdict {
    let properties = keywords.get("properties").and_then(Value::as_object);
    let property = |name: &str| properties.and_then(|properties| properties.get(name));
    // A closed object reports its unknown names separately.
    let stray = if is_closed(keywords) {
        None
    } else {
        suggestion(
            walk,
            name,
            fields.keys().take(MAX_NAMES).map(String::as_str).filter(|name| property(name).is_none()),
        )
    };
    walk.fail(|| {
        let kind = property(name).and_then(Value::as_object).and_then(show::expected);
        let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
        let hint = stray.map(|stray| format!("; did you misspell it as {}?", quoted(stray, MAX_NAME_BYTES)));
        format!("missing property {}{kind}{}", quoted(name, MAX_NAME_BYTES), hint.unwrap_or_default())
    })
}

pub(super) fn check<'a>(
    walk: &mut Walk<'a>,
    keyword: &str,
    keywords: &'a Keywords,
    argument: &'a Value,
    fields: &'a Fields,
) -> Verdict {
    match (keyword, argument) {
        ("minProperties" | "maxProperties", _) => {
            check_length(walk, keyword, argument, fields.len(), ["property", "properties"])
        }
        ("properties", Value::Object(properties)) => check_properties(walk, properties, fields),
        ("patternProperties", Value::Object(patterns)) => check_patterns(walk, patterns, fields),
        ("additionalProperties", Value::Object(_)) => check_additional(walk, keywords, argument, fields),
        ("properties" | "patternProperties", _) => Verdict::Unknown,
        _ => Verdict::Fits,
    }
}

fn check_properties<'a>(walk: &mut Walk<'a>, properties: &'a Keywords, fields: &'a Fields) -> Verdict {
    let mut verdict = Verdict::Fits;
    for (name, value) in fields {
        if let Err(spent) = walk.spend_on_input(1) {
            return verdict.and(spent);
        }
        if let Some(schema) = properties.get(name) {
            verdict = verdict.and(walk.part(Segment::Name(name), schema, value));
        }
    }
    verdict
}

fn check_patterns<'a>(walk: &mut Walk<'a>, patterns: &'a Keywords, fields: &'a Fields) -> Verdict {
    let mut verdict = Verdict::Fits;
    for (pattern, schema) in patterns {
        for (name, value) in fields {
            if let Err(spent) = walk.spend_on_input(1) {
                return verdict.and(spent);
            }
            verdict = verdict.and(match walk.patterns.matches(pattern, name) {
                Ok(true) => walk.part(Segment::Name(name), schema, value),
                Ok(false) => Verdict::Fits,
                Err(unmatched) => walk.unmatched(unmatched),
            });
        }
    }
    verdict
}

fn check_additional<'a>(walk: &mut Walk<'a>, keywords: &'a Keywords, schema: &'a Value, fields: &'a Fields) -> Verdict {
    let mut verdict = Verdict::Fits;
    for (name, value) in fields {
        if let Err(spent) = walk.spend_on_input(1) {
            return verdict.and(spent);
        }
        verdict = verdict.and(match is_declared(walk, keywords, name) {
            Ok(true) => Verdict::Fits,
            Ok(false) => walk.part(Segment::Name(name), schema, value),
            Err(open) => open,
        });
    }
    verdict
}

fn is_closed(keywords: &Keywords) -> bool {
    keywords.get("additionalProperties") == Some(&Value::Bool(false))
}
