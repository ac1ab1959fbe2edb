//! What is reported about settings that have no effect.

use serde_json::{Map, Value, json};

use super::keys::{self, ForeignKey};
use super::{UnusedKind, included, unused};
use crate::config::{AgentsConfig, GatewayConfig, ModelsConfig, PluginsConfig};

fn found(settings: &Value) -> Vec<(String, UnusedKind)> {
    unused(settings).into_iter().map(|one| (one.path, one.kind)).collect()
}

fn paths(settings: &Value, kind: UnusedKind) -> Vec<String> {
    found(settings).into_iter().filter(|(_, found)| *found == kind).map(|(path, _)| path).collect()
}

/// Reads the settings as a start does, and returns the errors.
fn errors(settings: &Value) -> Vec<String> {
    let section = |key: &str| settings.get(key).cloned().unwrap_or_default();
    let tools = AgentsConfig::resolve(&section("tools"), &section("agents")).err().unwrap_or_default();
    let plugins = PluginsConfig::resolve(&section("plugins")).err().unwrap_or_default();
    let models = ModelsConfig::resolve(&section("models")).err().unwrap_or_default();
    let gateway = GatewayConfig::resolve(&section("gateway")).err().unwrap_or_default();
    tools.iter().chain(&plugins).chain(&models).chain(&gateway).map(ToString::to_string).collect()
}

/// Returns an object with every key of a table.
fn full(table: &[ForeignKey]) -> Value {
    Value::Object(table.iter().map(|key| (key.name.to_owned(), json!({}))).collect::<Map<_, _>>())
}

#[test]
fn every_key_of_every_table_is_accepted_and_reported() {
    let tools = |more: Value| {
        let mut tools = full(keys::TOOLS);
        tools["exec"] = full(keys::EXEC);
        tools["exec"]["applyPatch"] = full(keys::APPLY_PATCH);
        tools["web"] = full(keys::WEB);
        tools["web"]["fetch"] = full(keys::FETCH);
        tools["exec"]["enabled"] = more;
        tools
    };
    let agent = |id: &str| {
        let mut agent = full(keys::AGENT);
        agent["id"] = json!(id);
        agent["sandbox"] = full(keys::SANDBOX);
        agent["tools"] = tools(json!(false));
        agent
    };
    let mut settings = full(keys::SECTIONS);
    settings["tools"] = tools(json!(true));
    settings["agents"] =
        json!({"list": [agent("a")], "entries": {"b": agent("b")}, "defaults": agent("d"), "c": agent("c")});
    settings["agents"]["ownership"] = json!("explicit");
    settings["plugins"] = full(keys::PLUGINS);
    settings["plugins"]["entries"] = json!({"p": full(keys::PLUGIN_ENTRY)});
    settings["approvals"] = full(keys::APPROVALS);
    settings["mcp"] = full(keys::MCP);
    settings["gateway"] = full(keys::GATEWAY);
    let mut provider = full(keys::MODEL_PROVIDER);
    provider["baseUrl"] = json!("https://p.example");
    provider["api"] = json!("chat");
    provider["models"] = json!([full(keys::MODEL)]);
    provider["models"][0]["id"] = json!("m");
    settings["models"] = full(keys::MODELS);
    settings["models"]["providers"] = json!({"p": provider, "g": {"api": "google-generative-ai"}});
    assert_eq!(errors(&settings), Vec::<String>::new());
    // `workspaceOnly` is reported only if it is `false`.
    let of_tools =
        keys::TOOLS.len() + keys::EXEC.len() + keys::APPLY_PATCH.len() - 1 + keys::WEB.len() + keys::FETCH.len();
    let of_agent = keys::AGENT.len() + keys::SANDBOX.len() + of_tools;
    let others = [keys::SECTIONS, keys::PLUGINS, keys::PLUGIN_ENTRY, keys::APPROVALS, keys::MCP, keys::AGENTS];
    let of_models = [keys::GATEWAY, keys::MODELS, keys::MODEL_PROVIDER, keys::MODEL];
    let others: usize = others.iter().chain(&of_models).map(|table| table.len()).sum();
    // An `id` has no meaning in `defaults`, in `entries` and in Cellmate's own shape.
    let ids = 3;
    let foreign_provider = 1;
    assert_eq!(unused(&settings).len(), of_tools + 4 * of_agent + others + ids + foreign_provider);
}

