//! Converts a scope into the form that the guest's prelude reads, and collects the paths that can be called.

use std::collections::{BTreeMap, BTreeSet};

use contract::limits::{MAX_NAMESPACE_BYTES, MAX_NAMESPACE_DEPTH, MAX_NAMESPACE_VALUES};
use contract::tool::ToolId;
use serde_json::{Value, json};

use super::error::NamespaceError;
use super::scope::{InputMapping, ScopeValue};
use crate::text::clean;

const UNSAFE_KEYS: [&str; 4] = ["__proto__", "constructor", "prototype", ""];

/// The maximum length of a path or key in an error.
pub(super) const SHOWN_BYTES: usize = 200;

/// The tool behind a path, and how its input is built.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tool: ToolId,
    pub(crate) input: InputMapping,
}

pub(crate) type Calls = BTreeMap<Vec<String>, Call>;

/// Builds the scope of a namespace. `tools` are those that the namespace requires, by name.
pub(super) fn build(
    global: &str,
    scope: &ScopeValue,
    tools: &BTreeMap<&str, ToolId>,
) -> Result<(Value, Calls), NamespaceError> {
    if !matches!(scope, ScopeValue::Object(_) | ScopeValue::Json(Value::Object(_))) {
        return Err(NamespaceError::NotAnObject(global.to_owned()));
    }
    let mut builder = ScopeBuilder { global, tools, path: Vec::new(), values: 0, bytes: 0, calls: Calls::new() };
    let descriptor = builder.value(scope)?;
    Ok((descriptor, builder.calls))
}

struct ScopeBuilder<'a> {
    global: &'a str,
    tools: &'a BTreeMap<&'a str, ToolId>,
    path: Vec<String>,
    values: usize,
    bytes: usize,
    calls: Calls,
}

impl ScopeBuilder<'_> {
    fn value(&mut self, value: &ScopeValue) -> Result<Value, NamespaceError> {
        match value {
            ScopeValue::Json(value) => self.json(value),
            ScopeValue::Array(items) => self.array(items, Self::value),
            ScopeValue::Object(entries) => {
                self.object(entries.iter().map(|(key, value)| (key.as_str(), value)), Self::value)
            }
            ScopeValue::Tool { name, input } => self.tool(name, input),
        }
    }

    /// Traverses arrays and objects, so that the same rules apply to them and the guest freezes all of them.
    fn json(&mut self, value: &Value) -> Result<Value, NamespaceError> {
        match value {
            Value::Array(items) => self.array(items, Self::json),
            Value::Object(fields) => self.object(fields.iter().map(|(key, value)| (key.as_str(), value)), Self::json),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.count(value.as_str().map_or(0, str::len))?;
                Ok(json!({"kind": "value", "value": value}))
            }
        }
    }

    fn array<T>(&mut self, items: &[T], build_part: PartBuilder<Self, T>) -> Result<Value, NamespaceError> {
        self.count(0)?;
        let mut built = Vec::new();
        for (position, item) in items.iter().enumerate() {
            built.push(self.below(&position.to_string(), item, build_part)?);
        }
        Ok(json!({"kind": "array", "items": built}))
    }

    fn object<'v, T: 'v>(
        &mut self,
        entries: impl Iterator<Item = (&'v str, &'v T)>,
        build_part: PartBuilder<Self, T>,
    ) -> Result<Value, NamespaceError> {
        self.count(0)?;
        let mut seen = BTreeSet::new();
        let mut built = Vec::new();
        for (key, value) in entries {
            if UNSAFE_KEYS.contains(&key) || key.contains('\0') {
                return Err(NamespaceError::UnsafeKey { path: self.shown(), key: clean(key, SHOWN_BYTES) });
            }
            if !seen.insert(key) {
                return Err(NamespaceError::DuplicateKey { path: self.shown(), key: clean(key, SHOWN_BYTES) });
            }
            built.push(json!([key, self.below(key, value, build_part)?]));
        }
        Ok(json!({"kind": "object", "entries": built}))
    }

    fn tool(&mut self, name: &str, input: &InputMapping) -> Result<Value, NamespaceError> {
        self.count(0)?;
        if self.path.last().is_some_and(|key| key == "then") {
            return Err(NamespaceError::Thenable(self.shown()));
        }
        let Some(tool) = self.tools.get(name) else {
            return Err(NamespaceError::UndeclaredTool { path: self.shown(), tool: clean(name, SHOWN_BYTES) });
        };
        self.calls.insert(self.path.clone(), Call { tool: tool.clone(), input: input.clone() });
        Ok(json!({"kind": "function"}))
    }

    fn below<T>(&mut self, key: &str, value: &T, build_part: PartBuilder<Self, T>) -> Result<Value, NamespaceError> {
        if self.path.len() == MAX_NAMESPACE_DEPTH {
            return Err(NamespaceError::TooDeep(self.shown()));
        }
        self.bytes += key.len();
        self.path.push(key.to_owned());
        let built = build_part(self, value)?;
        self.path.pop();
        Ok(built)
    }

    fn count(&mut self, bytes: usize) -> Result<(), NamespaceError> {
        self.values += 1;
        self.bytes += bytes;
        if self.values > MAX_NAMESPACE_VALUES {
            return Err(NamespaceError::TooManyValues(self.global.to_owned()));
        }
        if self.bytes > MAX_NAMESPACE_BYTES {
            return Err(NamespaceError::TooLarge(self.global.to_owned()));
        }
        Ok(())
    }

    fn shown(&self) -> String {
        written(self.global, &self.path)
    }
}

/// The function that builds a part of an array or object.
type PartBuilder<B, T> = fn(&mut B, &T) -> Result<Value, NamespaceError>;

/// Returns a path as a cell writes it, for an error.
pub(super) fn written(global: &str, path: &[impl AsRef<str>]) -> String {
    let mut text = clean(global, SHOWN_BYTES);
    for key in path.iter().take(MAX_NAMESPACE_DEPTH + 1) {
        text.push('.');
        text.push_str(&clean(key.as_ref(), SHOWN_BYTES));
    }
    clean(&text, SHOWN_BYTES)
}
