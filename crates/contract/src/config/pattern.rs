//! An entry of an allow or deny list: a glob over a tool's id, a glob over its name or owner, or a group.

use std::fmt;

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::groups::{Group, PREFIX};
use crate::limits::MAX_PATTERN_BYTES;

/// A parsed pattern. `catalog::policy` decides which tools it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    group: Option<&'static Group>,
}

/// Why a pattern is invalid. The message describes what was expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("a tool's id, name or owner, a glob over them, or a group")]
    Blank,
    #[error("a pattern without leading or trailing whitespace")]
    BlankAround,
    #[error("a pattern of at most {MAX_PATTERN_BYTES} bytes")]
    TooLong,
    #[error("a known group")]
    UnknownGroup,
}

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let group = Group::find(text);
        if text.trim().is_empty() {
            Err(BadPattern::Blank)
        } else if text.trim() != text {
            Err(BadPattern::BlankAround)
        } else if text.len() > MAX_PATTERN_BYTES {
            Err(BadPattern::TooLong)
        } else if group.is_none() && text.to_ascii_lowercase().starts_with(PREFIX) {
            Err(BadPattern::UnknownGroup)
        } else {
            Ok(Self { text: text.to_owned(), group })
        }
    }

    /// Reads an entry of a list.
    pub fn read(value: &Value, path: &Path) -> Result<Self, ConfigError> {
        let Some(text) = value.as_str() else {
            return Err(ConfigError::wrong_value(path, value, &BadPattern::Blank.to_string()));
        };
        Self::parse(text).map_err(|bad| match bad {
            BadPattern::UnknownGroup => ConfigError::unknown_word(path, value, &bad.to_string(), Group::names()),
            BadPattern::Blank | BadPattern::BlankAround | BadPattern::TooLong => {
                ConfigError::wrong_value(path, value, &bad.to_string())
            }
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern is a glob over whole ids. A glob without `:` matches the names and owners of tools.
    pub fn is_about_ids(&self) -> bool {
        self.group.is_none() && self.text.contains(':')
    }

    /// Returns the group that the pattern names; `None` for a glob.
    pub fn group(&self) -> Option<&'static Group> {
        self.group
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{BadPattern, Path, Pattern};

    #[test]
    fn a_pattern_is_a_glob_or_a_known_group() {
        for (text, group) in [("exec", false), ("mcp:github:*", false), ("*", false), ("é?", false)] {
            assert_eq!(Pattern::parse(text).unwrap().group().is_some(), group, "{text}");
        }
        for text in ["group:fs", "group:mcp", "bundle-mcp"] {
            assert!(Pattern::parse(text).unwrap().group().is_some(), "{text}");
        }
        for (text, about_ids) in
            [("mcp:docs:*", true), ("*:read", true), ("docs", false), ("*", false), ("group:mcp", false)]
        {
            assert_eq!(Pattern::parse(text).unwrap().is_about_ids(), about_ids, "{text}");
        }
        let (longest, longer) = ("a".repeat(256), "a".repeat(257));
        assert!(Pattern::parse(&longest).is_ok());
        for (text, expected) in [
            ("", BadPattern::Blank),
            (" \t", BadPattern::Blank),
            (" exec", BadPattern::BlankAround),
            ("exec\n", BadPattern::BlankAround),
            (longer.as_str(), BadPattern::TooLong),
            ("group:", BadPattern::UnknownGroup),
            ("group:*", BadPattern::UnknownGroup),
            ("Group:fs", BadPattern::UnknownGroup),
        ] {
            assert_eq!(Pattern::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_reported_with_its_path() {
        let found = |value: &Value| Pattern::read(value, &Path::root("deny").item(3)).unwrap_err().to_string();
        assert_eq!(
            found(&json!("group:runtme")),
            "`deny[3]`: expected a known group, found `\"group:runtme\"`; did you mean `group:runtime`?"
        );
        assert_eq!(
            found(&json!(" a")),
            "`deny[3]`: expected a pattern without leading or trailing whitespace, found `\" a\"`"
        );
        let expected = "`deny[3]`: expected a tool's id, name or owner, a glob over them, or a group, found";
        for (value, shown) in [(json!(""), "`\"\"`"), (json!(1), "`1`"), (json!(["a"]), "a list")] {
            assert_eq!(found(&value), format!("{expected} {shown}"));
        }
    }
}
