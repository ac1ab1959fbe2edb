//! `agents`: the settings of single agents.
//!
//! Agents are given in three ways, which may be mixed: OpenClaw's `list` (items with an `id`), OpenClaw's `entries` (by
//! id), and Cellmate's own shape, in which every other key of `agents` is an agent's id. `defaults` applies to all agents.
//! So an agent whose id is `list`, `entries`, `defaults` or `ownership` must be given in one of the first two ways.
//!
//! Ids are compared without regard to case, as in OpenClaw, so that no restriction is lost to a capital letter.

use std::collections::BTreeMap;

use serde_json::Value;

use super::core_tools::{AgentCoreTools, denied_without_access, denied_without_write_access};
use super::error::{ConfigError, Path};
use super::openclaw::keys;
use super::policy::Scope;
use super::profiles::Profiles;
use super::reader::{self, ConfigReader};
use super::{CoreTools, FileRoot, PartialConfig, RootAccess, ToolsConfig};
use crate::limits::{MAX_FALLBACK_MODELS, MAX_INSTRUCTION_BYTES, MAX_LIVE_RUNS, MAX_MODEL_CALLS, MAX_TURNS};

/// The id of an agent that has none: a client on this machine, or the command line.
///
/// If it is not configured, it has the settings of OpenClaw's default agent.
pub const LOCAL_AGENT: &str = "local";

/// The resolved configuration of every agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentsConfig {
    global: ToolsConfig,
    core_tools: CoreTools,
    /// Of agents that are not configured.
    others: AgentConfig,
    /// By id, in lower case.
    agents: BTreeMap<String, AgentConfig>,
    /// The key of the default agent in `agents`.
    default_agent: Option<String>,
}

/// The resolved settings of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AgentConfig {
    tools: ToolsConfig,
    workspace: Option<String>,
    workspace_only: bool,
    sandbox_mode: SandboxMode,
    turns: TurnConfig,
}

/// What the gateway needs for the turns of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TurnConfig {
    model: Option<ModelChoice>,
    instructions: Option<String>,
    max_model_calls: Option<u64>,
    max_output_tokens: Option<u64>,
}

/// `model` of an agent: the models that its turns use, each as `provider/model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    pub primary: String,
    /// Used in this order if the primary model fails.
    pub fallbacks: Vec<String>,
}

/// `sandbox.mode`: which sessions of an agent OpenClaw runs in a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxMode {
    #[default]
    Off,
    /// All but the main session.
    NonMain,
    All,
}

/// `sandbox.workspaceAccess`: what a sandboxed session may do in the agent's workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkspaceAccess {
    None,
    ReadOnly,
    ReadWrite,
}

impl AgentsConfig {
    /// Resolves the values of `tools` and `agents`; `null` for a configuration without them.
    ///
    /// Keys of OpenClaw that have no meaning here are accepted; [`super::openclaw::unused`] lists them.
    pub fn resolve(tools: &Value, agents: &Value) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut profiles = Profiles::built_in();
        let (global, core_tools) = match tools {
            Value::Null => (PartialConfig::empty(&Path::root("tools")), CoreTools::default()),
            given => PartialConfig::read_global(given, &mut profiles, &mut errors),
        };
        let mut given = GivenAgents { profiles: &profiles, defaults: None, agents: BTreeMap::new(), default: None };
        if !agents.is_null() {
            given.read(agents, &Path::root("agents"), &mut errors);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let GivenAgents { defaults, agents, default, .. } = given;
        let defaults = defaults.unwrap_or_default();
        let base = match &defaults.tools {
            Some(tools) => tools.clone().merged_over(&global),
            None => global.clone(),
        };
        let resolve = |agent: Agent| agent.over(&defaults).resolve(&base);
        let others = defaults.clone().without_tools().resolve(&base);
        let agents = agents.into_iter().map(|(id, agent)| (id, resolve(agent))).collect();
        Ok(Self { global: global.resolve(), core_tools, others, agents, default_agent: default.map(|(id, _)| id) })
    }

    /// Returns the configuration of an agent. An agent that is not configured has the global one, with `agents.defaults`;
    /// [`LOCAL_AGENT`] then has that of the default agent.
    pub fn tools(&self, agent: &str) -> &ToolsConfig {
        &self.agent(agent).tools
    }

    pub fn global(&self) -> &ToolsConfig {
        &self.global
    }

    /// Returns the settings of the core tools, which all agents share.
    pub fn core_tools(&self) -> &CoreTools {
        &self.core_tools
    }

    /// Returns the id of OpenClaw's default agent, in lower case: the one that says so, else the first of `agents.list`,
    /// else the only one of `agents.entries`. An agent of Cellmate's own shape is not one unless it says so.
    pub fn default_agent(&self) -> Option<&str> {
        self.default_agent.as_deref()
    }

