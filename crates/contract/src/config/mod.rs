//! The part of the configuration that decides which tools a run has and what its cells may use.
//!
//! A raw JSON value is resolved once: every default is filled in and every number is within its range. Files and other
//! keys are read elsewhere, also with [`reader`].

pub mod error;
pub mod groups;
pub mod pattern;
pub mod plugins;
pub mod policy;
pub mod profiles;
pub mod reader;
pub mod schema;

mod code_mode;
mod core_tools;
mod numbers;
mod store;
mod tool_search;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::limits::MAX_LIVE_RUNS;

pub use code_mode::{CodeMode, Languages};
pub use core_tools::{CoreTools, FileTools, ShellTool, WebFetch};
pub use error::{ConfigError, Path};
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
        AgentsConfig::resolve(tools, &Value::Null).map(|agents| agents.global)
    }
}

/// The resolved `tools` configuration of every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentsConfig {
    global: ToolsConfig,
    core_tools: CoreTools,
    agents: BTreeMap<String, ToolsConfig>,
}

impl AgentsConfig {
    /// Resolves the values of `tools` and `agents`; `null` for a configuration without them.
    ///
    /// Only the `tools` of an agent is read here; its other keys are ignored.
    pub fn resolve(tools: &Value, agents: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut profiles = profiles::Profiles::built_in();
        let (global, core_tools) = match tools {
            Value::Null => (PartialConfig::empty(&Path::root("tools")), CoreTools::default()),
            given => PartialConfig::read_global(given, &mut profiles, &mut errors),
        };
        let agents = match agents {
            Value::Null => BTreeMap::new(),
            given => reader::entries(given, &Path::root("agents"), &mut errors, |agent, path, errors| {
                read_agent(agent, path, errors, &profiles)
            }),
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let agents = agents.into_iter().map(|(id, agent)| (id, agent.merged_over(&global).resolve())).collect();
        Ok(Self { global: global.resolve(), core_tools, agents })
    }

    /// Returns the configuration of an agent; the global one if the agent has none of its own.
    pub fn tools(&self, agent: &str) -> &ToolsConfig {
        self.agents.get(agent).unwrap_or(&self.global)
    }

    pub fn global(&self) -> &ToolsConfig {
        &self.global
    }

    /// Returns the settings of the core tools, which all agents share.
    pub fn core_tools(&self) -> &CoreTools {
        &self.core_tools
    }

    /// Returns the largest memory limit of any agent's cells.
    pub fn largest_memory_limit(&self) -> u64 {
        let all = self.agents.values().chain([&self.global]);
        all.map(|tools| tools.code_mode.limits.memory_bytes).max().unwrap_or(0)
    }
}

fn read_agent(
    agent: &Value,
    path: &Path,
    errors: &mut Vec<ConfigError>,
    profiles: &profiles::Profiles,
) -> Option<PartialConfig> {
    let Value::Object(fields) = agent else {
        errors.push(ConfigError::value(path, agent, "an object"));
        return None;
    };
    let path = path.key("tools");
    let given = reader::object(fields.get("tools")?, &path, errors, |reader| PartialConfig::read(reader, profiles))?;
    if let Some(runs) = given.code_mode.given_max_live_runs() {
        let expected = "no value here (set it under `tools.codeMode`, because it counts the runs of all agents)";
        errors.push(ConfigError::value(&path.key("codeMode").key(MAX_LIVE_RUNS.key), &Value::from(runs), expected));
    }
    Some(given)
}

/// The settings of one scope, `tools` or `agents.<id>.tools`, before defaults are filled in.
struct PartialConfig {
    code_mode: code_mode::PartialConfig,
    tool_search: tool_search::PartialConfig,
    policy: PolicyConfig,
    search_meaning: Option<bool>,
}

impl PartialConfig {
    fn empty(place: &Path) -> Self {
        Self {
            code_mode: code_mode::PartialConfig::default(),
            tool_search: tool_search::PartialConfig::default(),
            policy: PolicyConfig { scopes: vec![policy::Scope::empty(place)] },
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
            (Self::read(reader, profiles), CoreTools::read(reader))
        });
        given.unwrap_or_else(|| (Self::empty(&path), CoreTools::default()))
    }

    fn read(reader: &mut reader::Reader<'_, '_>, profiles: &profiles::Profiles) -> Self {
        let code_mode =
            reader.field("codeMode").map(|(value, path, errors)| code_mode::PartialConfig::read(value, &path, errors));
        let tool_search = reader
            .field("toolSearch")
            .map(|(value, path, errors)| tool_search::PartialConfig::read(value, &path, errors));
        let search_meaning = reader.object("search", |reader| reader.flag("meaning")).flatten();
        Self {
            search_meaning,
            code_mode: code_mode.unwrap_or_default(),
            tool_search: tool_search.unwrap_or_default(),
            policy: PolicyConfig { scopes: vec![policy::Scope::read(reader, profiles)] },
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
