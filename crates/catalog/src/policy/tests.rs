//! Decisions of policies about tools.

use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use contract::config::policy::Lists;
use contract::tool::{ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{
    BadProvider, Decision, KnownOwners, KnownTools, Layer, ListKind, Policy, Provider, RunScope, denies, grants,
    layers, restricts, unmatched,
};

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
    let policy = Policy::from(vec![Layer { origin: "tools".to_owned(), lists: lists(value) }]);
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

/// How a cell, `tools list` and an approval write a tool works in lists, too: in restrictions also with wildcards, in
/// allow lists only for one tool of one server, or of every server if no server is named.
#[test]
fn the_spellings_of_cells_and_lists_name_an_mcp_tool() {
    const TOOL: &str = "mcp:my-files:write_file";
    // Pattern; whether it matches in `deny`, `ask`, `allow`.
    let cases = [
        ("write_file", true, true, true),
        ("writeFile", true, true, true),
        ("WRITEFILE", true, false, false),
        ("my-files.write_file", true, true, false),
        ("my-files.writeFile", true, true, false),
        ("myFiles.writeFile", true, true, false),
        ("myfiles.writefile", true, false, false),
        ("my-files.*", true, true, false),
        ("MCP.my-files.write_file", true, true, true),
        ("MCP.my-files.writeFile", true, true, true),
        ("MCP.myFiles.writeFile", true, true, false),
        ("MCP.myFiles.*", true, true, false),
        ("MCP.my-files", true, true, false),
        ("mcp.myfiles.writefile", true, false, false),
        ("mcp:my-files:write_file", true, true, true),
        ("mcp:my-files:writeFile", true, true, true),
        ("MCP:my-files:writefile", true, false, false),
        // Wildcards, other servers, parts and other tools.
        ("mcp:my-files:writeF*", false, false, false),
        ("mcp:*:writeFile", false, false, false),
        ("mcp:myFiles:writeFile", false, false, false),
        ("my-files:writeFile", false, false, false),
        ("writeF*", false, false, false),
        ("write", false, false, false),
        ("File", false, false, false),
        ("writefile2", false, false, false),
        ("files.write_file", false, false, false),
        ("MCP.files.writeFile", false, false, false),
        ("MCP.writeFile", false, false, false),
        (".write_file", false, false, false),
    ];
    let id = ToolId::parse(TOOL).unwrap();
    for (text, denied, asked, allowed) in cases {
        let pattern = Pattern::parse(text).unwrap();
        let found = (denies(&pattern, &id), restricts(&pattern, &id), grants(&pattern, &id));
        assert_eq!(found, (denied, asked, allowed), "{text}");
    }
    // Tools of other sources have no such names.
    let plugins = ToolId::parse("plugin:my-files:write_file").unwrap();
    for text in ["writeFile", "my-files.writeFile", "myFiles.write_file", "MCP.my-files.write_file", "MCP.my-files"] {
        let pattern = Pattern::parse(text).unwrap();
        assert!(!denies(&pattern, &plugins) && !grants(&pattern, &plugins), "{text}");
    }
    for other in ["client:my-files:write_file", "openclaw:my-files:write_file"] {
        let other = ToolId::parse(other).unwrap();
        for text in ["writeFile", "my-files.write_file", "MCP.my-files.writeFile"] {
            let pattern = Pattern::parse(text).unwrap();
            assert!(!denies(&pattern, &other) && !grants(&pattern, &other), "{text}");
        }
    }
}

#[test]
fn a_plugins_tool_is_named_with_its_plugin_as_approvals_show_it() {
    // Pattern; whether it matches in `deny`, `ask`, `allow`.
    let cases = [
        ("notary.stamp", true, true, true),
        ("notary.*", true, true, true),
        ("notary.st?mp", true, true, true),
        ("Notary.Stamp", true, false, false),
        ("*.stamp", true, true, false),
        ("no*.stamp", true, true, false),
        ("notary", true, true, true),
        ("notary.", false, false, false),
        ("notary.stam", false, false, false),
        ("otary.stamp", false, false, false),
        ("notary2.*", false, false, false),
        (".stamp", false, false, false),
        ("plugin.notary.stamp", false, false, false),
    ];
    let id = ToolId::parse("plugin:notary:stamp").unwrap();
    for (text, denied, asked, allowed) in cases {
        let pattern = Pattern::parse(text).unwrap();
        let found = (denies(&pattern, &id), restricts(&pattern, &id), grants(&pattern, &id));
        assert_eq!(found, (denied, asked, allowed), "{text}");
    }
    // `a.b` may be a plugin or the beginning of a name; only the plugin gets the right, and both lose it.
    let pattern = Pattern::parse("a.b.c").unwrap();
    let ids = ["plugin:a.b:c", "plugin:a:b.c"].map(ToolId::parse).map(Result::unwrap);
    assert_eq!(ids.each_ref().map(|id| grants(&pattern, id)), [true, false]);
    assert_eq!(ids.each_ref().map(|id| denies(&pattern, id)), [true, true]);
}

#[test]
fn a_server_gets_no_right_by_naming_a_tool_like_another_servers() {
    for (text, imitation) in [
        ("MCP.files.writeFile", "mcp:evil:MCP.files.writeFile"),
        ("MCP.files.writeFile", "mcp:evil:files.writeFile"),
        ("MCP.a.b.c", "mcp:a:b.c"),
        ("mcp:files:writeFile", "mcp:evil:writeFile"),
        ("mcp:files:writeFile", "mcp:Files:write_file"),
    ] {
        let (pattern, id) = (Pattern::parse(text).unwrap(), ToolId::parse(imitation).unwrap());
        assert!(!grants(&pattern, &id), "{text} {imitation}");
    }
    assert!(grants(&Pattern::parse("MCP.a.b.c").unwrap(), &ToolId::parse("mcp:a.b:c").unwrap()));
}

#[test]
fn a_pattern_that_matches_nothing_is_reported_only_if_the_tools_are_known() {
    let ids = [
        "mcp:files:write_file",
        "mcp:files:read_file",
        "mcp:git:push",
        "openclaw:core:grep",
        "plugin:issues:issue_list",
    ];
    let known = KnownTools {
        ids: ids.iter().map(|id| ToolId::parse(id).unwrap()).collect(),
        servers: KnownOwners { listed: vec!["files".to_owned(), "git".to_owned()], unlisted: Vec::new() },
        plugins: KnownOwners { listed: vec!["issues".to_owned()], unlisted: Vec::new() },
    };
    let of = |unlisted: &str| KnownOwners { unlisted: vec![unlisted.to_owned()], ..KnownOwners::default() };
    let unknown = KnownTools { servers: of("slow"), plugins: of("off"), ..known.clone() };
    let report = |text: &str, kind: ListKind, known: &KnownTools| {
        let found = unmatched(&Pattern::parse(text).unwrap(), kind, known)?;
        Some(found.meant.unwrap_or_default())
    };
    // Pattern; list; the tool or pattern that is meant, or nothing if it is not known which; `None` if there is no report.
    for (text, kind, reported) in [
        ("mcp:files:write_fil", ListKind::Deny, Some("mcp:files:write_file")),
        ("mcp:flies:write_file", ListKind::Deny, Some("mcp:files:write_file")),
        ("mcp:files:zzz*", ListKind::Deny, Some("")),
        ("mcp:fils:*", ListKind::Deny, Some("mcp:files:*")),
        ("MCP:fiels:write_*", ListKind::Ask, Some("mcp:files:write_*")),
        ("MCP.fils.*", ListKind::Deny, Some("MCP.files.*")),
        ("fils.*", ListKind::Deny, Some("files.*")),
        ("plugin:isues:*", ListKind::Grant, Some("plugin:issues:*")),
        ("mcp:f*s:zzz", ListKind::Deny, Some("")),
        ("wirte_file", ListKind::Ask, Some("mcp:files:write_file")),
        ("files.write_file", ListKind::Grant, Some("mcp:files:write_file")),
        ("files:write_file", ListKind::Deny, Some("mcp:files:write_file")),
        ("plugin:issues:issue_lst", ListKind::Ask, Some("plugin:issues:issue_list")),
        ("plugin:isues:issue_list", ListKind::Deny, Some("plugin:issues:issue_list")),
        ("plugin:issues:close_*", ListKind::Grant, Some("")),
        ("isue_list", ListKind::Deny, Some("plugin:issues:issue_list")),
        ("openclaw:core:grpe", ListKind::Deny, Some("openclaw:core:grep")),
        ("issues.close_*", ListKind::Deny, Some("")),
        ("Issues.close_*", ListKind::Grant, Some("")),
        ("files.zzz*", ListKind::Deny, Some("")),
        ("MCP.files.zzz*", ListKind::Ask, Some("")),
        ("files.*", ListKind::Grant, Some("mcp:files:*")),
        ("issues.issue_list", ListKind::Ask, None),
        ("issues.*", ListKind::Deny, None),
        ("issues.*", ListKind::Grant, None),
        ("third.*", ListKind::Deny, None),
        ("plugin:issues:*", ListKind::Deny, None),
        ("issues", ListKind::Grant, None),
        ("files.write_file", ListKind::Deny, None),
        ("writeFile", ListKind::Grant, None),
        ("files", ListKind::Grant, None),
        // Tools that other machines or OpenClaw have.
        ("mcp:github:delete_*", ListKind::Deny, None),
        ("sessions_list", ListKind::Deny, None),
        ("exec", ListKind::Deny, None),
        ("zzz*", ListKind::Deny, None),
        ("zzz", ListKind::Deny, None),
        ("group:web", ListKind::Deny, None),
        ("client:app:pick", ListKind::Deny, None),
        ("openclaw:core:exec", ListKind::Deny, None),
        ("openclaw:core:f*", ListKind::Deny, None),
        ("plugin:x:y", ListKind::Deny, None),
    ] {
        assert_eq!(report(text, kind, &known).as_deref(), reported, "{text}");
    }
    assert_eq!(report("wirte_file", ListKind::Deny, &unknown), None);
    assert_eq!(report("mcp:slow:anything", ListKind::Deny, &unknown), None);
    assert_eq!(report("mcp:solw:*", ListKind::Deny, &unknown).as_deref(), Some("mcp:slow:*"));
    assert_eq!(report("plugin:off:anything", ListKind::Deny, &unknown), None);
    assert!(report("mcp:files:write_fil", ListKind::Deny, &unknown).is_some());
    // Only the plugin's tools are unknown.
    let off = KnownTools { plugins: of("off"), ..known.clone() };
    assert_eq!(report("wirte_file", ListKind::Deny, &off), None);
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
        let named = ToolId::parse(text).is_ok_and(|id| super::grants(&docs, &id));
        assert!(!named, "{text:?}");
    }
    let read = Pattern::parse("read").unwrap();
    for text in
        ["mcp:evil:re\u{200b}ad", "mcp:evil:r\u{435}ad", "mcp:evil:read ", "mcp:evil:\u{ff52}ead", "mcp:evil:x:read"]
    {
        let named = ToolId::parse(text).is_ok_and(|id| super::grants(&read, &id));
        assert!(!named, "{text:?}");
    }
    assert!(super::grants(&docs, &ToolId::parse("mcp:docs:wipe").unwrap()));
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
    let provider = Provider::parse("openai/gpt-5").unwrap();
    let scope = RunScope { provider: &provider, sandboxed, lists: &own };
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
        (json!({"byProvider": {"OpenAI/GPT-5": {"allow": ["exec"]}}}), vec![TOOLS[0]]),
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
    let provider = Provider::parse("openai").unwrap();
    let scope = RunScope { provider: &provider, sandboxed: true, lists: &own };
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
    let Decision::Denied { origin, pattern } = policy.explain(&repo) else { panic!("allowed") };
    assert_eq!((origin, pattern.as_str()), ("tools", "*_repo"));
}

