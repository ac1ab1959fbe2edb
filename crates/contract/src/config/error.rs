//! Configuration errors with the path of the wrong value.

use std::fmt;

use serde_json::Value;

use crate::error::ErrorCode;
use crate::spelling::nearest;

/// An error in a configuration. All errors are collected, so there may be many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The path of the value: `tools.byProvider["openai/gpt-5"].deny[0]`.
    pub path: String,
    pub problem: Problem,
}

/// What is wrong with a value or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    Value { found: String, expected: String, nearest: Option<String> },
    UnknownKey { known: Vec<&'static str>, nearest: Option<&'static str> },
}

impl ConfigError {
    /// The code with which a run fails if its configuration is invalid.
    pub const CODE: ErrorCode = ErrorCode::InvalidConfig;

    /// Reports a value that is not the `expected` one.
    pub fn wrong_value(path: &Path, found: &Value, expected: &str) -> Self {
        Self {
            path: path.to_string(),
            problem: Problem::Value { found: shown(found), expected: expected.to_owned(), nearest: None },
        }
    }

    /// Reports a wrong value that the message must not repeat.
    pub fn secret_value(path: &Path, expected: &str) -> Self {
        let found = "another value, which may be a secret and is not shown".to_owned();
        let problem = Problem::Value { found, expected: expected.to_owned(), nearest: None };
        Self { path: path.to_string(), problem }
    }

    /// Reports a word that is not one of `candidates`, and suggests the nearest of them.
    pub fn unknown_word<'a>(
        path: &Path,
        found: &Value,
        expected: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let nearest = found.as_str().and_then(|word| nearest(word, candidates)).map(str::to_owned);
        Self {
            path: path.to_string(),
            problem: Problem::Value { found: shown(found), expected: expected.to_owned(), nearest },
        }
    }

    /// Reports a key that is not one of `known`, and suggests the nearest one.
    ///
    /// `ignored` are keys that are accepted without effect: they can be suggested, and are not listed as known.
    pub fn unknown_key(path: &Path, key: &str, known: &[&'static str], ignored: &[&'static str]) -> Self {
        let nearest = nearest(key, known.iter().chain(ignored).copied());
        Self { path: path.child(key).to_string(), problem: Problem::UnknownKey { known: known.to_vec(), nearest } }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.path)?;
        match &self.problem {
            Problem::Value { found, expected, nearest } => {
                write!(f, "expected {expected}, found {found}")?;
                nearest.iter().try_for_each(|word| write!(f, "; did you mean `{word}`?"))
            }
            Problem::UnknownKey { nearest: Some(word), .. } => write!(f, "unknown key; did you mean `{word}`?"),
            Problem::UnknownKey { nearest: None, known } => write!(f, "unknown key; known keys are {}", listed(known)),
        }
    }
}

/// Formats words as a list: `` `a`, `b` ``.
pub(super) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

const MAX_SHOWN_CHARS: usize = 60;

fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("`{}`", Value::from(shortened(text))),
        Value::Null | Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The path of a value in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// Creates the path of a top-level key.
    pub fn root(key: &str) -> Self {
        Self(key.to_owned())
    }

    /// Returns the path of a key in the object at this path.
    pub fn child(&self, key: &str) -> Self {
        let plain = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        // Quoted as JSON, so that a key cannot send control characters to a terminal.
        Self(if plain && key.len() <= MAX_SHOWN_CHARS {
            format!("{}.{key}", self.0)
        } else {
            format!("{}[{}]", self.0, Value::from(shortened(key)))
        })
    }

    /// Returns the path of an item in the list at this path.
    pub fn item(&self, position: usize) -> Self {
        Self(format!("{}[{position}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ConfigError, Path, shown};

    #[test]
    fn an_error_shows_the_path_the_value_and_what_was_expected() {
        let path = Path::root("tools").child("mode");
        let cases = [
            (ConfigError::wrong_value(&path, &json!(7), "a word"), "`tools.mode`: expected a word, found `7`"),
            (
                ConfigError::unknown_word(&path, &json!("tolls"), "one of `code`, `tools`", ["code", "tools"]),
                "`tools.mode`: expected one of `code`, `tools`, found `\"tolls\"`; did you mean `tools`?",
            ),
            (
                ConfigError::unknown_word(&path, &json!("zebra"), "`code`", ["code"]),
                "`tools.mode`: expected `code`, found `\"zebra\"`",
            ),
            (
                ConfigError::unknown_key(&path, "alow", &["deny", "allow"], &[]),
                "`tools.mode.alow`: unknown key; did you mean `allow`?",
            ),
            (
                ConfigError::unknown_key(&path, "zebra", &["deny", "allow"], &["media"]),
                "`tools.mode.zebra`: unknown key; known keys are `deny`, `allow`",
            ),
            (
                ConfigError::unknown_key(&path, "medai", &["deny", "allow"], &["media"]),
                "`tools.mode.medai`: unknown key; did you mean `media`?",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(ConfigError::CODE.as_str(), "invalid_config");
    }

    #[test]
    fn paths_quote_keys_that_are_not_plain() {
        let root = Path::root("tools");
        let long = "k".repeat(61);
        let cases = [
            (root.child("deny"), "tools.deny".to_owned()),
            (root.child("google-ai"), "tools.google-ai".to_owned()),
            (root.child("openai/gpt-5").child("deny").item(0), "tools[\"openai/gpt-5\"].deny[0]".to_owned()),
            (root.child(""), "tools[\"\"]".to_owned()),
            (root.child("7z"), "tools[\"7z\"]".to_owned()),
            (root.child("\u{1b}[2J"), "tools[\"\\u001b[2J\"]".to_owned()),
            (root.child(&long), format!("tools[\"{}…\"]", "k".repeat(60))),
        ];
        for (path, expected) in cases {
            assert_eq!(path.to_string(), expected);
        }
    }

    #[test]
    fn values_are_shown_briefly() {
        let cases = [
            (Value::Null, "`null`".to_owned()),
            (json!(true), "`true`".to_owned()),
            (json!(-1.5), "`-1.5`".to_owned()),
            (json!("a\n"), "`\"a\\n\"`".to_owned()),
            (json!("é".repeat(61)), format!("`\"{}…\"`", "é".repeat(60))),
            (json!([1]), "a list".to_owned()),
            (json!({"a": 1}), "an object".to_owned()),
        ];
        for (value, expected) in cases {
            assert_eq!(shown(&value), expected);
        }
    }
}
