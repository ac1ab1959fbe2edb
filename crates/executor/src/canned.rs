//! Tools with predefined answers, to try out and to test cells.
//!
//! ```json
//! { "tools": [ {
//!     "id": "openclaw:demo:weather", "description": "…", "parameters": { … },
//!     "answers": [ { "returns": { "celsius": 7 }, "afterMs": 20 }, { "fails": "no such city" } ]
//! } ] }
//! ```
//!
//! Answers are given in order; the last one is repeated. `{"echo": true}` returns the input, `{"never": true}` never
//! returns. A tool without answers echoes its input. Beside `tools`, a file may have
//! `namespaces`:
//!
//! ```json
//! { "plugin": "tracker", "global": "Issues", "tools": ["list_issues", "update_issue"],
//!   "scope": { "repository": "demo", "list": { "$tool": "list_issues" },
//!              "update": { "$tool": "update_issue", "$input": ["number", "patch"] } } }
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use catalog::{
    Catalog, CatalogError, InputMapping, NamespaceError, Registration, Registry, RunContext, ScopeMaker, ScopeValue,
};
use contract::scope::Scope;
use contract::tool::{BadToolId, ToolId, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::executor::Executor;
use crate::outcome::{Outcome, ToolResult};
use crate::source::{AuthorizedCall, CallFuture, Dispatch, Routes, ToolSource};

/// A tool source with predefined answers, read from a file.
#[derive(Debug)]
pub struct CannedTools {
    specs: Vec<ToolSpec>,
    answers: HashMap<ToolId, Answers>,
    namespaces: Registry,
}

#[derive(Debug, thiserror::Error)]
pub enum CannedError {
    #[error("the catalog file is invalid: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(transparent)]
    BadToolId(#[from] BadToolId),
    #[error("two tools are called `{0}`; an id names one tool")]
    Duplicate(String),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFormat {
    tools: Vec<ToolFormat>,
    #[serde(default)]
    namespaces: Vec<NamespaceFormat>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToolFormat {
    id: String,
    label: Option<String>,
    #[serde(default)]
    description: String,
    parameters: Option<Value>,
    #[serde(default)]
    answers: Vec<AnswerFormat>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct AnswerFormat {
    returns: Option<Value>,
    fails: Option<String>,
    echo: bool,
    never: bool,
    after_ms: u64,
}

#[derive(Debug)]
struct Answers {
    script: Vec<AnswerFormat>,
    given: AtomicUsize,
}

impl CannedTools {
    pub fn parse(text: &str) -> Result<Self, CannedError> {
        let file: FileFormat = serde_json::from_str(text)?;
        let mut canned = Self { specs: Vec::new(), answers: HashMap::new(), namespaces: Registry::default() };
        for tool in file.tools {
            let id = ToolId::parse(&tool.id)?;
            let answers = Answers { script: tool.answers, given: AtomicUsize::new(0) };
            if canned.answers.insert(id.clone(), answers).is_some() {
                return Err(CannedError::Duplicate(tool.id));
            }
            let parameters = tool.parameters.unwrap_or_else(|| json!({"type": "object"}));
            canned.specs.push(ToolSpec { label: tool.label, ..ToolSpec::new(id, tool.description, parameters) });
        }
        for namespace in file.namespaces {
            register(&mut canned.namespaces, namespace)?;
        }
        Ok(canned)
    }

    /// Creates an executor for only these tools, without policy, hooks or approvals.
    pub fn executor(self, scope: Scope) -> Result<Executor, CannedError> {
        let registry = self.namespaces.clone();
        let canned: Arc<dyn ToolSource> = Arc::new(self);
        let (routes, tools) = Routes::collect(&[canned]);
        let catalog = Catalog::new(tools)?;
        let namespaces = registry.visible(&catalog, &RunContext { scope: &scope, config: &Value::Null });
        if let Some(refused) = namespaces.refused().first() {
            return Err(refused.clone().into());
        }
        Ok(Executor::new(Arc::new(catalog.with_namespaces(namespaces)), routes, scope))
    }
}

impl Answers {
    fn next(&self) -> AnswerFormat {
        let given = self.given.fetch_add(1, Ordering::Relaxed);
        let last = self.script.len().saturating_sub(1);
        self.script.get(given.min(last)).cloned().unwrap_or(AnswerFormat { echo: true, ..AnswerFormat::default() })
    }
}

impl ToolSource for CannedTools {
    fn tools(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let Some(answer) = self.answers.get(call.id()).map(Answers::next) else {
                return Dispatch::Settled(Outcome::Failed("no answer is defined for this tool".to_owned()));
            };
            if answer.never {
                std::future::pending::<()>().await;
            }
            if answer.after_ms > 0 {
                tokio::time::sleep(Duration::from_millis(answer.after_ms)).await;
            }
            Dispatch::Settled(match answer {
                AnswerFormat { fails: Some(message), .. } => Outcome::Failed(message),
                AnswerFormat { echo: true, .. } => Outcome::Returned(ToolResult::json(call.input().clone())),
                AnswerFormat { returns, .. } => Outcome::Returned(ToolResult::json(returns.unwrap_or(Value::Null))),
            })
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NamespaceFormat {
    plugin: String,
    global: String,
    #[serde(default)]
    description: String,
    prompt: Option<String>,
    /// Names of the plugin's tools that its scope calls.
    tools: Vec<String>,
    scope: Value,
}

fn register(registry: &mut Registry, format: NamespaceFormat) -> Result<(), NamespaceError> {
    let registration = Registration {
        id: format!("{}-{}", format.plugin, format.global),
        global_name: format.global,
        description: format.description,
        prompt: format.prompt,
        required_tool_names: format.tools,
        scope: ScopeMaker::fixed(scope(format.scope)),
    };
    registry.register(&format.plugin, registration)
}

fn scope(value: Value) -> ScopeValue {
    match value {
        Value::Object(fields) => match fields.get("$tool").and_then(Value::as_str) {
            Some(name) => ScopeValue::Tool { name: name.to_owned(), input: mapping(fields.get("$input")) },
            None => ScopeValue::Object(fields.into_iter().map(|(key, value)| (key, scope(value))).collect()),
        },
        Value::Array(items) => ScopeValue::Array(items.into_iter().map(scope).collect()),
        other => ScopeValue::Json(other),
    }
}

fn mapping(names: Option<&Value>) -> InputMapping {
    match names.and_then(Value::as_array) {
        Some(names) => InputMapping::Positional(names.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        None => InputMapping::First,
    }
}
