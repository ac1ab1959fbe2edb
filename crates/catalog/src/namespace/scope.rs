//! The contents of a namespace: values, and functions that call its plugin's tools.
//!
//! There is no variant for a function or a cycle, so neither can be registered.

use std::fmt;
use std::sync::Arc;

use contract::scope::Scope;
use serde_json::{Map, Value, json};

/// The inputs of a scope. The same context must give the same scope, otherwise runs cannot be replayed.
#[derive(Clone, Copy, Debug)]
pub struct RunContext<'a> {
    pub scope: &'a Scope,
    /// The plugin loader's configuration for this run.
    pub config: &'a Value,
}

#[derive(Clone, Debug)]
pub enum ScopeValue {
    Json(Value),
    Array(Vec<ScopeValue>),
    Object(Vec<(String, ScopeValue)>),
    /// A function; calling it calls a tool.
    Tool {
        name: String,
        input: InputMapping,
    },
}

impl ScopeValue {
    /// A function whose first argument is the tool's input.
    pub fn tool(name: &str) -> Self {
        Self::Tool { name: name.to_owned(), input: InputMapping::First }
    }

    pub fn object<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

/// How a call's arguments become the tool's input.
#[derive(Clone)]
pub enum InputMapping {
    /// The first argument, or `{}`.
    First,
    /// An object with a field for each argument that was given; arguments past the last name are dropped.
    Positional(Vec<String>),
    Custom(Arc<Mapper>),
}

type Mapper = dyn Fn(&[Value]) -> Value + Send + Sync;

impl InputMapping {
    pub(crate) fn apply(&self, arguments: &[Value]) -> Value {
        match self {
            // `undefined` arrives as `null`.
            Self::First => match arguments.first() {
                None | Some(Value::Null) => json!({}),
                Some(input) => input.clone(),
            },
            Self::Positional(names) => {
                Value::Object(names.iter().cloned().zip(arguments.iter().cloned()).collect::<Map<_, _>>())
            }
            Self::Custom(mapper) => mapper(arguments),
        }
    }
}

impl fmt::Debug for InputMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("First"),
            Self::Positional(names) => f.debug_tuple("Positional").field(names).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Creates a namespace's scope for one run.
#[derive(Clone)]
pub struct ScopeMaker(Arc<Maker>);

type Maker = dyn Fn(&RunContext<'_>) -> Result<ScopeValue, ScopeFailure> + Send + Sync;

/// A plugin's own error message for a scope that it could not create.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScopeFailure(pub String);

impl ScopeMaker {
    pub fn new(maker: impl Fn(&RunContext<'_>) -> Result<ScopeValue, ScopeFailure> + Send + Sync + 'static) -> Self {
        Self(Arc::new(maker))
    }

    /// Uses the same scope for every run.
    pub fn fixed(scope: ScopeValue) -> Self {
        Self::new(move |_| Ok(scope.clone()))
    }

    pub(crate) fn make(&self, context: &RunContext<'_>) -> Result<ScopeValue, ScopeFailure> {
        (self.0)(context)
    }
}

impl fmt::Debug for ScopeMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScopeMaker")
    }
}
