//! Keywords about objects.

use serde_json::{Map, Value};

use super::literal::probably;
use super::path::Segment;
use super::show::{self, quoted};
use super::verdict::Verdict;
use super::walk::{Keywords, Walk};

const MAX_NAME_BYTES: usize = 60;

/// Finding the name that was meant compares words.
const NEAREST_STEPS: usize = 100;

type Fields = Map<String, Value>;

impl<'a> Walk<'a> {
    /// Which names there must be, and which there may be.
    pub(super) fn names(&mut self, keywords: &'a Keywords, fields: &'a Fields) -> Verdict {
        let is_closed = keywords.get("additionalProperties") == Some(&Value::Bool(false));
        let undeclared = if is_closed { self.undeclared(keywords, fields) } else { Verdict::Fits };
        self.missing(keywords, fields, is_closed).and(undeclared)
    }

    fn undeclared(&mut self, keywords: &'a Keywords, fields: &'a Fields) -> Verdict {
        let mut verdict = Verdict::Fits;
        for name in fields.keys() {
            if !self.spend(1) {
                return verdict.and(Verdict::Unknown);
            }
            match self.is_declared(keywords, name) {
                Some(true) => {}
                Some(false) => verdict = self.unknown(keywords, fields, name),
                None => verdict = verdict.and(Verdict::Unknown),
            }
        }
        verdict
    }

    /// None where `properties` or a pattern is itself wrong, and so might have meant this name.
    fn is_declared(&mut self, keywords: &'a Keywords, name: &'a str) -> Option<bool> {
        match keywords.get("properties") {
            Some(Value::Object(properties)) if properties.contains_key(name) => return Some(true),
            Some(Value::Object(_)) | None => {}
            Some(_) => return None,
        }
        let Some(patterns) = keywords.get("patternProperties") else { return Some(false) };
        let mut declared = Some(false);
        for pattern in patterns.as_object()?.keys() {
            match self.spend(1).then(|| self.patterns.matches(pattern, name)).flatten() {
                Some(true) => return Some(true),
                Some(false) => {}
                None => declared = None,
            }
        }
        declared
    }

    fn unknown(&mut self, keywords: &'a Keywords, fields: &'a Fields, name: &'a str) -> Verdict {
        let none = Map::new();
        let properties = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
        if self.has_room() {
            self.spend(NEAREST_STEPS);
        }
        self.fail(|| {
            let open = properties.keys().map(String::as_str).filter(|known| !fields.contains_key(*known));
            let hint = match probably(name, open) {
                Some(meant) => format!("did you mean {}?", quoted(meant, MAX_NAME_BYTES)),
                None if properties.is_empty() => "none is expected".to_owned(),
                None => format!("known are {}", show::list(properties.keys().map(|name| quoted(name, MAX_NAME_BYTES)))),
            };
            format!("unknown property {}; {hint}", quoted(name, MAX_NAME_BYTES))
        })
    }

    fn missing(&mut self, keywords: &'a Keywords, fields: &'a Fields, is_closed: bool) -> Verdict {
        // In draft 3 `required` was a flag of the property.
        let Some(Value::Array(required)) = keywords.get("required") else { return Verdict::Fits };
        let none = Map::new();
        let properties = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut verdict = Verdict::Fits;
        for name in required.iter().filter_map(Value::as_str) {
            if !self.spend(1) {
                return verdict.and(Verdict::Unknown);
            }
            if fields.contains_key(name) {
                continue;
            }
            if self.has_room() {
                self.spend(NEAREST_STEPS);
            }
            verdict = self.fail(|| {
                let schema = properties.get(name).and_then(Value::as_object);
                let kind = schema.and_then(show::expected).map(|kind| format!(" ({kind})")).unwrap_or_default();
                // A closed object's unknown names are told of on their own.
                let strays =
                    fields.keys().map(String::as_str).filter(|name| !is_closed && !properties.contains_key(*name));
                let hint = probably(name, strays)
                    .map(|stray| format!("; is {} meant to be it?", quoted(stray, MAX_NAME_BYTES)));
                format!("missing property {}{kind}{}", quoted(name, MAX_NAME_BYTES), hint.unwrap_or_default())
            });
        }
        verdict
    }

    pub(super) fn object(
        &mut self,
        keyword: &str,
        keywords: &'a Keywords,
        argument: &'a Value,
        fields: &'a Fields,
    ) -> Verdict {
        match (keyword, argument) {
            ("minProperties" | "maxProperties", _) => {
                self.length(keyword, argument, fields.len(), ["property", "properties"])
            }
            ("properties", Value::Object(properties)) => self.properties(properties, fields),
            ("patternProperties", Value::Object(patterns)) => self.patterns(patterns, fields),
            ("additionalProperties", Value::Object(_)) => self.additional(keywords, argument, fields),
            ("properties" | "patternProperties", _) => Verdict::Unknown,
            _ => Verdict::Fits,
        }
    }

    fn properties(&mut self, properties: &'a Keywords, fields: &'a Fields) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (name, value) in fields {
            if !self.spend(1) {
                return verdict.and(Verdict::Unknown);
            }
            if let Some(schema) = properties.get(name) {
                verdict = verdict.and(self.part(Segment::Name(name), schema, value));
            }
        }
        verdict
    }

    fn patterns(&mut self, patterns: &'a Keywords, fields: &'a Fields) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (pattern, schema) in patterns {
            for (name, value) in fields {
                if !self.spend(1) {
                    return verdict.and(Verdict::Unknown);
                }
                verdict = verdict.and(match self.patterns.matches(pattern, name) {
                    Some(true) => self.part(Segment::Name(name), schema, value),
                    Some(false) => Verdict::Fits,
                    None => Verdict::Unknown,
                });
            }
        }
        verdict
    }

    fn additional(&mut self, keywords: &'a Keywords, schema: &'a Value, fields: &'a Fields) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (name, value) in fields {
            if !self.spend(1) {
                return verdict.and(Verdict::Unknown);
            }
            verdict = verdict.and(match self.is_declared(keywords, name) {
                Some(true) => Verdict::Fits,
                Some(false) => self.part(Segment::Name(name), schema, value),
                None => Verdict::Unknown,
            });
        }
        verdict
    }
}