    /// Returns the folders that the file tools and the shell may use in runs of an agent, as they are written in the
    /// configuration. Without any, they may use none.
    ///
    /// These are `tools.fs.roots`; if there are none, the agent's `workspace`, or that of `agents.defaults`. With
    /// OpenClaw's `tools.fs.workspaceOnly` it is the workspace alone, if there is one.
    pub fn file_roots(&self, agent: &str) -> Vec<FileRoot> {
        let files = &self.core_tools.files;
        let agent = self.agent(agent);
        match &agent.workspace {
            Some(workspace) if files.roots.is_empty() || files.workspace_only || agent.workspace_only => {
                vec![FileRoot { path: workspace.clone(), access: RootAccess::Write }]
            }
            Some(_) | None => files.roots.clone(),
        }
    }

    pub fn sandbox_mode(&self, agent: &str) -> SandboxMode {
        self.agent(agent).sandbox_mode
    }

    /// Whether `tools.sandbox.tools` applies to runs of an agent.
    ///
    /// Cellmate does not know which session is OpenClaw's main one, so with the mode `non-main` it applies to all.
    pub fn is_sandboxed(&self, agent: &str) -> bool {
        self.sandbox_mode(agent) != SandboxMode::Off
    }

    /// Returns the models of an agent's turns; `None` if none is configured.
    pub fn model(&self, agent: &str) -> Option<&ModelChoice> {
        self.agent(agent).turns.model.as_ref()
    }

    /// Returns the instructions that an agent's turns begin with; empty if there are none.
    pub fn instructions(&self, agent: &str) -> &str {
        self.agent(agent).turns.instructions.as_deref().unwrap_or_default()
    }

    /// Returns the most requests to models in one turn of an agent.
    pub fn max_model_calls(&self, agent: &str) -> u64 {
        self.agent(agent).turns.max_model_calls.unwrap_or(MAX_MODEL_CALLS.default)
    }

    /// Returns the most tokens of one response to an agent, if there is a limit.
    pub fn max_output_tokens(&self, agent: &str) -> Option<u64> {
        self.agent(agent).turns.max_output_tokens
    }

    /// Returns the ids of the configured agents, in lower case and in alphabetical order.
    pub fn agent_ids(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Whether an agent of this id is configured.
    pub fn has_agent(&self, agent: &str) -> bool {
        self.agents.contains_key(&folded(agent))
    }

    /// Returns the largest memory limit of any agent's cells.
    pub fn largest_memory_limit(&self) -> u64 {
        let all = self.agents.values().chain([&self.others]).map(|agent| &agent.tools).chain([&self.global]);
        all.map(|tools| tools.code_mode.limits.memory_bytes).max().unwrap_or(0)
    }

    fn agent(&self, id: &str) -> &AgentConfig {
        let default = || self.default_agent.as_ref().filter(|_| id == LOCAL_AGENT).and_then(|id| self.agents.get(id));
        self.agents.get(&folded(id)).or_else(default).unwrap_or(&self.others)
    }
}

fn folded(id: &str) -> String {
    id.trim().to_lowercase()
}

/// How an agent became the default one. A stronger reason replaces a weaker one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DefaultReason {
    First,
    SaysSo,
}

/// The agents that were read so far.
struct GivenAgents<'p> {
    profiles: &'p Profiles,
    defaults: Option<Agent>,
    agents: BTreeMap<String, Agent>,
    default: Option<(String, DefaultReason)>,
}

