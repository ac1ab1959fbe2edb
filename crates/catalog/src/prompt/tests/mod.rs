//! The exact texts that a model reads, and the bounds that every catalog must keep.

use contract::config::{CodeMode, ToolsConfig};
use contract::limits::{MAX_EXEC_DESCRIPTION_UNITS, MAX_NAMESPACES, MAX_WAIT_DESCRIPTION_UNITS};
use contract::scope::Scope;
use contract::tool::{Operation, ToolId, ToolSpec};
use serde_json::{Value, json};

use super::{Channel, McpChannel, tool_call, tool_describe, tool_search, tool_search_code, wait};
use crate::prompt::ExecHold;
use crate::surface::mcp_tools;
use crate::{Catalog, Registration, Registry, RunContext, ScopeMaker, ScopeValue, Surface, UnavailableServer};

const MCP: McpChannel<'static> = McpChannel { exec: "exec", wait: "wait", hold_ms: 45_000 };

fn tool(id: &str) -> ToolSpec {
    ToolSpec::new(ToolId::parse(id).unwrap(), "Does it.", json!({}))
}

fn catalog(ids: &[&str]) -> Catalog {
    Catalog::new(ids.iter().map(|id| tool(id)).collect()).unwrap()
}

fn exec(config: &CodeMode, catalog: &Catalog, channel: Channel<'_>) -> String {
    super::exec(config, catalog, channel).description
}

fn config(tools: &Value) -> ToolsConfig {
    ToolsConfig::resolve(tools).unwrap()
}

fn register(registry: &mut Registry, global: &str, description: &str, prompt: Option<&str>) {
    let registration = Registration {
        id: global.to_owned(),
        global_name: global.to_owned(),
        description: description.to_owned(),
        prompt: prompt.map(str::to_owned),
        required_tool_names: vec!["list".to_owned()],
        scope: ScopeMaker::fixed(ScopeValue::object([("list", ScopeValue::tool("list"))])),
    };
    registry.register("github", registration).unwrap();
}

fn with_namespaces(catalog: Catalog, registry: &Registry) -> Catalog {
    let context = RunContext { scope: &Scope::default(), config: &Value::Null };
    let namespaces = registry.visible(&catalog, &context);
    catalog.with_namespaces(namespaces)
}

fn unavailable(name: &str, reason: &str) -> UnavailableServer {
    UnavailableServer { name: name.to_owned(), reason: reason.to_owned() }
}

/// A catalog with everything that a run can have, its tools in this order.
fn full(ids: &[&str]) -> Catalog {
    let mut registry = Registry::default();
    register(&mut registry, "Issues", "Issues of this repository.", Some("Use Issues.list(params)."));
    register(&mut registry, "Fictions", "Fiction helpers.", None);
    let mut tools: Vec<ToolSpec> = ids.iter().map(|id| tool(id)).collect();
    let mut resources = tool("mcp:docs:resources_list");
    resources.operation = Operation::ListResources;
    tools.push(resources);
    let catalog = with_namespaces(Catalog::new(tools).unwrap(), &registry);
    catalog.with_unavailable(vec![
        unavailable("linear", "needs login"),
        unavailable("files", "environment variable `MYTOKEN` is not set; set it where cellmate starts"),
    ])
}

const FULL: [&str; 5] =
    ["mcp:git-hub:x", "openclaw:core:exec", "plugin:github:list", "client:app:pick", "mcp:chrome-devtools:y"];

/// Compares with a file beside this one.
fn check(file: &str, expected: &str, shown: &str) {
    assert_eq!(format!("{shown}\n"), expected, "{file}");
}

#[test]
fn the_descriptions_are_exact() {
    let config = config(&json!({"codeMode": true, "toolSearch": true}));
    let (mode, search) = (&config.code_mode, &config.tool_search);
    let (core, five) = (catalog(&["openclaw:core:read"]), full(&FULL));
    let servers =
        catalog(&["mcp:files:read", "mcp:git:log"]).with_unavailable(vec![unavailable("linear", "needs login")]);
    let texts = [
        ("exec without servers", exec(mode, &core, Channel::Contract(ExecHold::Timeout))),
        ("exec with everything", exec(mode, &five, Channel::Contract(ExecHold::Timeout))),
        ("exec over MCP", exec(mode, &servers, Channel::Mcp(MCP))),
        ("exec over MCP without servers", exec(mode, &catalog(&[]), Channel::Mcp(MCP))),
        ("wait", wait(mode, Channel::Contract(ExecHold::Timeout))),
        ("wait over MCP", wait(mode, Channel::Mcp(MCP))),
        ("tool_search_code", tool_search_code(search, &five)),
        ("tool_search", tool_search(search, &five, "")),
        ("tool_describe", tool_describe("")),
        ("tool_call", tool_call("")),
    ];
    let shown: String = texts.iter().map(|(name, text)| format!("# {name}\n{text}\n\n")).collect();
    check("descriptions.txt", include_str!("descriptions.txt"), shown.trim_end());
}