#[test]
fn restrictions_that_are_not_enforced_stand_out() {
    let settings = json!({
        "tools": {
            "elevated": {"enabled": false},
            "exec": {"security": "allowlist", "ask": "always", "host": "sandbox", "strictInlineEval": true},
            "toolsBySender": {"*": {"deny": ["exec"]}},
            "subagents": {"tools": {"deny": ["write"]}},
            "loopDetection": {"enabled": true},
        },
        "channels": {
            "whatsapp": {"groups": {"*": {"tools": {"deny": ["exec"]}}}},
            "discord": {"guilds": {"1": {"toolsBySender": {"a": {}}, "channels": {"c": {"tools": {"allow": []}}}}}},
        },
        "gateway": {"tools": {"deny": ["exec"]}},
        "agent": {"elevated": {"enabled": false}},
        "agents": {"list": [{"id": "a", "sandbox": {"mode": "all"}, "tools": {"exec": {"mode": "ask"}}}]},
        "approvals": {"toolPolicy": {}},
    });
    assert_eq!(
        paths(&settings, UnusedKind::NotEnforced),
        [
            "tools.elevated",
            "tools.toolsBySender",
            "tools.subagents",
            "tools.loopDetection",
            "tools.exec.security",
            "tools.exec.ask",
            "tools.exec.host",
            "tools.exec.strictInlineEval",
            "channels.whatsapp.groups[\"*\"].tools",
            "channels.discord.guilds[\"1\"].toolsBySender",
            "channels.discord.guilds[\"1\"].channels.c.tools",
            "gateway.tools",
            "agent.elevated",
            "agents.list[0].sandbox.mode",
            "agents.list[0].tools.exec.mode",
            "approvals.toolPolicy",
        ]
    );
}

#[test]
fn values_that_restrict_nothing_or_are_applied_are_no_warnings() {
    let settings = json!({
        "tools": {
            "exec": {"security": "full", "ask": "off", "host": "gateway", "timeoutSec": 60},
            "fs": {"workspaceOnly": true},
            "web": {"fetch": {"maxChars": 1000}},
            "loopDetection": {"enabled": false},
        },
        "channels": {"telegram": {"actions": {"tools": true}}},
        "agents": {"defaults": {"sandbox": {"mode": "off"}, "workspace": "~/w"}},
    });
    assert_eq!(paths(&settings, UnusedKind::NotEnforced), Vec::<String>::new());
    let denied =
        json!({"tools": {"exec": {"security": "deny"}}, "agents": {"a": {"tools": {"exec": {"mode": "deny"}}}}});
    assert_eq!(found(&denied), [], "the shell is off, so the setting is applied");
    assert_eq!(found(&json!({"tools": {"deny": ["exec"]}, "store": {}, "mcp": {"servers": {}}})), []);
}

#[test]
fn what_a_newer_version_of_openclaw_adds_is_accepted_and_reported() {
    let settings = json!({
        "tools": {"codeMode": "auto", "toolSearch": {"mode": "directory", "maxSearchLimit": 5}},
        "agents": {"entries": {"a": {"tools": {"codeMode": {"enabled": "auto", "executor": "node"}}, "newKey": 1}}},
        "mcp": {"newKey": 1},
    });
    assert_eq!(errors(&settings), Vec::<String>::new());
    let config = AgentsConfig::resolve(&settings["tools"], &settings["agents"]).unwrap();
    assert!(!config.global().code_mode.enabled && config.global().tool_search.enabled);
    assert_eq!(paths(&settings, UnusedKind::Unknown), ["agents.entries.a.newKey", "mcp.newKey"]);
    let mut inapplicable = paths(&settings, UnusedKind::NotApplicable);
    inapplicable.sort();
    assert_eq!(
        inapplicable,
        [
            "agents.entries.a.tools.codeMode.enabled",
            "agents.entries.a.tools.codeMode.executor",
            "tools.codeMode",
            "tools.toolSearch.mode",
        ]
    );
    assert!(!errors(&json!({"tools": {"codeMode": "on"}})).is_empty());
    assert!(!errors(&json!({"tools": {"toolSearch": {"mode": "dir"}}})).is_empty());
}

#[test]
fn included_files_are_an_error_where_they_could_contain_restrictions() {
    let settings = json!({
        "$include": "./base.json5",
        "tools": {"$include": ["./tools.json5"]},
        "agents": {"list": [{"$include": "./main.json5"}]},
        "channels": {"$include": "./channels.json5"},
    });
    let mut found: Vec<String> = included(&settings).into_iter().map(|error| error.path).collect();
    found.sort();
    assert_eq!(found, ["$include", "agents.list[0][\"$include\"]", "tools[\"$include\"]"]);
}

#[test]
fn a_report_names_the_setting_and_the_reason() {
    let texts: Vec<String> =
        unused(&json!({"desktop": {}, "tools": {"elevated": {}}})).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "`desktop` is not used: this is a part of OpenClaw's gateway that cellmate does not have",
            "`tools.elevated` is not enforced: cellmate does not know who sent a message, so its shell is the same \
             for all",
        ]
    );
}
