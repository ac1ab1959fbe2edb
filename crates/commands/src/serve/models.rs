//! The models that the gateway can call, and what is missing for it to answer.

use client_config::Places;
use client_config::display::plain;
use contract::config::{AgentsConfig, GatewayConfig, LOCAL_AGENT, ModelsConfig};
use gateway::debug::DebugSettings;
use gateway::provider::Providers;
use serde_json::{Value, json};

use crate::policy::{self, BadSettings};

/// The most agents and problems that are printed.
const MAX_LINES: usize = 20;

/// The configured models, and what is missing for the gateway to answer.
pub(crate) struct Models {
    /// The providers that can be called. Those that cannot are among the problems.
    pub(super) providers: Providers,
    pub(super) gateway: GatewayConfig,
    agents: Vec<AgentModels>,
    problems: Vec<String>,
    is_configured: bool,
}

/// An agent, by the name under which clients ask for it.
struct AgentModels {
    model: String,
    agent: String,
    /// The provider's models, the preferred one first.
    targets: Vec<String>,
}

impl Models {
    /// Reads the models of a configuration and resolves the secrets of their providers.
    pub(crate) fn read(settings: &Value, config: &AgentsConfig, places: &Places) -> Result<Self, BadSettings> {
        let (models, gateway) = policy::models(settings)?;
        let expand = |text: &str| places.expand_secret(text).map_err(|unset| unset.to_string());
        let debug = DebugSettings::from_env(|name| std::env::var(name).ok());
        let (mut usable, mut problems) = (models.clone(), Vec::new());
        // One at a time: a provider whose key is missing must not stop the others.
        for (id, provider) in &models.providers {
            let only = ModelsConfig { providers: [(id.clone(), provider.clone())].into() };
            if let Err(errors) = Providers::new(&only, &expand, debug) {
                problems.extend(errors.iter().map(ToString::to_string));
                usable.providers.remove(id);
            }
        }
        let providers = Providers::new(&usable, &expand, debug)
            .map_err(|errors| BadSettings::of(errors.iter().map(ToString::to_string)))?;
        if models.providers.is_empty() {
            problems.push(
                "no provider of models is configured, so turns fail; add one to `models.providers`, with `baseUrl`, \
                 `apiKey` and `api`"
                    .to_owned(),
            );
        }
        let agents = agents(config);
        for agent in &agents {
            let name = plain(&agent.agent);
            if agent.targets.is_empty() {
                problems.push(format!(
                    "the agent `{name}` has no model; set `agents.{name}.model` or `agents.defaults.model` to \
                     `PROVIDER/MODEL`"
                ));
            }
            for target in agent.targets.iter().filter(|target| models.find(target).is_none()) {
                problems.push(format!(
                    "the agent `{name}` uses the model `{}`, whose provider is not in `models.providers`",
                    plain(target)
                ));
            }
        }
        let is_configured = !models.providers.is_empty() || agents.iter().any(|agent| !agent.targets.is_empty());
        Ok(Self { providers, gateway, agents, problems, is_configured })
    }

    /// Returns a line for each agent, with its models.
    pub(super) fn agent_lines(&self) -> Vec<String> {
        let line = |agent: &AgentModels| {
            let targets: Vec<String> = agent.targets.iter().map(|target| format!("`{}`", plain(target))).collect();
            let targets = if targets.is_empty() { "no model".to_owned() } else { targets.join(", then ") };
            format!("model `{}` is the agent `{}` with {targets}", plain(&agent.model), plain(&agent.agent))
        };
        limited(self.agents.iter().map(line), self.agents.len())
    }

    /// Returns a line for each problem, with what to do about it.
    pub(super) fn problem_lines(&self) -> Vec<String> {
        limited(self.problems.iter().map(|problem| plain(problem)), self.problems.len())
    }

    /// Whether nothing is missing, or the gateway is not configured at all.
    pub(crate) fn is_ok(&self) -> bool {
        self.problems.is_empty() || !self.is_configured
    }

    /// Returns one line about the models, for `cellmate doctor`.
    pub(crate) fn summary(&self) -> String {
        let (providers, agents) = (self.providers.ids().count(), self.agents.len());
        match self.problems.as_slice() {
            _ if !self.is_configured => "not configured: `models.providers` is empty".to_owned(),
            [] => format!("{providers} {} of models, {agents} {}", noun(providers, "provider"), noun(agents, "agent")),
            [only] => plain(only),
            [first, more @ ..] => {
                format!("{}; and {} more {}", plain(first), more.len(), noun(more.len(), "problem"))
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let agents: Vec<Value> = self
            .agents
            .iter()
            .map(|agent| json!({"id": agent.agent, "model": agent.model, "models": agent.targets}))
            .collect();
        let providers: Vec<&str> = self.providers.ids().collect();
        json!({"configured": self.is_configured, "providers": providers, "agents": agents, "problems": self.problems})
    }
}

/// Returns the agents that clients can ask for, the default one first.
fn agents(config: &AgentsConfig) -> Vec<AgentModels> {
    let agent = |model: String, agent: &str| {
        let choice = config.model(agent);
        let targets = choice.map(|choice| std::iter::once(&choice.primary).chain(&choice.fallbacks).cloned().collect());
        AgentModels { model, agent: agent.to_owned(), targets: targets.unwrap_or_default() }
    };
    let default = config.default_agent().unwrap_or(LOCAL_AGENT);
    let others = config.agent_ids().filter(|id| *id != default).map(|id| agent(format!("openclaw/{id}"), id));
    std::iter::once(agent("openclaw".to_owned(), default)).chain(others).collect()
}

fn limited(lines: impl Iterator<Item = String>, count: usize) -> Vec<String> {
    let more = (count > MAX_LINES).then(|| format!("and {} more", count - MAX_LINES));
    lines.take(MAX_LINES).chain(more).collect()
}

fn noun(count: usize, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}
