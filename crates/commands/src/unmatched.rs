//! Warnings about patterns in the configuration that match no tool.

use std::path::{Path, PathBuf};

use ::tools::plugins::Plugins;
use catalog::policy::{KnownOwners, KnownTools, ListKind, unmatched};
use client_config::{LoadedConfig, Places, ServerEntry, display};
use contract::config::pattern::Pattern;
use contract::tool::ToolSpec;
use executor::ToolSource;
use mcp::{Upstream, UpstreamOptions};
use serde_json::Value;

use crate::local_tools::{plugin_folder, reloaded};
use crate::policy::CallPolicy;

/// The most patterns that are reported, so that a long list does not hide other messages.
const MAX_REPORTED: usize = 20;

/// A pattern that matches no tool, and its place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatternWarning {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// Returns the tools that are known without starting a server: those that servers listed before, and local ones.
pub(crate) fn known_tools(
    loaded: &LoadedConfig,
    policy: &CallPolicy,
    places: &Places,
    state: Option<&Path>,
    lists: Option<PathBuf>,
) -> KnownTools {
    let mut known = KnownTools::default();
    for entry in &loaded.servers {
        match listed_tools(entry, lists.clone()).filter(|_| entry.enabled) {
            Some(tools) => {
                known.ids.extend(tools.into_iter().map(|tool| tool.id));
                known.servers.listed.push(entry.name.clone());
            }
            None => known.servers.unlisted.push(entry.name.clone()),
        }
    }
    // A server that cannot be used has tools that are not known.
    known.servers.unlisted.extend(loaded.problems.iter().filter_map(|problem| problem.server.clone()));
    // What cannot be used is reported elsewhere.
    if let Ok(reloaded) = reloaded(policy, &loaded.settings, (places, state), &Plugins::default()) {
        let local = reloaded.local.tools.sources.iter().flat_map(|source| source.tools());
        known.ids.extend(local.map(|tool| tool.id));
        known.plugins = known_plugins(&reloaded.local.plugins, state);
    }
    known
}

/// Returns the tools that a server has listed before; `None` if it has not. It is not started.
pub(crate) fn listed_tools(entry: &ServerEntry, lists: Option<PathBuf>) -> Option<Vec<ToolSpec>> {
    let upstream = Upstream::new(entry.spec(), UpstreamOptions { cache_dir: lists, ..UpstreamOptions::DEFAULT });
    upstream.status().listed_at.map(|_| upstream.tools())
}

/// Returns the installed plugins. The tools of those that are not used are not known.
fn known_plugins(used: &Plugins, state: Option<&Path>) -> KnownOwners {
    let installed = state.and_then(|state| plugin_folder(state).list().ok()).unwrap_or_default();
    let ids = installed.into_iter().map(|plugin| plugin.id);
    let (listed, unlisted) = ids.partition(|id| used.get(id).is_some());
    KnownOwners { listed, unlisted }
}

/// Returns a warning for each pattern of the settings that matches none of the known tools and probably is a mistake.
pub(crate) fn warnings(settings: &Value, known: &KnownTools) -> Vec<PatternWarning> {
    let mut found = Vec::new();
    let mut check = |path: String, text: &Value, kind: ListKind| {
        let Some(pattern) = text.as_str().and_then(|text| Pattern::parse(text).ok()) else { return };
        // In `ask`, the word stands for what is asked about anyway.
        if found.len() == MAX_REPORTED || (kind == ListKind::Ask && pattern.as_str() == "changes") {
            return;
        }
        if let Some(unmatched) = unmatched(&pattern, kind, known) {
            let meant = unmatched.meant.map(|meant| format!("; did you mean `{}`?", display::plain(&meant)));
            let message = format!(
                "`{path}`: `{}` matches no known tool{}",
                display::plain(pattern.as_str()),
                meant.as_deref().unwrap_or("; `cellmate tools list --json` shows the ids of tools")
            );
            found.push(PatternWarning { path, message });
        }
    };
    let mut list = |path: String, value: Option<&Value>, kind: ListKind| {
        for (at, text) in value.and_then(Value::as_array).into_iter().flatten().enumerate() {
            check(format!("{path}[{at}]"), text, kind);
        }
    };
    for (path, tools) in scopes(settings) {
        for (path, lists) in lists_of(path, tools) {
            for (key, kind) in [("allow", ListKind::Grant), ("alsoAllow", ListKind::Grant), ("deny", ListKind::Deny)] {
                list(format!("{path}.{key}"), lists.get(key), kind);
            }
        }
    }
    if let Some(approvals) = settings.get("approvals") {
        list("approvals.ask".to_owned(), approvals.get("ask"), ListKind::Ask);
        list("approvals.pass".to_owned(), approvals.get("pass"), ListKind::Grant);
    }
    found
}