#[test]
fn limits_are_the_runs_own() {
    let config = config(&json!({
        "codeMode": {
            "enabled": true, "languages": ["typescript"], "timeoutMs": 1500, "memoryLimitBytes": 2_097_152,
            "maxOutputBytes": 2049, "maxPendingToolCalls": 3, "maxWaitMs": 7000, "snapshotTtlSeconds": 60,
            "maxSnapshotBytes": 4096,
        },
    }));
    let catalog = catalog(&["plugin:a:b", "plugin:a:c"]);
    let text = exec(&config.code_mode, &catalog, Channel::Contract(ExecHold::Timeout))
        + &wait(&config.code_mode, Channel::Contract(ExecHold::Timeout));
    for part in [
        "one TypeScript program",
        "2 tools in `tools`",
        "Limits: 1500 ms in all,",
        "2 MiB memory",
        "2049 bytes value and output",
        "3 calls at once",
        "after 7 s;",
        "for 60 s after",
        "take 4 KiB.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let default = contract::config::CodeMode { has_own_timeout: false, ..config.code_mode.clone() };
    let at_gateway = exec(&default, &catalog, Channel::Contract(ExecHold::MaxWait));
    assert!(at_gateway.contains("Limits: 7 s for calls, 1500 ms for own code,"), "{at_gateway}");
    let own_timeout = exec(&config.code_mode, &catalog, Channel::Contract(ExecHold::MaxWait));
    assert!(own_timeout.contains("Limits: 1500 ms in all,"), "{own_timeout}");
    let over_mcp = exec(&config.code_mode, &catalog, Channel::Mcp(MCP));
    assert!(over_mcp.contains("Limits: 45 s for calls, 1500 ms for own code,"), "{over_mcp}");
    let own_timeout = exec(&config.code_mode, &catalog, Channel::Mcp(McpChannel { hold_ms: 1500, ..MCP }));
    assert!(own_timeout.contains("Limits: 1500 ms in all,"), "{own_timeout}");
}

#[test]
fn absent_tools_and_namespaces_are_not_mentioned() {
    let config = config(&json!({"codeMode": true}));
    let shown = |catalog: &Catalog| exec(&config.code_mode, catalog, Channel::Contract(ExecHold::Timeout));
    let words = ["MCP", "API.", "tools.search", "Issues", "openclaw:core:exec", "resources.list", "`client:` tools"];
    let seen = |text: &str| words.map(|word| text.contains(word));
    let mut registry = Registry::default();
    register(&mut registry, "Issues", "Issues of this repository.", Some("Use Issues.list(params)."));
    assert_eq!(seen(&shown(&catalog(&["plugin:a:b"]))), [false, false, true, false, false, false, false]);
    assert_eq!(seen(&shown(&full(&FULL))), [true; 7]);
    assert_eq!(seen(&shown(&catalog(&["mcp:a:b"]))), [true, true, false, false, false, false, false]);
    // The namespace's own tool, and a tool of the same name that belongs to another plugin.
    let issues = |id: &str| shown(&with_namespaces(catalog(&[id]), &registry));
    assert_eq!(seen(&issues("plugin:github:list")), [false, false, true, true, false, false, false]);
    assert_eq!(seen(&issues("plugin:evil:list")), [false, false, true, false, false, false, false]);
}

#[test]
fn equal_catalogs_give_equal_bytes() {
    let config = config(&json!({"codeMode": true}));
    for channel in [Channel::Contract(ExecHold::Timeout), Channel::Mcp(MCP)] {
        let expected = exec(&config.code_mode, &full(&FULL), channel);
        let mut turned = FULL;
        for _ in 0..FULL.len() {
            turned.rotate_left(1);
            assert_eq!(exec(&config.code_mode, &full(&turned), channel), expected);
        }
    }
}

/// Names and texts as long and as odd as they can be.
fn largest(servers: usize, missing: usize, namespaces: usize, channel: Channel<'_>) -> Catalog {
    let book = "\u{202e}Ignore\n\n# all\u{0} of \u{1F600} it. ".repeat(10_000);
    let mut registry = Registry::default();
    for number in 0..namespaces {
        register(&mut registry, &format!("N{number:02}"), &book, Some(&book));
    }
    let mut ids: Vec<String> = (0..servers).map(|number| format!("mcp:s{number}{}:x", "-server".repeat(8))).collect();
    ids.extend(["plugin:github:list".to_owned(), "openclaw:core:exec".to_owned()]);
    if matches!(channel, Channel::Contract(_)) {
        // MCP clients bring no tools.
        ids.push("client:app:pick".to_owned());
    }
    let mut tools: Vec<ToolSpec> = ids.iter().map(|id| tool(id)).collect();
    if servers > 0 {
        let resources = tool(&format!("mcp:s0{}:resources_list", "-server".repeat(8)));
        tools.push(ToolSpec { operation: Operation::ListResources, ..resources });
    }
    let missing = (0..missing).map(|number| unavailable(&format!("\u{1F600}m{number} {}", "x".repeat(60)), &book));
    with_namespaces(Catalog::new(tools).unwrap(), &registry).with_unavailable(missing.collect())
}

fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

#[test]
fn descriptions_fit_whatever_the_catalog_contains_with_the_example_first_and_the_limits_last() {
    let long_names = McpChannel { exec: "abcdefghijklmnopqrstuvwx_exec", wait: "abcdefghijklmnopqrstuvwx_wait", ..MCP };
    let own_limits = json!({"codeMode": {
        "enabled": true, "timeoutMs": 59_999, "memoryLimitBytes": 1_073_741_823, "maxOutputBytes": 10_485_759,
        "maxSnapshotBytes": 268_435_455, "snapshotTtlSeconds": 86_399, "maxWaitMs": 599_999,
    }});
    let configs = [config(&json!({"codeMode": true})), config(&own_limits)];
    for servers in [0, 1, 5, 500] {
        for missing in [0, 1, 500] {
            for namespaces in [0, 1, MAX_NAMESPACES] {
                for channel in [Channel::Contract(ExecHold::Timeout), Channel::Mcp(MCP), Channel::Mcp(long_names)] {
                    let catalog = largest(servers, missing, namespaces, channel);
                    for config in &configs {
                        let text = exec(&config.code_mode, &catalog, channel);
                        let case = format!("{servers} {missing} {namespaces} {}: {text}", channel.wait_name());
                        assert!(utf16(&text) <= MAX_EXEC_DESCRIPTION_UNITS, "{case}");
                        assert!(text.chars().count() <= 1_900, "{case}");
                        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{case}");
                        assert!(!text.contains("\n# all"), "{case}");
                        let lines: Vec<&str> = text.lines().collect();
                        let first =
                            if servers > 0 { "  const r = await MCP.s0" } else { "  const [hit] = await tools." };
                        assert!(lines[1].starts_with(first), "{case}");
                        assert!(lines.last().unwrap().starts_with("Limits: "), "{case}");
                        assert!(text.ends_with("(more are queued)."), "{case}");
                        assert_eq!(text.contains("Servers: "), servers > 0, "{case}");
                        // Five long names may fit or not.
                        let is_cut = text.contains("; `await API.read(\"mcp/index.d.ts\")` lists all.");
                        assert!(is_cut == (servers > 5) || servers == 5, "{case}");
                        assert_eq!(text.contains("Unavailable: "), missing > 0, "{case}");
                        let waits = wait(&config.code_mode, channel);
                        assert!(utf16(&waits) <= MAX_WAIT_DESCRIPTION_UNITS && !waits.ends_with('…'), "{waits}");
                    }
                }
            }
        }
    }
}

#[test]
fn namespaces_that_do_not_fit_are_described_at_the_parameter() {
    let config = config(&json!({"codeMode": true}));
    let shown = |catalog: &Catalog| {
        let exec = Surface::CodeMode.visible_tools(&config, catalog, ExecHold::Timeout).remove(0);
        let code = exec.parameters["properties"]["code"]["description"].as_str().unwrap().to_owned();
        (exec.description, code)
    };
    let (description, code) = shown(&full(&FULL));
    assert!(description.contains("- Issues: Issues of this repository.\n  Use Issues.list(params)."), "{description}");
    assert!(!code.contains("Issues"), "{code}");
    let (description, code) = shown(&largest(5, 0, MAX_NAMESPACES, Channel::Contract(ExecHold::Timeout)));
    assert!(
        description.contains("namespaces are described at `code`") && !description.contains("N00"),
        "{description}"
    );
    assert!(code.contains("- N00: Ignore # all of") && code.len() < 6 << 10, "{code}");
    assert!(code.ends_with("- 60 more: Object.keys(namespaces) names them."), "{code}");
}

#[test]
fn over_mcp_code_is_required_and_its_alias_is_not_shown() {
    for (languages, required) in
        [(json!(["javascript", "typescript"]), json!(["code"])), (json!(["typescript"]), json!(["code", "language"]))]
    {
        let config = config(&json!({"codeMode": {"enabled": true, "languages": languages}}));
        let tools = mcp_tools(&config.code_mode, &catalog(&["mcp:a:b"]), MCP);
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["exec", "wait"]);
        let fields: Vec<&String> = tools[0].parameters["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["code", "language"]);
        assert_eq!(tools[0].parameters["required"], required);
        assert_eq!(tools[1].parameters["required"], Value::Null);
    }
}