/// Returns what a run of the agent `main` sees if its provider is the given one, or not known.
fn with_provider(tools: &Value, agent: &Value, provider: Option<&str>) -> Vec<String> {
    let config = AgentsConfig::resolve(tools, &json!({"main": {"tools": agent}})).unwrap();
    let provider = provider.map_or(Provider::Unknown, |name| Provider::parse(name).unwrap());
    let scope = RunScope { provider: &provider, sandboxed: false, lists: &Lists::default() };
    seen(&Policy::from(layers(&config.tools("main").policy, &scope)))
}

#[test]
fn without_a_known_provider_the_rules_of_all_of_them_apply_together() {
    let none = json!({});
    let all: Vec<String> = TOOLS.iter().map(|id| (*id).to_owned()).collect();
    let without = |denied: &[usize]| -> Vec<String> {
        let kept = all.iter().enumerate().filter(|(at, _)| !denied.contains(at));
        kept.map(|(_, id)| id.clone()).collect()
    };
    let lists = json!({"byProvider": {"openai": {"deny": ["exec"]}, "anthropic/opus": {"deny": ["pick"]}}});
    assert_eq!(with_provider(&lists, &none, None), without(&[0, 7]));
    assert_eq!(with_provider(&lists, &none, Some("openai")), without(&[0]));
    assert_eq!(with_provider(&lists, &none, Some("anthropic")), all);
    assert_eq!(with_provider(&lists, &none, Some("anthropic/opus")), without(&[7]));
    assert_eq!(with_provider(&lists, &none, Some("other/model/with/slashes")), all);
    // An agent's own rules count as well, allow lists intersect, and a profile is a list like any other.
    let agent = json!({"byProvider": {"google": {"allow": ["read", "pick"]}}});
    assert_eq!(with_provider(&lists, &agent, None), [TOOLS[1], TOOLS[6]]);
    let disjoint = json!({"byProvider": {"a": {"allow": ["exec"]}, "b": {"allow": ["read"]}}});
    assert_eq!(with_provider(&disjoint, &none, None), Vec::<String>::new());
    let profiles = json!({"byProvider": {"a": {"profile": "minimal"}, "b": {"profile": "full"}}});
    assert_eq!(with_provider(&profiles, &none, None), [TOOLS[2]]);
    // A model's profile replaces its provider's, but the model is not known either.
    let model = json!({"byProvider": {"a": {"profile": "minimal"}, "a/b": {"profile": "full"}}});
    assert_eq!(with_provider(&model, &none, Some("a/b")), all);
    assert_eq!(with_provider(&model, &none, None), [TOOLS[2]]);
}

