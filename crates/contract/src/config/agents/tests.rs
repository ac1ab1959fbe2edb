//! Agents in every shape, and what their settings mean together.

use serde_json::{Value, json};

use super::{AgentsConfig, LOCAL_AGENT, SandboxMode};

fn resolve(tools: &Value, agents: &Value) -> AgentsConfig {
    AgentsConfig::resolve(tools, agents).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn errors(agents: &Value) -> Vec<String> {
    AgentsConfig::resolve(&Value::Null, agents).unwrap_err().iter().map(ToString::to_string).collect()
}

fn denied(config: &AgentsConfig, agent: &str) -> Vec<String> {
    let scopes = &config.tools(agent).policy.scopes;
    scopes.iter().flat_map(|scope| &scope.rules.lists.deny).map(|pattern| pattern.as_str().to_owned()).collect()
}

fn scope_paths(config: &AgentsConfig, agent: &str) -> Vec<String> {
    config.tools(agent).policy.scopes.iter().map(|scope| scope.path.clone()).collect()
}

fn root_paths(config: &AgentsConfig, agent: &str) -> Vec<String> {
    config.file_roots(agent).into_iter().map(|root| root.path).collect()
}

#[test]
fn an_agent_is_found_in_each_shape_and_without_regard_to_case() {
    let agents = json!({
        "list": [{"id": "Main", "tools": {"deny": ["a"]}}],
        "entries": {"work": {"tools": {"deny": ["b"]}}},
        "ownership": "explicit",
        "own": {"tools": {"deny": ["c"]}},
    });
    let config = resolve(&Value::Null, &agents);
    for (agent, pattern) in [("Main", "a"), ("main", "a"), (" MAIN", "a"), ("work", "b"), ("Own", "c")] {
        assert_eq!(denied(&config, agent), [pattern], "{agent}");
    }
    assert_eq!(scope_paths(&config, "main"), ["tools", "agents.list[0].tools"]);
    assert_eq!(scope_paths(&config, "work"), ["tools", "agents.entries.work.tools"]);
    assert_eq!(scope_paths(&config, "own"), ["tools", "agents.own.tools"]);
    assert_eq!(denied(&config, "other"), Vec::<String>::new());
}

#[test]
fn defaults_apply_to_every_agent_and_an_agents_own_settings_replace_them() {
    let agents = json!({
        "defaults": {
            "workspace": "~/all", "sandbox": {"mode": "all"},
            "tools": {"deny": ["d"], "codeMode": {"timeoutMs": 5_000}},
        },
        "list": [
            {"id": "a", "workspace": "~/a", "sandbox": {"mode": "off"}, "tools": {"deny": ["x"], "codeMode": true}},
            {"id": "b"},
        ],
    });
    let config = resolve(&json!({"deny": ["g"]}), &agents);
    assert_eq!(scope_paths(&config, "a"), ["tools", "agents.defaults.tools", "agents.list[0].tools"]);
    for (agent, patterns, workspace, sandboxed) in [
        ("a", vec!["g", "d", "x"], "~/a", false),
        ("b", vec!["g", "d"], "~/all", true),
        ("c", vec!["g", "d"], "~/all", true),
    ] {
        assert_eq!(denied(&config, agent), patterns, "{agent}");
        assert_eq!(root_paths(&config, agent), [workspace], "{agent}");
        assert_eq!(config.is_sandboxed(agent), sandboxed, "{agent}");
        assert_eq!(config.tools(agent).code_mode.limits.timeout_ms, 5_000, "{agent}");
    }
    assert!(config.tools("a").code_mode.enabled && !config.tools("b").code_mode.enabled);
    assert_eq!(config.global().code_mode.limits.timeout_ms, 10_000, "the global settings are without the defaults");
}

#[test]
fn a_client_that_names_no_agent_has_the_settings_of_the_default_agent() {
    let deny = |id: &str| json!({"id": id, "tools": {"deny": [id]}});
    let with_default = json!({"id": "b", "default": true, "tools": {"deny": ["b"]}});
    let cases = [
        (json!({"list": [deny("a"), deny("c")]}), Some("a")),
        (json!({"list": [deny("a"), with_default]}), Some("b")),
        (json!({"entries": {"a": {"tools": {"deny": ["a"]}}}}), Some("a")),
        (json!({"entries": {"a": {}, "b": {"default": true, "tools": {"deny": ["b"]}}}}), Some("b")),
        (json!({"entries": {"a": {"tools": {"deny": ["a"]}}, "b": {}}}), None),
        (json!({"a": {"tools": {"deny": ["a"]}}}), None),
        (json!({"a": {"default": true, "tools": {"deny": ["a"]}}}), Some("a")),
    ];
    for (agents, expected) in cases {
        let config = resolve(&Value::Null, &agents);
        assert_eq!(config.default_agent(), expected, "{agents}");
        assert_eq!(denied(&config, LOCAL_AGENT), expected.into_iter().collect::<Vec<_>>(), "{agents}");
        assert_eq!(denied(&config, "other"), Vec::<String>::new(), "only the local client: {agents}");
    }
    let own = resolve(&Value::Null, &json!({"list": [deny("a")], "local": {"tools": {"deny": ["l"]}}}));
    assert_eq!(denied(&own, LOCAL_AGENT), ["l"], "its own settings come first");
}

#[test]
fn an_agent_can_switch_core_tools_off_and_not_on() {
    let files = ["read", "write", "edit", "apply_patch", "ls", "find", "grep"];
    let ids = |names: &[&str]| names.iter().map(|name| format!("openclaw:core:{name}")).collect::<Vec<_>>();
    let cases = [
        (json!({"fs": {"enabled": false}}), ids(&files)),
        (json!({"exec": {"enabled": false}}), ids(&["exec", "process"])),
        (json!({"exec": {"security": "deny"}}), ids(&["exec", "process"])),
        (json!({"exec": {"mode": "deny"}}), ids(&["exec", "process"])),
        (json!({"exec": {"security": "allowlist", "ask": "on-miss", "host": "node"}}), vec![]),
        (json!({"exec": {"applyPatch": {"enabled": false}}}), ids(&["apply_patch"])),
        (
            json!({"web": {"fetch": {"enabled": false}, "search": {"enabled": false}}}),
            ids(&["web_search", "web_fetch"]),
        ),
        (json!({"fs": {"enabled": true}, "exec": {"enabled": true}, "web": {"fetch": {"enabled": true}}}), vec![]),
    ];
    for (tools, expected) in cases {
        let config = resolve(&Value::Null, &json!({"list": [{"id": "a", "tools": tools}]}));
        assert_eq!(denied(&config, "a"), expected, "{tools}");
        assert_eq!(config.core_tools(), &super::CoreTools::default(), "{tools}");
    }
    let agents = json!({"list": [{"id": "a", "tools": {"fs": {"roots": ["/"]}, "exec": {"unconfined": true}}}]});
    assert_eq!(errors(&agents).len(), 2);
}

#[test]
fn file_roots_are_those_of_the_configuration_else_the_workspace() {
    let agents = json!({"defaults": {"workspace": "~/all"}, "list": [
        {"id": "a", "workspace": "~/a"}, {"id": "b"}, {"id": "c", "workspace": "~/c", "tools": {"fs": {"workspaceOnly": true}}},
    ]});
    let cases = [
        (json!({}), ["~/a", "~/all", "~/c"]),
        (json!({"fs": {"roots": ["/r"]}}), ["/r", "/r", "~/c"]),
        (json!({"fs": {"roots": ["/r"], "workspaceOnly": true}}), ["~/a", "~/all", "~/c"]),
    ];
    for (tools, expected) in cases {
        let config = resolve(&tools, &agents);
        for (agent, root) in ["a", "b", "c"].into_iter().zip(expected) {
            assert_eq!(root_paths(&config, agent), [root], "{tools} {agent}");
        }
    }
    let none = resolve(&json!({"fs": {"enabled": true, "workspaceOnly": true}}), &Value::Null);
    assert_eq!(root_paths(&none, "a"), Vec::<String>::new(), "without a workspace there is no root");
}

#[test]
fn a_sandboxed_agent_without_write_access_has_no_tools_that_can_write() {
    let denied_with = |sandbox: Value| {
        let config = resolve(&Value::Null, &json!({"defaults": {"sandbox": sandbox}, "list": [{"id": "a"}]}));
        (config.sandbox_mode("a"), denied(&config, "a").len(), scope_paths(&config, "a").len())
    };
    assert_eq!(denied_with(json!({"mode": "all"})), (SandboxMode::All, 0, 1));
    assert_eq!(denied_with(json!({"mode": "all", "workspaceAccess": "rw"})), (SandboxMode::All, 0, 1));
    assert_eq!(denied_with(json!({"mode": "non-main", "workspaceAccess": "ro"})), (SandboxMode::NonMain, 5, 2));
    assert_eq!(denied_with(json!({"mode": "all", "workspaceAccess": "none"})), (SandboxMode::All, 9, 2));
    assert_eq!(denied_with(json!({"mode": "off", "workspaceAccess": "none"})), (SandboxMode::Off, 0, 1));
}

#[test]
fn mistakes_are_reported_with_their_scope_paths() {
    let agents = json!({
        "list": [{"name": "x"}, {"id": " "}, {"id": "a", "tool": {}}, {"id": "A"}, {"id": "b", "sandbox": {"mode": "on"}}],
        "defaults": {"workspace": 7, "future": {}},
        "entries": [],
    });
    let found = errors(&agents);
    assert_eq!(
        found,
        [
            "`agents.list[0]`: expected an object with an `id`, found an object",
            "`agents.list[1].id`: expected an id that is not blank, found `\" \"`",
            "`agents.list[2].tool`: unknown key; did you mean `tools`?",
            "`agents.list[3]`: expected one agent of each id (they are compared without regard to case), found `\"A\"`",
            "`agents.list[4].sandbox.mode`: expected one of `off`, `non-main`, `all`, found `\"on\"`",
            "`agents.defaults.workspace`: expected a folder, found `7`",
            "`agents.entries`: expected an object, found a list",
        ]
    );
    assert_eq!(errors(&json!({"list": {}})), ["`agents.list`: expected a list of agents, found an object"]);
}

#[test]
fn models_and_instructions_of_agents_are_filled_in_from_the_defaults() {
    let config = AgentsConfig::resolve(
        &Value::Null,
        &json!({
            "defaults": {"model": "openai/gpt-5", "instructions": "Be brief.", "maxTurns": 5},
            "ada": {"model": {"primary": "a/b", "fallbacks": ["c/d"], "timeoutMs": 1}, "instructions": "", "maxOutputTokens": 9},
            "list": [{"id": "Bob", "maxModelCalls": 1000, "maxTurns": 2}],
        }),
    )
    .unwrap();
    let ada = config.model("ADA").unwrap();
    assert_eq!((ada.primary.as_str(), ada.fallbacks.as_slice()), ("a/b", ["c/d".to_owned()].as_slice()));
    assert_eq!((config.instructions("ada"), config.max_output_tokens("ada")), ("", Some(9)));
    for other in ["bob", "unknown"] {
        assert_eq!(config.model(other).unwrap().primary, "openai/gpt-5");
        assert_eq!((config.instructions(other), config.max_output_tokens(other)), ("Be brief.", None));
    }
    assert_eq!(["ada", "bob", "unknown"].map(|agent| config.max_model_calls(agent)), [5, 256, 5]);
    assert_eq!(config.agent_ids().collect::<Vec<_>>(), ["ada", "bob"]);
    assert!(config.has_agent("BOB") && !config.has_agent("unknown"));
    let empty = AgentsConfig::resolve(&Value::Null, &Value::Null).unwrap();
    assert_eq!((empty.model("a"), empty.instructions("a"), empty.max_model_calls("a")), (None, "", 32));
}

#[test]
fn wrong_models_of_agents_are_errors() {
    let many: Vec<String> = (0..9).map(|at| format!("p/{at}")).collect();
    let errors = AgentsConfig::resolve(
        &Value::Null,
        &json!({
            "a": {"model": 7},
            "b": {"model": {"primary": "", "fallback": []}},
            "c": {"model": {"primary": "x/y", "fallbacks": many}},
            "d": {"instructions": "x".repeat((256 << 10) + 1)},
            "e": {"maxOutputTokens": 0},
        }),
    )
    .unwrap_err();
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "agents.a.model",
            "agents.b.model.primary",
            "agents.b.model.fallback",
            "agents.c.model.fallbacks",
            "agents.d.instructions",
            "agents.e.maxOutputTokens"
        ]
    );
}
