//! A parsed configuration file, with the position of every value in its text.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use crate::display;

/// A value, and the bytes that it was read from.
#[derive(Clone, PartialEq)]
pub(crate) struct Tree {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Clone, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<Member>),
}

#[derive(Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) value: Tree,
}

/// The position of a syntax error, counted from one, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub why: String,
}

impl SyntaxError {
    pub(crate) fn at(text: &str, offset: usize, why: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Self { line: line_of(text, offset), column, why: why.into() }
    }
}

pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The line breaks of a text, for looking up the lines of many offsets.
pub(crate) struct Lines {
    breaks: Vec<usize>,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        Self { breaks: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    /// Returns the line of an offset, counted from one.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.breaks.partition_point(|at| *at < offset) + 1
    }
}

/// Returns these members without those that a later one with the same key replaces, as JSON parsers do.
pub(crate) fn effective(members: &[Member]) -> impl Iterator<Item = &Member> {
    let last: HashMap<&str, usize> = members.iter().enumerate().map(|(at, member)| (member.key.as_str(), at)).collect();
    let is_last = move |(at, member): &(usize, &Member)| last.get(member.key.as_str()) == Some(at);
    members.iter().enumerate().filter(is_last).map(|(_, member)| member)
}

impl Tree {
    /// Reports the first key that an object of this text has twice. JSON parsers keep only the last one, so that a
    /// restriction in the other would be lost.
    pub(crate) fn refuse_repeated_keys(&self, text: &str) -> Result<(), SyntaxError> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for member in self.members() {
            let here = member.key_span.start;
            if let Some(first) = seen.insert(&member.key, here) {
                let key = display::plain(&member.key);
                let SyntaxError { line, column, .. } = SyntaxError::at(text, first, "");
                let why = format!(
                    "the key `{key}` is already at line {line}, column {column}, and only one of them could be used; \
                     merge them, or remove one"
                );
                return Err(SyntaxError::at(text, here, why));
            }
            member.value.refuse_repeated_keys(text)?;
        }
        self.items().unwrap_or_default().iter().try_for_each(|item| item.refuse_repeated_keys(text))
    }

    pub(crate) fn empty_map() -> Self {
        Self { span: 0..0, kind: Kind::Map(Vec::new()) }
    }

    /// Returns the value of a key; of a repeated key, the last one, as JSON parsers do.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.value)
    }

    pub(crate) fn member(&self, key: &str) -> Option<&Member> {
        self.members().iter().rev().find(|member| member.key == key)
    }

    /// Returns the members of an object without those that a later one with the same key replaces.
    pub(crate) fn effective_members(&self) -> impl Iterator<Item = &Member> {
        effective(self.members())
    }

    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |tree, key| tree.get(key))
    }

    pub(crate) fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Map(members) => members,
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::List(_) => &[],
        }
    }

    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::Map(_) => None,
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.kind, Kind::Map(_))
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub(crate) fn truth(&self) -> Option<bool> {
        match self.kind {
            Kind::Bool(truth) => Some(truth),
            Kind::Null | Kind::Number(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match &self.kind {
            Kind::Number(number) => number.as_f64(),
            Kind::Null | Kind::Bool(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// Returns the value's type for messages, which must not contain the value itself.
    pub(crate) fn sort(&self) -> &'static str {
        match self.kind {
            Kind::Null => "`null`",
            Kind::Bool(_) => "`true` or `false`",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(truth) => Value::Bool(*truth),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Kind::Map(members) => {
                let pairs = members.iter().map(|member| (member.key.clone(), member.value.to_json()));
                Value::Object(Map::from_iter(pairs))
            }
        }
    }
}

impl fmt::Debug for Tree {
    /// Leaves out the values: configuration files hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({} at {:?})", self.sort(), self.span)
    }
}