#[test]
fn a_provider_is_written_as_in_the_configuration() {
    let known = |name: &str, model: Option<&str>| {
        Ok(Provider::Known { name: name.to_owned(), model: model.map(str::to_owned) })
    };
    assert_eq!(Provider::parse("openai"), known("openai", None));
    assert_eq!(Provider::parse("openrouter/meta/llama"), known("openrouter", Some("meta/llama")));
    for wrong in ["", "/", "openai/", "/gpt-5"] {
        assert_eq!(Provider::parse(wrong), Err(BadProvider), "{wrong}");
    }
}

#[test]
fn only_an_explicitly_empty_allow_list_allows_nothing() {
    let allows_nothing = |tools: Value| {
        let config = AgentsConfig::resolve(&tools, &Value::Null).unwrap();
        let scope = RunScope { provider: &Provider::Unknown, sandboxed: false, lists: &Lists::default() };
        Policy::from(layers(&config.global().policy, &scope)).allows_nothing()
    };
    for (tools, expected) in [
        (json!({}), false),
        (json!({"allow": []}), true),
        (json!({"allow": [], "alsoAllow": []}), true),
        (json!({"allow": [], "alsoAllow": ["exec"]}), false),
        (json!({"allow": ["no-such-tool"]}), false),
        (json!({"deny": ["*"]}), false),
        (json!({"profile": "minimal"}), false),
        (json!({"profiles": {"mine": []}, "profile": "mine"}), true),
        (json!({"byProvider": {"openai": {"allow": []}}}), true),
        (json!({"sandbox": {"tools": {"allow": []}}}), false),
    ] {
        assert_eq!(allows_nothing(tools.clone()), expected, "{tools}");
    }
}
