//! The part of the configuration that decides which tools a run has and what its cells may use.
//!
//! A raw JSON value is resolved once: every default is filled in and every number is within its range. Files and other
//! keys are read elsewhere, also with [`reader`].

pub mod error;
pub mod groups;
pub mod openclaw;
pub mod pattern;
pub mod plugins;
pub mod policy;
pub mod profiles;
pub mod reader;
pub mod schema;

mod agents;
mod code_mode;
mod core_tools;
mod gateway;
mod models;
mod numbers;
mod store;
mod tool_search;

use serde_json::Value;

pub use agents::{AgentsConfig, LOCAL_AGENT, ModelChoice, SandboxMode};
pub use code_mode::{CodeMode, Languages};
pub use core_tools::{CoreTools, FileRoot, FileTools, RootAccess, ShellTool, WebFetch};
pub use error::{ConfigError, Path, Problem};
pub use gateway::GatewayConfig;
pub use models::{ModelApi, ModelConfig, ModelsConfig, ProviderConfig, ProviderQuirks};
pub use numbers::SearchLimits;
pub use plugins::{PluginEntry, PluginsConfig};
pub use policy::PolicyConfig;
pub use store::{Quotas, Retention, StoreConfig};
pub use tool_search::{ToolSearch, ToolSearchMode};

/// The resolved `tools` configuration of one agent, or the global one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsConfig {
    pub code_mode: CodeMode,
    pub tool_search: ToolSearch,
    pub policy: PolicyConfig,
    /// `tools.search.meaning`: whether searches also consider the meaning of words.
    pub search_meaning: bool,
}

impl ToolsConfig {
    /// Resolves the value of `tools`; `null` for a configuration without it.
    pub fn resolve(tools: &Value) -> Result<Self, Vec<ConfigError>> {
        AgentsConfig::resolve(tools, &Value::Null).map(|agents| agents.global().clone())
    }
}

/// The settings of one scope, `tools` or an agent's `tools`, before defaults are filled in.
#[derive(Clone)]
struct PartialConfig {
    code_mode: code_mode::PartialConfig,
    tool_search: tool_search::PartialConfig,
    policy: PolicyConfig,
    search_meaning: Option<bool>,
}

impl PartialConfig {
    fn empty(path: &Path) -> Self {
        Self {
            code_mode: code_mode::PartialConfig::default(),
            tool_search: tool_search::PartialConfig::default(),
            policy: PolicyConfig { scopes: vec![policy::Scope::empty(path)] },
            search_meaning: None,
        }
    }

    fn read_global(
        value: &Value,
        profiles: &mut profiles::Profiles,
        errors: &mut Vec<ConfigError>,
    ) -> (Self, CoreTools) {
        let path = Path::root("tools");
        let given = reader::object(value, &path, errors, |reader| {
            if let Some((value, path, errors)) = reader.field("profiles") {
                profiles.add(value, &path, errors);
            }
            let mut scope = Self::read(reader, profiles);
            let (core_tools, denied) = CoreTools::read(reader);
            scope.deny(denied);
            (scope, core_tools)
        });
        given.unwrap_or_else(|| (Self::empty(&path), CoreTools::default()))
    }

    fn read(reader: &mut reader::ConfigReader<'_, '_>, profiles: &profiles::Profiles) -> Self {
        reader.accept_table(openclaw::keys::TOOLS);
        let code_mode = reader.field("codeMode").and_then(|(value, path, errors)| {
            let value = openclaw::code_mode(value)?;
            Some(code_mode::PartialConfig::read(&value, &path, errors))
        });
        let tool_search = reader.field("toolSearch").map(|(value, path, errors)| {
            tool_search::PartialConfig::read(&openclaw::tool_search(value), &path, errors)
        });
        let search_meaning = reader.object("search", |reader| reader.flag("meaning")).flatten();
        Self {
            search_meaning,
            code_mode: code_mode.unwrap_or_default(),
            tool_search: tool_search.unwrap_or_default(),
            policy: PolicyConfig { scopes: vec![policy::Scope::read(reader, profiles)] },
        }
    }

    /// Adds patterns to the deny list of this scope.
    fn deny(&mut self, patterns: Vec<pattern::Pattern>) {
        if let Some(scope) = self.policy.scopes.last_mut() {
            scope.rules.lists.deny.extend(patterns);
        }
    }

    fn merged_over(self, base: &Self) -> Self {
        let mut scopes = base.policy.scopes.clone();
        scopes.extend(self.policy.scopes);
        Self {
            code_mode: self.code_mode.merged_over(&base.code_mode),
            tool_search: self.tool_search.merged_over(&base.tool_search),
            policy: PolicyConfig { scopes },
            search_meaning: self.search_meaning.or(base.search_meaning),
        }
    }

    fn resolve(&self) -> ToolsConfig {
        ToolsConfig {
            code_mode: self.code_mode.resolve(),
            tool_search: self.tool_search.resolve(),
            policy: self.policy.clone(),
            search_meaning: self.search_meaning.unwrap_or(true),
        }
    }
}

#[cfg(test)]
mod tests;
