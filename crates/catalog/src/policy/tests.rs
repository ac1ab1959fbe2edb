//! Decisions of policies about tools.

use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use contract::config::policy::Lists;
use contract::tool::{ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{Decision, Layer, Policy, RunScope, layers};

const TOOLS: [&str; 8] = [
    "openclaw:core:exec",
    "openclaw:core:read",
    "openclaw:core:session_status",
    "plugin:slack:send",
    "mcp:github:create_issue",
    "mcp:github:delete_repo",
    "mcp:evil:read",
    "client:app:pick",
];

fn tools() -> Vec<ToolSpec> {
    let tool = |id: &&str| ToolSpec::new(ToolId::parse(id).unwrap(), "", Value::Null);
    TOOLS.iter().map(tool).collect()
}

fn patterns(value: &Value) -> Vec<Pattern> {
    value.as_array().unwrap().iter().map(|text| Pattern::parse(text.as_str().unwrap()).unwrap()).collect()
}

fn lists(value: &Value) -> Lists {
    Lists {
        allow: value.get("allow").map(patterns),
        also_allow: value.get("alsoAllow").map(patterns),
        deny: value.get("deny").map(patterns).unwrap_or_default(),
    }
}

fn seen(policy: &Policy) -> Vec<String> {
    policy.effective(tools()).iter().map(|tool| tool.id.as_str().to_owned()).collect()
}

/// Checks which tools one layer of lists lets through.
fn check(value: &Value, expected: &[&str]) {
    let policy = Policy::from(vec![Layer { place: "tools".to_owned(), lists: lists(value) }]);
    assert_eq!(seen(&policy), expected, "{value}");
}

#[test]
fn absent_lists_allow_all_and_an_empty_allow_list_none() {
    assert_eq!(seen(&Policy::default()), TOOLS);
    check(&json!({}), &TOOLS);
    check(&json!({"deny": []}), &TOOLS);
    check(&json!({"alsoAllow": ["nothing"]}), &TOOLS);
    check(&json!({"allow": []}), &[]);
    check(&json!({"allow": [], "alsoAllow": []}), &[]);
}

#[test]
fn patterns_name_ids_names_owners_and_groups() {
    let (github, evil) = (["mcp:github:create_issue", "mcp:github:delete_repo"], "mcp:evil:read");
    let cases = [
        ("openclaw:core:read", vec!["openclaw:core:read"]),
        ("read", vec!["openclaw:core:read", evil]),
        ("github", github.to_vec()),
        ("mcp:github:*", github.to_vec()),
        ("*_repo", vec!["mcp:github:delete_repo"]),
        ("?end", vec!["plugin:slack:send"]),
        ("*", TOOLS.to_vec()),
        ("bundle-mcp", vec![github[0], github[1], evil]),
        ("group:mcp", vec![github[0], github[1], evil]),
        ("group:plugins", vec!["plugin:slack:send", github[0], github[1], evil]),
        ("group:client", vec!["client:app:pick"]),
        ("group:openclaw", vec!["openclaw:core:session_status"]),
        ("group:fs", vec!["openclaw:core:read"]),
        ("group:runtime", vec!["openclaw:core:exec"]),
        // The names in OpenClaw's policies.
        ("github__*", github.to_vec()),
        ("github__delete_repo", vec!["mcp:github:delete_repo"]),
        ("*__read", vec![evil]),
        ("slack__send", vec![]),
        ("bash", vec!["openclaw:core:exec"]),
        ("ba*", vec![]),
        ("mcp", vec![]),
        ("core:read", vec![]),
        ("hub", vec![]),
        // A glob without a `:` never matches whole ids; a glob with one matches nothing else.
        ("mcp*", vec![]),
        ("*github*", github.to_vec()),
        ("*:read", vec!["openclaw:core:read", evil]),
        ("*:github:*", github.to_vec()),
        ("github:*", vec![]),
        (":read", vec![]),
        ("mcp:evil", vec![]),
    ];
    for (pattern, named) in cases {
        check(&json!({ "allow": [pattern] }), &named);
        let others: Vec<&str> = TOOLS.into_iter().filter(|id| !named.contains(id)).collect();
        check(&json!({ "deny": [pattern] }), &others);
    }
}

#[test]
fn a_deny_list_ignores_case_and_an_allow_list_does_not() {
    for (pattern, denied) in [
        ("Read", &["openclaw:core:read", "mcp:evil:read"][..]),
        ("GitHub__*", &["mcp:github:create_issue", "mcp:github:delete_repo"]),
        ("MCP:Evil:*", &["mcp:evil:read"]),
        ("Bash", &["openclaw:core:exec"]),
    ] {
        check(&json!({ "allow": [pattern] }), &[]);
        let others: Vec<&str> = TOOLS.into_iter().filter(|id| !denied.contains(id)).collect();
        check(&json!({ "deny": [pattern] }), &others);
    }
}

/// A server cannot choose a name so that a pattern about another server matches it.
#[test]
fn no_name_imitates_the_id_of_another_servers_tool() {
    let docs = Pattern::parse("mcp:docs:*").unwrap();
    let imitations = [
        "mcp:evil:mcp:docs:wipe",
        "mcp:evil:docs:wipe",
        "mcp:mcp:docs:wipe",
        "mcp:evil:mcp\u{ff1a}docs\u{ff1a}wipe",
        "mcp:evil:mcp\u{a789}docs\u{a789}wipe",
        "mcp:evil:mcp\u{2236}docs\u{2236}wipe",
        "mcp:do\u{200b}cs:wipe",
        "mcp:evil:\u{202e}epiw",
        "mcp:d\u{43e}cs:wipe",
        "mcp:docs2:wipe",
        "mcp:DOCS:wipe",
        "plugin:docs:wipe",
    ];
    for text in imitations {
        let named = ToolId::parse(text).is_ok_and(|id| super::names(&docs, &id));
        assert!(!named, "{text:?}");
    }
    let read = Pattern::parse("read").unwrap();
    for text in
        ["mcp:evil:re\u{200b}ad", "mcp:evil:r\u{435}ad", "mcp:evil:read ", "mcp:evil:\u{ff52}ead", "mcp:evil:x:read"]
    {
        let named = ToolId::parse(text).is_ok_and(|id| super::names(&read, &id));
        assert!(!named, "{text:?}");
    }
    assert!(super::names(&docs, &ToolId::parse("mcp:docs:wipe").unwrap()));
}

#[test]
fn deny_wins_and_also_allow_adds() {
    check(&json!({"allow": ["*"], "deny": ["*"]}), &[]);
    check(&json!({"allow": ["read"], "deny": ["mcp:*"]}), &["openclaw:core:read"]);
    check(&json!({"allow": [], "alsoAllow": ["exec"]}), &["openclaw:core:exec"]);
    check(&json!({"allow": ["pick"], "alsoAllow": ["exec"]}), &["openclaw:core:exec", "client:app:pick"]);
    check(&json!({"allow": [], "alsoAllow": ["exec"], "deny": ["exec"]}), &[]);
}

/// Returns what a run of the agent `main` sees with `openai`'s `gpt-5`.
fn run(tools: &Value, agent: &Value, sandboxed: bool, own: &Value) -> Vec<String> {
    let config = AgentsConfig::resolve(tools, &json!({"main": {"tools": agent}})).unwrap();
    let own = lists(own);
    let scope = RunScope { provider: Some("openai"), model: Some("gpt-5"), sandboxed, lists: &own };
    seen(&Policy::from(layers(&config.tools("main").policy, &scope)))
}

#[test]
fn allow_lists_intersect_from_the_broadest_to_the_run() {
    let all = json!({"allow": ["exec", "read", "send", "pick"]});
    let none = json!({});
    let cases = [
        (all.clone(), none.clone(), none.clone(), vec![TOOLS[0], TOOLS[1], TOOLS[3], TOOLS[6], TOOLS[7]]),
        (all.clone(), json!({"allow": ["read", "github"]}), none.clone(), vec![TOOLS[1], TOOLS[6]]),
        (all.clone(), json!({"allow": ["read"]}), json!({"allow": ["openclaw:*"]}), vec![TOOLS[1]]),
        (all.clone(), none.clone(), json!({"allow": []}), vec![]),
        (all.clone(), json!({"allow": []}), none.clone(), vec![]),
        (json!({"allow": []}), json!({"allow": ["*"]}), json!({"alsoAllow": ["*"]}), vec![]),
        (json!({"deny": ["exec"]}), json!({"alsoAllow": ["exec"]}), json!({"allow": ["exec"]}), vec![]),
    ];
    for (tools, agent, own, expected) in cases {
        assert_eq!(run(&tools, &agent, false, &own), expected, "{tools} {agent} {own}");
    }
}

#[test]
fn a_profile_is_a_base_that_also_allow_adds_to() {
    let none = json!({});
    let (exec, read, status, pick) = (TOOLS[0], TOOLS[1], TOOLS[2], TOOLS[7]);
    let mcp = [TOOLS[4], TOOLS[5], TOOLS[6]];
    let cases = [
        (json!({"profile": "full"}), none.clone(), TOOLS.to_vec()),
        (json!({"profile": "minimal"}), none.clone(), vec![status]),
        (json!({"profile": "coding"}), none.clone(), vec![exec, read, status, mcp[0], mcp[1], mcp[2]]),
        (json!({"profile": "messaging"}), none.clone(), vec![status, mcp[0], mcp[1], mcp[2]]),
        (json!({"profile": "coding", "deny": ["bundle-mcp", "exec"]}), none.clone(), vec![read, status]),
        (json!({"profile": "minimal", "alsoAllow": ["pick"]}), none.clone(), vec![status, pick]),
        (json!({"profile": "minimal"}), json!({"alsoAllow": ["pick"]}), vec![status, pick]),
        // An agent's profile and additions each replace the global ones.
        (json!({"profile": "minimal"}), json!({"profile": "full"}), TOOLS.to_vec()),
        (json!({"profile": "full", "alsoAllow": ["pick"]}), json!({"profile": "minimal"}), vec![status, pick]),
        (json!({"profile": "minimal", "alsoAllow": ["pick"]}), json!({"alsoAllow": []}), vec![status]),
        (json!({"profile": "minimal", "alsoAllow": ["pick"]}), json!({"alsoAllow": ["exec"]}), vec![exec, status]),
        // A tool must be allowed by both the profile and the allow list.
        (json!({"profile": "minimal", "allow": ["pick"]}), none.clone(), vec![]),
        (json!({"profile": "coding", "allow": ["exec", "pick"]}), none.clone(), vec![exec]),
        (json!({"profiles": {"mine": ["pick"]}, "profile": "mine"}), none.clone(), vec![pick]),
        (json!({"profiles": {"mine": []}, "profile": "mine"}), none.clone(), vec![]),
        // Without a profile or a list, there is nothing to add to.
        (json!({"alsoAllow": ["pick"]}), none.clone(), TOOLS.to_vec()),
    ];
    for (tools, agent, expected) in cases {
        assert_eq!(run(&tools, &agent, false, &none), expected, "{tools} {agent}");
    }
}

#[test]
fn providers_and_models_only_narrow() {
    let none = json!({});
    let cases = [
        (json!({"byProvider": {"anthropic": {"allow": []}, "openai/gpt-4": {"allow": []}}}), TOOLS.to_vec()),
        (json!({"byProvider": {"openai": {"allow": ["exec"]}}}), vec![TOOLS[0]]),
        (json!({"byProvider": {"openai/gpt-5": {"allow": ["exec"]}}}), vec![TOOLS[0]]),
        (
            json!({"byProvider": {"openai": {"deny": ["exec"]}, "openai/gpt-5": {"allow": ["exec", "send"]}}}),
            vec![TOOLS[3]],
        ),
        (json!({"byProvider": {"openai": {"profile": "minimal"}}}), vec![TOOLS[2]]),
        (json!({"byProvider": {"openai": {"profile": "minimal", "alsoAllow": ["exec"]}}}), vec![TOOLS[0], TOOLS[2]]),
        (
            json!({"byProvider": {"openai": {"profile": "minimal"}, "openai/gpt-5": {"profile": "full"}}}),
            TOOLS.to_vec(),
        ),
        (
            json!({"profile": "minimal", "byProvider": {"openai": {"profile": "full", "alsoAllow": ["exec"]}}}),
            vec![TOOLS[2]],
        ),
    ];
    for (tools, expected) in cases {
        assert_eq!(run(&tools, &none, false, &none), expected, "{tools}");
        if tools.get("profile").is_none() {
            assert_eq!(run(&none, &tools, false, &none), expected, "{tools}");
        }
    }
}

#[test]
fn the_sandbox_has_its_own_lists() {
    let none = json!({});
    let tools = json!({"sandbox": {"tools": {"allow": ["read"], "alsoAllow": ["bundle-mcp"], "deny": ["evil"]}}});
    let agent = json!({"sandbox": {"tools": {"deny": ["delete_*"]}}});
    assert_eq!(run(&tools, &none, false, &none), TOOLS);
    assert_eq!(run(&tools, &none, true, &none), [TOOLS[1], TOOLS[4], TOOLS[5]]);
    assert_eq!(run(&tools, &agent, true, &none), [TOOLS[1], TOOLS[4]]);
    // An addition without a base list removes nothing.
    assert_eq!(run(&json!({"sandbox": {"tools": {"alsoAllow": ["bundle-mcp"]}}}), &none, true, &none), TOOLS);
}

#[test]
fn a_refusal_names_the_layer_and_the_pattern() {
    let config = AgentsConfig::resolve(
        &json!({
            "deny": ["*_repo"],
            "profile": "coding",
            "alsoAllow": ["slack", "client:*"],
            "byProvider": {"openai": {"deny": ["group:runtime"]}},
            "sandbox": {"tools": {"deny": ["evil"]}},
        }),
        &json!({"main": {"tools": {"deny": ["delete_*"], "allow": ["*"]}}}),
    )
    .unwrap();
    let own = lists(&json!({"allow": ["read", "create_issue", "pick"]}));
    let scope = RunScope { provider: Some("openai"), model: None, sandboxed: true, lists: &own };
    let policy = Policy::from(layers(&config.tools("main").policy, &scope));
    let cases = [
        ("openclaw:core:read", "allowed"),
        ("mcp:github:create_issue", "allowed"),
        ("client:app:pick", "allowed"),
        ("openclaw:core:exec", "denied by `group:runtime` in the deny list of `tools.byProvider.openai`"),
        ("mcp:github:delete_repo", "denied by `*_repo` in the deny list of `tools`"),
        ("mcp:github:delete_all", "denied by `delete_*` in the deny list of `agents.main.tools`"),
        ("mcp:evil:read", "denied by `evil` in the deny list of `tools.sandbox.tools`"),
        ("plugin:slack:send", "not in the allow list of `run`"),
        ("plugin:other:send", "not in the allow list of `tools.profile: coding`"),
    ];
    for (id, expected) in cases {
        assert_eq!(policy.explain(&ToolId::parse(id).unwrap()).to_string(), expected, "{id}");
    }
    let repo = ToolId::parse("mcp:github:delete_repo").unwrap();
    let Decision::Denied { place, pattern } = policy.explain(&repo) else { panic!("allowed") };
    assert_eq!((place, pattern.as_str()), ("tools", "*_repo"));
}