impl GivenAgents<'_> {
    fn read(&mut self, agents: &Value, path: &Path, errors: &mut Vec<ConfigError>) {
        let Value::Object(fields) = agents else {
            errors.push(ConfigError::wrong_value(path, agents, "an object"));
            return;
        };
        for (key, value) in fields {
            let path = path.child(key);
            match key.as_str() {
                "defaults" => self.defaults = Agent::read(value, &path, errors, self.profiles),
                "list" => self.read_list(value, &path, errors),
                "entries" => self.read_entries(value, &path, errors),
                foreign if keys::AGENTS.iter().any(|key| key.name == foreign) => {}
                blank if blank.trim().is_empty() => {
                    errors.push(ConfigError::wrong_value(&path, &Value::from(blank), "an id that is not blank"));
                }
                id => self.add(id, value, &path, errors),
            }
        }
    }

    fn read_list(&mut self, value: &Value, path: &Path, errors: &mut Vec<ConfigError>) {
        let Value::Array(items) = value else {
            errors.push(ConfigError::wrong_value(path, value, "a list of agents"));
            return;
        };
        for (position, item) in items.iter().enumerate() {
            let path = path.item(position);
            let Some(given) = item.get("id") else {
                errors.push(ConfigError::wrong_value(&path, item, "an object with an `id`"));
                continue;
            };
            match given.as_str().filter(|id| !id.trim().is_empty()) {
                Some(id) => {
                    self.add(id, item, &path, errors);
                    self.suggest_default(id, DefaultReason::First);
                }
                None => errors.push(ConfigError::wrong_value(&path.child("id"), given, "an id that is not blank")),
            }
        }
    }

    fn read_entries(&mut self, value: &Value, path: &Path, errors: &mut Vec<ConfigError>) {
        let Value::Object(fields) = value else {
            errors.push(ConfigError::wrong_value(path, value, "an object"));
            return;
        };
        for (id, agent) in fields {
            self.add(id, agent, &path.child(id), errors);
        }
        if let [id] = fields.keys().collect::<Vec<_>>().as_slice() {
            self.suggest_default(id, DefaultReason::First);
        }
    }

    fn add(&mut self, id: &str, value: &Value, path: &Path, errors: &mut Vec<ConfigError>) {
        let Some(agent) = Agent::read(value, path, errors, self.profiles) else { return };
        if agent.is_default {
            self.suggest_default(id, DefaultReason::SaysSo);
        }
        if self.agents.insert(folded(id), agent).is_some() {
            let expected = "one agent of each id (they are compared without regard to case)";
            errors.push(ConfigError::wrong_value(path, &Value::from(id), expected));
        }
    }

    /// Makes an agent the default one unless there is one for a reason that is as strong.
    fn suggest_default(&mut self, id: &str, because: DefaultReason) {
        if self.default.as_ref().is_none_or(|(_, current)| *current < because) {
            self.default = Some((folded(id), because));
        }
    }
}

/// The settings of one agent, or of `agents.defaults`, before the others are filled in.
#[derive(Clone, Default)]
struct Agent {
    is_default: bool,
    tools: Option<PartialConfig>,
    workspace: Option<String>,
    workspace_only: bool,
    sandbox_mode: Option<SandboxMode>,
    /// With the path at which it is given.
    workspace_access: Option<(WorkspaceAccess, Path)>,
    turns: TurnConfig,
}

impl Agent {
    fn read(value: &Value, path: &Path, errors: &mut Vec<ConfigError>, profiles: &Profiles) -> Option<Self> {
        reader::object(value, path, errors, |reader| Self::read_fields(reader, profiles))
    }

    fn read_fields(reader: &mut ConfigReader<'_, '_>, profiles: &Profiles) -> Self {
        reader.accept_table(keys::AGENT);
        reader.accept_unknown();
        // The list's reader has checked it.
        let _id = reader.field("id");
        let is_default = reader.flag("default").unwrap_or(false);
        let workspace = reader.text("workspace", "a folder");
        let tools = reader.field("tools").and_then(|(value, path, errors)| read_tools(value, &path, errors, profiles));
        let (tools, workspace_only) = tools.unzip();
        let sandbox = reader.object("sandbox", |reader| {
            reader.accept_table(keys::SANDBOX);
            reader.accept_unknown();
            let modes = [("off", SandboxMode::Off), ("non-main", SandboxMode::NonMain), ("all", SandboxMode::All)];
            let accesses = [
                ("none", WorkspaceAccess::None),
                ("ro", WorkspaceAccess::ReadOnly),
                ("rw", WorkspaceAccess::ReadWrite),
            ];
            let access = reader.choice("workspaceAccess", &accesses);
            let path = reader.path().child("workspaceAccess");
            (reader.choice("mode", &modes), access.map(|access| (access, path)))
        });
        let (sandbox_mode, workspace_access) = sandbox.unwrap_or_default();
        Self {
            is_default,
            tools,
            workspace,
            workspace_only: workspace_only.unwrap_or(false),
            sandbox_mode,
            workspace_access,
            turns: TurnConfig::read(reader),
        }
    }

    /// Fills in what the defaults give. Their `tools` are a scope of their own, and stay out.
    fn over(self, defaults: &Self) -> Self {
        Self {
            workspace: self.workspace.or_else(|| defaults.workspace.clone()),
            workspace_only: self.workspace_only || defaults.workspace_only,
            sandbox_mode: self.sandbox_mode.or(defaults.sandbox_mode),
            workspace_access: self.workspace_access.or_else(|| defaults.workspace_access.clone()),
            turns: self.turns.over(&defaults.turns),
            ..self
        }
    }

    fn without_tools(self) -> Self {
        Self { tools: None, ..self }
    }

