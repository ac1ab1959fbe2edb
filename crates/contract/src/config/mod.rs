//! The part of a configuration that says which tools a run has and what its cells may use.
//!
//! A raw value goes in once and comes out decided: every default filled in, every number within its range.
//! Files, and the keys that belong to others, are read elsewhere; [`reader`] is for them too.

pub mod error;
pub mod groups;
pub mod nearest;
pub mod pattern;
pub mod policy;
pub mod profiles;
pub mod reader;

mod code_mode;
mod numbers;
mod store;
mod tool_search;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::limits::MAX_LIVE_RUNS;

pub use code_mode::{CodeMode, Languages};
pub use error::{ConfigError, Path};
pub use numbers::SearchLimits;
pub use policy::PolicyConfig;
pub use store::{Quotas, Retention, StoreConfig};
pub use tool_search::{ToolSearch, ToolSearchMode};

/// All of `tools` for one agent, or for none in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsConfig {
    pub code_mode: CodeMode,
    pub tool_search: ToolSearch,
    pub policy: PolicyConfig,
    /// `tools.search.meaning`: whether searches go by the meaning of words, too.
    pub search_meaning: bool,
}

impl ToolsConfig {
    /// Takes what stands under `tools`; `null` for a configuration without it.
    pub fn resolve(tools: &Value) -> Result<Self, Vec<ConfigError>> {
        AgentsConfig::resolve(tools, &Value::Null).map(|agents| agents.global)
    }
}

/// `tools` as each agent has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentsConfig {
    global: ToolsConfig,
    agents: BTreeMap<String, ToolsConfig>,
}

impl AgentsConfig {
    /// Takes what stands under `tools` and under `agents`; `null` for a configuration without them.
    ///
    /// Of an agent only `tools` is read here; its other keys are for whoever reads agents.
    pub fn resolve(tools: &Value, agents: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut profiles = profiles::Profiles::built_in();
        let global = match tools {
            Value::Null => Given::empty(&Path::root("tools")),
            given => Given::read_global(given, &mut profiles, &mut errors),
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
        let agents = agents.into_iter().map(|(id, agent)| (id, agent.over(&global).resolve())).collect();
        Ok(Self { global: global.resolve(), agents })
    }

    /// An agent that nothing is said about has the global configuration.
    pub fn tools(&self, agent: &str) -> &ToolsConfig {
        self.agents.get(agent).unwrap_or(&self.global)
    }

    pub fn global(&self) -> &ToolsConfig {
        &self.global
    }

    /// The largest memory limit that any agent's cells have.
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
) -> Option<Given> {
    let Value::Object(fields) = agent else {
        errors.push(ConfigError::value(path, agent, "an object"));
        return None;
    };
    let path = path.key("tools");
    let given = reader::object(fields.get("tools")?, &path, errors, |reader| Given::read(reader, profiles))?;
    if let Some(runs) = given.code_mode.gives_max_live_runs() {
        let expected = "it under `tools.codeMode` only, because it counts the runs of all agents";
        errors.push(ConfigError::value(&path.key("codeMode").key(MAX_LIVE_RUNS.key), &Value::from(runs), expected));
    }
    Some(given)
}

/// What one scope says.
struct Given {
    code_mode: code_mode::Given,
    tool_search: tool_search::Given,
    policy: PolicyConfig,
    search_meaning: Option<bool>,
}

impl Given {
    fn empty(place: &Path) -> Self {
        Self {
            code_mode: code_mode::Given::default(),
            tool_search: tool_search::Given::default(),
            policy: PolicyConfig { scopes: vec![policy::Scope::empty(place)] },
            search_meaning: None,
        }
    }

    fn read_global(value: &Value, profiles: &mut profiles::Profiles, errors: &mut Vec<ConfigError>) -> Self {
        let path = Path::root("tools");
        let given = reader::object(value, &path, errors, |reader| {
            if let Some((value, path, errors)) = reader.field("profiles") {
                profiles.add(value, &path, errors);
            }
            Self::read(reader, profiles)
        });
        given.unwrap_or_else(|| Self::empty(&path))
    }

    fn read(reader: &mut reader::Reader<'_, '_>, profiles: &profiles::Profiles) -> Self {
        let code_mode =
            reader.field("codeMode").map(|(value, path, errors)| code_mode::Given::read(value, &path, errors));
        let tool_search =
            reader.field("toolSearch").map(|(value, path, errors)| tool_search::Given::read(value, &path, errors));
        let search_meaning = reader.object("search", |reader| reader.flag("meaning")).flatten();
        Self {
            search_meaning,
            code_mode: code_mode.unwrap_or_default(),
            tool_search: tool_search.unwrap_or_default(),
            policy: PolicyConfig { scopes: vec![policy::Scope::read(reader, profiles)] },
        }
    }

    fn over(self, base: &Self) -> Self {
        let mut scopes = base.policy.scopes.clone();
        scopes.extend(self.policy.scopes);
        Self {
            code_mode: self.code_mode.over(&base.code_mode),
            tool_search: self.tool_search.over(&base.tool_search),
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
