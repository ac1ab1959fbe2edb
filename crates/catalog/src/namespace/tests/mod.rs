//! Tests of namespaces from registration to call. A scope's type cannot hold a raw function or a cycle, so that needs
//! no test.

mod call;
mod registry;
mod scope;

use contract::scope::Scope;
use contract::tool::{ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{InputMapping, Namespaces, Registration, Registry, RunContext, ScopeMaker, ScopeValue};
use crate::Catalog;

const LIST: &str = "github_list_issues";
const UPDATE: &str = "github_update_issue";

fn catalog(ids: &[&str]) -> Catalog {
    let tool = |id: &&str| ToolSpec::new(ToolId::parse(id).unwrap(), "Does it.", json!({}));
    Catalog::new(ids.iter().map(tool).collect()).unwrap()
}

fn github() -> Catalog {
    catalog(&["plugin:github:github_list_issues", "plugin:github:github_update_issue", "openclaw:core:read"])
}

/// The contract's example.
fn issues() -> Registration {
    let scope = |context: &RunContext<'_>| {
        let input = InputMapping::Positional(vec!["number".to_owned(), "patch".to_owned()]);
        Ok(ScopeValue::object([
            ("repository", ScopeValue::Json(context.config.clone())),
            ("agent", ScopeValue::Json(context.scope.agent_id.as_str().into())),
            ("list", ScopeValue::tool(LIST)),
            ("update", ScopeValue::Tool { name: UPDATE.to_owned(), input }),
        ]))
    };
    Registration {
        id: "github-issues".to_owned(),
        global_name: "Issues".to_owned(),
        description: "Issues of this repository.".to_owned(),
        prompt: Some("Use Issues.list(params) and Issues.update(number, patch).".to_owned()),
        required_tool_names: vec![LIST.to_owned(), UPDATE.to_owned()],
        scope: ScopeMaker::new(scope),
    }
}

fn registry(registration: Registration) -> Registry {
    let mut registry = Registry::default();
    registry.register("github", registration).unwrap();
    registry
}

fn visible(registry: &Registry, catalog: &Catalog) -> Namespaces {
    let scope = Scope { agent_id: "main".to_owned(), ..Scope::default() };
    registry.visible(catalog, &RunContext { scope: &scope, config: &json!({"owner": "o"}) })
}

/// The value of a table, or `None` if the catalog has no such table.
fn table(catalog: &Catalog, key: &str) -> Option<Value> {
    let mut bytes = catalog.tables().bytes();
    let mut next = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        bytes = rest;
        Some(String::from_utf8(text.to_vec()).unwrap())
    };
    while let (Some(name), Some(text)) = (next(), next()) {
        if name == key {
            return Some(serde_json::from_str(&text).unwrap());
        }
    }
    None
}
