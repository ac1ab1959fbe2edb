//! The `tools` configuration as a whole, global and per agent.

use serde_json::{Value, json};

use super::{AgentsConfig, CodeMode, SearchLimits, ToolSearchMode, ToolsConfig};

fn texts(errors: &[super::ConfigError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn agents(tools: &Value, agents: &Value) -> Result<AgentsConfig, Vec<String>> {
    AgentsConfig::resolve(tools, agents).map_err(|errors| texts(&errors))
}

#[test]
fn an_empty_configuration_disables_everything_and_has_no_policy() {
    let config = ToolsConfig::resolve(&Value::Null).unwrap();
    assert_eq!(config, ToolsConfig::resolve(&json!({})).unwrap());
    assert!(!config.code_mode.enabled);
    assert!(!config.tool_search.enabled);
    let [scope] = config.policy.scopes.as_slice() else { panic!("{:?}", config.policy) };
    assert_eq!((scope.path.as_str(), &scope.rules), ("tools", &super::policy::Rules::default()));
}

#[test]
fn the_examples_of_the_contract_can_be_read() {
    let config = ToolsConfig::resolve(&json!({
        "codeMode": {
            "enabled": true,
            "timeoutMs": 10_000,
            "memoryLimitBytes": 67_108_864,
            "maxOutputBytes": 65_536,
            "maxSnapshotBytes": 10_485_760,
            "maxPendingToolCalls": 16,
            "snapshotTtlSeconds": 900,
            "searchDefaultLimit": 8,
            "maxSearchLimit": 50,
        },
        "toolSearch": {"mode": "code", "codeTimeoutMs": 10_000, "searchDefaultLimit": 8, "maxSearchLimit": 20},
        "sandbox": {"tools": {"alsoAllow": ["bundle-mcp"]}},
    }))
    .unwrap();
    let defaults = ToolsConfig::resolve(&json!({"codeMode": true})).unwrap().code_mode;
    assert_eq!(config.code_mode, CodeMode { has_own_timeout: true, ..defaults });
    assert_eq!(config.tool_search, ToolsConfig::resolve(&json!({"toolSearch": true})).unwrap().tool_search);
}

#[test]
fn errors_of_all_parts_are_reported_together() {
    let errors = ToolsConfig::resolve(&json!({
        "codeMode": {"timeoutMs": "10s"},
        "toolSearch": [],
        "deny": [7],
        "profiles": {"mine": [""]},
        "codemode": true,
        "profile": "mine",
        "shell": {},
    }))
    .unwrap_err();
    assert_eq!(
        texts(&errors),
        [
            "`tools.profiles.mine[0]`: expected a tool's id, name or owner, a glob over them, or a group, \
             found `\"\"`",
            "`tools.codeMode.timeoutMs`: expected a whole number from 100 to 60000, found `\"10s\"`",
            "`tools.toolSearch`: expected `true`, `false` or an object, found a list",
            "`tools.deny[0]`: expected a tool's id, name or owner, a glob over them, or a group, found `7`",
            "`tools.codemode`: unknown key; did you mean `codeMode`?",
            "`tools.shell`: unknown key; known keys are `profiles`, `codeMode`, `toolSearch`, `search`, `allow`, \
             `alsoAllow`, `deny`, `profile`, `byProvider`, `sandbox`, `fs`, `exec`, `web`",
        ]
    );
    assert_eq!(texts(&ToolsConfig::resolve(&json!(true)).unwrap_err()), ["`tools`: expected an object, found `true`"]);
}

#[test]
fn an_agents_code_mode_is_merged_over_the_global_one() {
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 5_000, "languages": ["javascript"]}});
    let config = agents(
        &tools,
        &json!({
            "off": {"tools": {"codeMode": false}},
            "on": {"tools": {"codeMode": true}},
            "slow": {"tools": {"codeMode": {"timeoutMs": 60_000}}},
            "typed": {"tools": {"codeMode": {"languages": ["typescript"], "maxSearchLimit": 4}}},
            "plain": {"tools": {}},
            "bare": {"model": "any"},
        }),
    )
    .unwrap();
    let global = &config.global().code_mode;
    for (id, enabled, timeout_ms) in [("off", false, 5_000), ("on", true, 5_000), ("slow", true, 60_000)] {
        let mode = &config.tools(id).code_mode;
        assert_eq!((mode.enabled, mode.limits.timeout_ms, mode.languages), (enabled, timeout_ms, global.languages));
    }
    let typed = &config.tools("typed").code_mode;
    assert_eq!((typed.enabled, typed.limits), (true, global.limits));
    assert_ne!(typed.languages, global.languages);
    assert_eq!(typed.search, SearchLimits { default: 4, max: 4 });
    for id in ["plain", "bare", "unknown"] {
        assert_eq!(&config.tools(id).code_mode, global, "{id}");
    }
}

