//! `cellmate approvals rules`: lists and revokes standing approvals.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use ::tools::plugins::Plugins;
use client_config::{Places, ServerEntry, TOOL_LISTS, load};
use contract::tool::{Source, ToolId, ToolSpec};
use executor::clock::now_ms;
use mcp::server::plain;
use serde_json::{Value, json};
use store::{StandingRule, Store};

use super::arguments::RulesAction;
use super::selection::by_prefix;
use super::{ApprovalsError, NOT_PENDING};
use crate::local_tools::reloaded;
use crate::render::OutputFormat;
use crate::state::StateError;
use crate::unmatched::listed_tools;
use crate::{hint, policy};

/// Whether a standing approval allows calls, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleStatus {
    InForce,
    Revoked,
    /// Created before standing approvals were bound to servers.
    WithoutServer,
    /// The server of this name now has a different command or URL.
    OtherServer,
    /// No server of this name is configured here.
    NoServer,
    /// The tool is defined differently than when it was approved, as after an upgrade of its server or plugin.
    OtherDefinition,
}

/// What standing approvals are compared with.
struct CurrentTools {
    servers: Vec<ServerEntry>,
    /// The hashes of the definitions that are known without starting a server, by the id of the tool.
    hashes: HashMap<String, String>,
}

impl CurrentTools {
    /// Reads the configuration, and from the state folder the tools that servers have listed and plugins.
    fn load(places: &Places, state: Option<&Path>) -> Result<Self, StateError> {
        let loaded = load(places)?;
        let lists = state.map(|state| state.join(TOOL_LISTS));
        let listed = loaded.servers.iter().filter_map(|entry| listed_tools(entry, lists.clone()));
        let mut tools: Vec<ToolSpec> = listed.flatten().collect();
        let settings = &loaded.settings;
        // If the policy or the plugins cannot be used, their tools are not compared.
        let local = policy::read(settings)
            .ok()
            .and_then(|policy| reloaded(&policy, settings, (places, state), &Plugins::default()).ok());
        if let Some(local) = local {
            tools.extend(local.local.tools.sources.iter().flat_map(|source| source.tools()));
        }
        let hash = |tool: ToolSpec| (tool.id.as_str().to_owned(), tool.hash().to_string());
        Ok(Self { hashes: tools.into_iter().map(hash).collect(), servers: loaded.servers })
    }
}

impl RuleStatus {
    fn of(rule: &StandingRule, current: &CurrentTools) -> Self {
        if rule.revoked_at.is_some() {
            return Self::Revoked;
        }
        let Some(identity) = &rule.source_identity else { return Self::WithoutServer };
        if let Some(id) = ToolId::parse(&rule.tool_id).ok().filter(|id| id.source() == Source::Mcp) {
            match current.servers.iter().find(|server| server.name == id.owner()) {
                Some(server) if server.spec().identity() == *identity => {}
                Some(_) => return Self::OtherServer,
                None => return Self::NoServer,
            }
        }
        match current.hashes.get(&rule.tool_id) {
            Some(hash) if *hash != rule.tool_hash => Self::OtherDefinition,
            Some(_) | None => Self::InForce,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Revoked => "revoked",
            Self::WithoutServer => "inactive: created before standing approvals were bound to servers",
            Self::OtherServer => "inactive: the server's command or URL has changed",
            Self::NoServer => "inactive: no such server is configured here",
            Self::OtherDefinition => "inactive: the tool's definition has changed",
        }
    }

    /// Returns the status as printed in JSON.
    fn key(self) -> &'static str {
        match self {
            Self::InForce => "inForce",
            Self::Revoked => "revoked",
            Self::WithoutServer => "withoutServer",
            Self::OtherServer => "otherServer",
            Self::NoServer => "noServer",
            Self::OtherDefinition => "otherDefinition",
        }
    }
}

pub(super) async fn act(
    store: &Store,
    places: &Places,
    state: Option<&Path>,
    action: RulesAction,
    format: OutputFormat,
) -> Result<ExitCode, ApprovalsError> {
    match action {
        RulesAction::List { all } => {
            let mut rules = store.rules().await?;
            rules.retain(|rule| all || rule.revoked_at.is_none());
            list(&rules, &CurrentTools::load(places, state)?, format);
            Ok(ExitCode::SUCCESS)
        }
        RulesAction::Revoke { ids } => revoke(store, &ids, format).await,
    }
}

fn list(rules: &[StandingRule], current: &CurrentTools, format: OutputFormat) {
    if format == OutputFormat::Json {
        let listed: Vec<Value> = rules.iter().map(|rule| rule_json(rule, RuleStatus::of(rule, current))).collect();
        crate::render::print_json(&json!(listed));
        return;
    }
    if rules.is_empty() {
        eprintln!("no standing approvals");
    }
    let mut last = None;
    for rule in rules {
        let scope = (&rule.agent_id, &rule.session_id);
        if last != Some(scope) {
            let agent = plain(rule.agent_id.as_deref().unwrap_or("any"), 100);
            let session = rule.session_id.as_deref().map(|session| format!(", session {}", plain(session, 100)));
            println!("agent {agent}{}", session.unwrap_or_default());
            last = Some(scope);
        }
        let (tool, by) = (plain(&rule.tool_id, 200), plain(&rule.created_by, 100));
        let status = RuleStatus::of(rule, current).as_str();
        println!("  {}  {tool}  by {by}  {status}", plain(&rule.rule_id, 200));
    }
}

fn rule_json(rule: &StandingRule, status: RuleStatus) -> Value {
    let mut value = json!(rule);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("standing".to_owned(), json!(status.key()));
    }
    value
}

async fn revoke(store: &Store, ids: &[String], format: OutputFormat) -> Result<ExitCode, ApprovalsError> {
    let rules = store.rules().await?;
    let in_force = || rules.iter().filter(|rule| rule.revoked_at.is_none()).map(|rule| rule.rule_id.as_str());
    // Nothing is revoked if one of them may mean several.
    let found: Vec<Option<&str>> = ids.iter().map(|given| by_prefix(given, in_force())).collect::<Result<_, _>>()?;
    let mut code = ExitCode::SUCCESS;
    for (given, found) in ids.iter().zip(found) {
        let id = found.unwrap_or(given);
        let shown = plain(id, 200);
        if !store.revoke_rule(id, now_ms()).await? {
            let list = hint::command("approvals rules list");
            eprintln!("cellmate: no standing approval `{shown}` is in force; see `{list}`");
            code = ExitCode::from(NOT_PENDING);
        } else if format == OutputFormat::Json {
            crate::render::print_json(&json!({"ruleId": id, "revoked": true}));
        } else {
            println!("revoked  {shown}");
        }
    }
    Ok(code)
}