    fn resolve(self, base: &PartialConfig) -> AgentConfig {
        let sandbox_mode = self.sandbox_mode.unwrap_or_default();
        let mut tools = match self.tools {
            Some(tools) => tools.merged_over(base).resolve(),
            None => base.resolve(),
        };
        if sandbox_mode != SandboxMode::Off {
            tools.policy.scopes.extend(self.workspace_access.and_then(|(access, path)| restricted(access, &path)));
        }
        AgentConfig {
            tools,
            workspace: self.workspace,
            workspace_only: self.workspace_only,
            sandbox_mode,
            turns: self.turns,
        }
    }
}

impl TurnConfig {
    fn read(reader: &mut ConfigReader<'_, '_>) -> Self {
        let model = reader.field("model").and_then(|(value, path, errors)| ModelChoice::read(value, &path, errors));
        let instructions = reader.field("instructions").and_then(|(value, path, errors)| {
            let text = value.as_str().filter(|text| text.len() <= MAX_INSTRUCTION_BYTES);
            if text.is_none() {
                let expected = format!("a text of at most {MAX_INSTRUCTION_BYTES} bytes");
                errors.push(ConfigError::wrong_value(&path, value, &expected));
            }
            text.map(str::to_owned)
        });
        let (calls, turns) = (reader.number(&MAX_MODEL_CALLS), reader.number(&MAX_TURNS));
        let max_output_tokens = reader.whole("maxOutputTokens", 1);
        Self { model, instructions, max_model_calls: calls.or(turns), max_output_tokens }
    }

    fn over(self, defaults: &Self) -> Self {
        Self {
            model: self.model.or_else(|| defaults.model.clone()),
            instructions: self.instructions.or_else(|| defaults.instructions.clone()),
            max_model_calls: self.max_model_calls.or(defaults.max_model_calls),
            max_output_tokens: self.max_output_tokens.or(defaults.max_output_tokens),
        }
    }
}

impl ModelChoice {
    /// Reads `"provider/model"` or `{ primary, fallbacks }`.
    fn read(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let name = |value: &Value, path: &Path| {
            let name = value.as_str().map(str::trim).filter(|name| !name.is_empty());
            name.map(str::to_owned).ok_or_else(|| ConfigError::wrong_value(path, value, "a model, as `provider/model`"))
        };
        if !value.is_object() {
            let primary = name(value, path).map_err(|error| errors.push(error)).ok()?;
            return Some(Self { primary, fallbacks: Vec::new() });
        }
        reader::object(value, path, errors, |reader| {
            reader.accept_unknown();
            let primary = reader
                .field("primary")
                .and_then(|(value, path, errors)| name(value, &path).map_err(|error| errors.push(error)).ok());
            let fallbacks = reader.list("fallbacks", name).unwrap_or_default();
            if fallbacks.len() > MAX_FALLBACK_MODELS {
                let expected = format!("at most {MAX_FALLBACK_MODELS} models");
                let error = ConfigError::wrong_value(
                    &reader.path().child("fallbacks"),
                    &Value::from(fallbacks.len()),
                    &expected,
                );
                reader.report(error);
            }
            // OpenClaw allows fallbacks alone, for a primary model that is given elsewhere.
            primary.map(|primary| Self { primary, fallbacks })
        })
        .flatten()
    }
}

/// Returns the scope that denies the core tools for which a sandboxed agent lacks access to its workspace.
fn restricted(access: WorkspaceAccess, path: &Path) -> Option<Scope> {
    let denied = match access {
        WorkspaceAccess::None => denied_without_access(),
        WorkspaceAccess::ReadOnly => denied_without_write_access(),
        WorkspaceAccess::ReadWrite => return None,
    };
    let mut scope = Scope::empty(path);
    scope.rules.lists.deny = denied;
    Some(scope)
}

/// Reads the `tools` of an agent, and whether they confine file tools to its workspace.
fn read_tools(
    value: &Value,
    path: &Path,
    errors: &mut Vec<ConfigError>,
    profiles: &Profiles,
) -> Option<(PartialConfig, bool)> {
    let (mut tools, core) = reader::object(value, path, errors, |reader| {
        (PartialConfig::read(reader, profiles), AgentCoreTools::read(reader))
    })?;
    if let Some(runs) = tools.code_mode.given_max_live_runs() {
        let expected = "no value here (set it under `tools.codeMode`, because it counts the runs of all agents)";
        errors.push(ConfigError::wrong_value(
            &path.child("codeMode").child(MAX_LIVE_RUNS.key),
            &Value::from(runs),
            expected,
        ));
    }
    tools.deny(core.denied);
    Some((tools, core.workspace_only))
}

#[cfg(test)]
mod tests;
