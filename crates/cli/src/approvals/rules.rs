//! `cellmate approvals rules`: lists and revokes standing approvals.

use std::process::ExitCode;

use client_config::{Places, ServerEntry, load};
use contract::tool::{Source, ToolId};
use executor::clock::now_ms;
use mcp::server::plain;
use serde_json::{Value, json};
use store::{StandingRule, Store};

use super::arguments::RulesAction;
use super::selection::by_prefix;
use super::{ApprovalsError, NOT_PENDING};
use crate::hint;

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
}

impl RuleStatus {
    fn of(rule: &StandingRule, servers: &[ServerEntry]) -> Self {
        if rule.revoked_at.is_some() {
            return Self::Revoked;
        }
        let Some(identity) = &rule.source_identity else { return Self::WithoutServer };
        let Some(id) = ToolId::parse(&rule.tool_id).ok().filter(|id| id.source() == Source::Mcp) else {
            return Self::InForce;
        };
        match servers.iter().find(|server| server.name == id.owner()) {
            Some(server) if server.spec().identity() == *identity => Self::InForce,
            Some(_) => Self::OtherServer,
            None => Self::NoServer,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Revoked => "revoked",
            Self::WithoutServer => "inactive: created before standing approvals were bound to servers",
            Self::OtherServer => "inactive: the server's command or URL has changed",
            Self::NoServer => "inactive: no such server is configured here",
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
        }
    }
}

pub(super) async fn act(
    store: &Store,
    places: &Places,
    action: RulesAction,
    as_json: bool,
) -> Result<ExitCode, ApprovalsError> {
    match action {
        RulesAction::List { all } => {
            let mut rules = store.rules().await?;
            rules.retain(|rule| all || rule.revoked_at.is_none());
            let servers = load(places).map_err(crate::state::StateError::from)?.servers;
            list(&rules, &servers, as_json);
            Ok(ExitCode::SUCCESS)
        }
        RulesAction::Revoke { ids } => revoke(store, &ids, as_json).await,
    }
}

fn list(rules: &[StandingRule], servers: &[ServerEntry], as_json: bool) {
    if as_json {
        let listed: Vec<Value> = rules.iter().map(|rule| rule_json(rule, RuleStatus::of(rule, servers))).collect();
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
        let status = RuleStatus::of(rule, servers).as_str();
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

async fn revoke(store: &Store, ids: &[String], as_json: bool) -> Result<ExitCode, ApprovalsError> {
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
        } else if as_json {
            crate::render::print_json(&json!({"ruleId": id, "revoked": true}));
        } else {
            println!("revoked  {shown}");
        }
    }
    Ok(code)
}