/// Returns the `tools` of the configuration and of each agent, with their paths.
fn scopes(settings: &Value) -> Vec<(String, &Value)> {
    let own = settings.get("tools").map(|tools| ("tools".to_owned(), tools));
    let mut scopes: Vec<(String, &Value)> = own.into_iter().collect();
    let agents = settings.get("agents").and_then(Value::as_object);
    for (key, value) in agents.into_iter().flatten() {
        let path = format!("agents.{key}");
        let inside: Vec<(String, &Value)> = match (key.as_str(), value) {
            ("list", Value::Array(agents)) => {
                agents.iter().enumerate().map(|(at, agent)| (format!("{path}[{at}]"), agent)).collect()
            }
            ("entries", Value::Object(agents)) => {
                agents.iter().map(|(name, agent)| (format!("{path}.{name}"), agent)).collect()
            }
            _ => vec![(path, value)],
        };
        let tools = inside.into_iter().filter_map(|(path, agent)| Some((format!("{path}.tools"), agent.get("tools")?)));
        scopes.extend(tools);
    }
    scopes
}

/// Returns the objects of a scope that contain lists: itself, those of providers and models, and those for sandboxed
/// runs.
fn lists_of(path: String, tools: &Value) -> Vec<(String, &Value)> {
    let providers = tools.get("byProvider").and_then(Value::as_object).into_iter().flatten();
    let providers = providers.map(|(key, lists)| (format!("{path}.byProvider.{key}"), lists));
    let sandbox = tools.pointer("/sandbox/tools").map(|lists| (format!("{path}.sandbox.tools"), lists));
    let mut all: Vec<(String, &Value)> = providers.chain(sandbox).collect();
    all.push((path, tools));
    all
}

#[cfg(test)]
mod tests {
    use catalog::policy::{KnownOwners, KnownTools};
    use contract::tool::ToolId;
    use serde_json::json;

    use super::{MAX_REPORTED, warnings};

    fn known() -> KnownTools {
        let ids = ["mcp:files:write_file", "mcp:files:read_file"].map(|id| ToolId::parse(id).unwrap());
        let servers = KnownOwners { listed: vec!["files".to_owned()], ..KnownOwners::default() };
        KnownTools { ids: ids.to_vec(), servers, ..KnownTools::default() }
    }

    #[test]
    fn patterns_of_every_list_are_checked_and_reported_with_their_path() {
        let wrong = "mcp:files:write_fil";
        let lists = json!({"allow": ["*", wrong], "alsoAllow": [wrong], "deny": ["mcp:files:writeFile", wrong]});
        let settings = json!({
            "tools": {"deny": [wrong, 7], "byProvider": {"openai": lists}, "sandbox": {"tools": lists}},
            "agents": {
                "reviewer": {"tools": {"deny": [wrong]}},
                "list": [{"id": "a"}, {"id": "b", "tools": lists}],
                "entries": {"c": {"tools": {"alsoAllow": [wrong]}}},
            },
            "approvals": {"ask": ["changes", wrong], "pass": [wrong, "changes"]},
        });
        let mut paths: Vec<String> = warnings(&settings, &known()).into_iter().map(|warning| warning.path).collect();
        paths.sort_unstable();
        let expected = [
            "agents.entries.c.tools.alsoAllow[0]",
            "agents.list[1].tools.allow[1]",
            "agents.list[1].tools.alsoAllow[0]",
            "agents.list[1].tools.deny[1]",
            "agents.reviewer.tools.deny[0]",
            "approvals.ask[1]",
            "approvals.pass[0]",
            "tools.byProvider.openai.allow[1]",
            "tools.byProvider.openai.alsoAllow[0]",
            "tools.byProvider.openai.deny[1]",
            "tools.deny[0]",
            "tools.sandbox.tools.allow[1]",
            "tools.sandbox.tools.alsoAllow[0]",
            "tools.sandbox.tools.deny[1]",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_warning_names_the_tool_that_is_meant_and_long_lists_are_cut() {
        let found = warnings(&json!({"approvals": {"pass": ["files.write_file", "mcp:files:x*"]}}), &known());
        let messages: Vec<&str> = found.iter().map(|warning| warning.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`approvals.pass[0]`: `files.write_file` matches no known tool; did you mean \
                 `mcp:files:write_file`?",
                "`approvals.pass[1]`: `mcp:files:x*` matches no known tool; `cellmate tools list --json` \
                 shows the ids of tools",
            ]
        );
        let many = vec!["mcp:files:\u{202e}x"; MAX_REPORTED + 5];
        let found = warnings(&json!({"tools": {"deny": many}}), &known());
        assert_eq!(found.len(), MAX_REPORTED);
        assert!(found.iter().all(|warning| !warning.message.contains('\u{202e}')));
    }
}