#[test]
fn an_agents_tool_search_is_merged_before_enabled_is_decided() {
    let cases = [
        (json!(false), json!({"mode": "tools"}), false, ToolSearchMode::Tools),
        (json!({}), json!({"mode": "tools"}), true, ToolSearchMode::Tools),
        (json!({"mode": "tools"}), json!({}), true, ToolSearchMode::Tools),
        (json!({"mode": "tools"}), json!({"enabled": false}), false, ToolSearchMode::Tools),
        (json!({"mode": "tools"}), json!({"mode": "code"}), true, ToolSearchMode::Code),
        (json!(false), json!(true), true, ToolSearchMode::Code),
        (json!(true), json!(false), false, ToolSearchMode::Code),
    ];
    for (global, agent, enabled, mode) in cases {
        let tools = json!({ "toolSearch": global });
        let config = agents(&tools, &json!({"a": {"tools": {"toolSearch": agent}}})).unwrap();
        let search = &config.tools("a").tool_search;
        assert_eq!((search.enabled, search.mode), (enabled, mode), "{global} {agent}");
    }
}

#[test]
fn an_agents_policy_is_kept_beside_the_global_one() {
    let tools = json!({"deny": ["exec"], "profiles": {"mine": ["read"]}});
    let config = agents(&tools, &json!({"main": {"tools": {"allow": ["read"], "profile": "mine"}}, "b": {}})).unwrap();
    let paths = |id: &str| config.tools(id).policy.scopes.iter().map(|scope| scope.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths("main"), ["tools", "agents.main.tools"]);
    assert_eq!(paths("b"), ["tools"]);
    let scope = &config.tools("main").policy.scopes[1];
    assert_eq!(scope.rules.profile.as_ref().unwrap().name, "mine");
    assert!(scope.rules.lists.deny.is_empty());
}

#[test]
fn errors_in_agents_are_reported_with_their_path() {
    let errors = agents(
        &json!({"codeMode": {"mode": "all"}}),
        &json!({
            "main": {"tools": {"codeMode": {"maxLiveRuns": 5, "timeoutMs": -1}, "profiles": {}, "allows": []}},
            "my bot": {"tools": 7},
            "list": {},
            "other": {"tool": {}},
        }),
    )
    .unwrap_err();
    assert_eq!(
        errors,
        [
            "`tools.codeMode.mode`: expected `only`, found `\"all\"`",
            "`agents.main.tools.codeMode.timeoutMs`: expected a whole number from 100 to 60000, found `-1`",
            "`agents.main.tools.profiles`: unknown key; did you mean `profile`?",
            "`agents.main.tools.allows`: unknown key; did you mean `allow`?",
            "`agents.main.tools.codeMode.maxLiveRuns`: expected no value here (set it under `tools.codeMode`, because \
             it counts the runs of all agents), found `5`",
            "`agents[\"my bot\"].tools`: expected an object, found `7`",
            "`agents.list`: expected a list of agents, found an object",
            "`agents.other.tool`: unknown key; did you mean `tools`?",
        ]
    );
    let errors = agents(&json!({}), &json!([])).unwrap_err();
    assert_eq!(errors, ["`agents`: expected an object, found a list"]);
}
