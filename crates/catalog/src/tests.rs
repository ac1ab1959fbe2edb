//! Tests of the whole catalog.

use contract::tool::{Operation, ToolId, ToolSpec};
use serde_json::json;

use super::{ApiSchemas, Catalog, CatalogError, ExecHold, View, convenience_name, mcp_identifier};

fn tool(id: &str) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["n"],
    });
    ToolSpec::new(ToolId::parse(id).unwrap(), format!("Does {id}."), parameters)
}

fn catalog(ids: &[&str]) -> Catalog {
    Catalog::new(ids.iter().map(|id| tool(id)).collect()).unwrap()
}

#[test]
fn names_are_made_safe() {
    let cases = [
        ("web_search", Some("web_search")),
        ("web-search", Some("web_search")),
        ("2fa", Some("_2fa")),
        ("search", None),
        ("then", None),
        ("__proto__", None),
        ("constructor", None),
    ];
    for (name, expected) in cases {
        assert_eq!(convenience_name(name).as_deref(), expected, "{name}");
    }
    for (name, expected) in [
        ("create_issue", "createIssue"),
        ("chrome-devtools", "chromeDevtools"),
        ("GitHub", "gitHub"),
        ("7z", "z"),
        ("--", "tool"),
    ] {
        assert_eq!(mcp_identifier(name, "tool"), expected, "{name}");
    }
}

#[test]
fn equal_tools_give_equal_bytes_in_any_order() {
    let one = catalog(&["openclaw:a:x", "plugin:b:y", "mcp:c:z"]);
    let other = catalog(&["mcp:c:z", "plugin:b:y", "openclaw:a:x"]);
    assert_eq!(one.tables(), other.tables());
    assert_ne!(one.tables().hash(), catalog(&["openclaw:a:x"]).tables().hash());
}

#[test]
fn control_tools_are_left_out_and_the_shell_is_not() {
    let catalog = catalog(&["openclaw:core:exec", "openclaw:core:wait", "openclaw:core:tool_call", "plugin:p:wait"]);
    assert!(catalog.get("openclaw:core:exec").is_some());
    assert!(catalog.get("plugin:p:wait").is_some());
    assert_eq!(catalog.len(), 2);
}

#[test]
fn mcp_tools_are_grouped_by_server_and_numbered_if_they_collide() {
    let catalog =
        catalog(&["mcp:git-hub:create_issue", "mcp:git-hub:create-issue", "mcp:git-hub:delete", "mcp:git_hub:x"]);
    let id = |server, method| catalog.mcp_function(&[server, method]).map(|tool| tool.id.as_str());
    assert_eq!(id("gitHub", "createIssue"), Some("mcp:git-hub:create-issue"));
    assert_eq!(id("gitHub", "createIssue2"), Some("mcp:git-hub:create_issue"));
    assert_eq!(id("gitHub", "delete2"), Some("mcp:git-hub:delete"));
    assert_eq!(id("gitHub2", "x"), Some("mcp:git_hub:x"));
    assert!(catalog.get_in(View::CodeMode, "mcp:git-hub:delete").is_none());
    assert!(catalog.describe(View::CodeMode, "mcp:git-hub:delete").is_none());
}

/// A server with every operation.
fn docs() -> Vec<ToolSpec> {
    let operation = |operation: Operation| {
        let mut spec = tool(&format!("mcp:docs:{}", operation.as_str()));
        spec.operation = operation;
        spec
    };
    let mut ping = tool("mcp:docs:ping");
    ping.output = Some(json!({"properties": {"up": {"type": "boolean"}}, "required": ["up"]}));
    let others = Operation::ALL.into_iter().filter(|kind| *kind != Operation::Tool).map(operation);
    others.chain([ping]).collect()
}

#[test]
fn resources_and_prompts_are_reached_by_their_path_and_declared() {
    let catalog = Catalog::new(docs()).unwrap();
    let cases: [(&[&str], _); 8] = [
        (&["docs", "resources", "list"], Some("mcp:docs:resources_list")),
        (&["docs", "prompts", "get"], Some("mcp:docs:prompts_get")),
        (&["docs", "ping"], Some("mcp:docs:ping")),
        (&["docs", "resourcesList"], None),
        (&["docs", "resources"], None),
        (&["docs", "resources", "get"], None),
        (&["docs"], None),
        (&[], None),
    ];
    for (path, expected) in cases {
        assert_eq!(catalog.mcp_function(path).map(|tool| tool.id.as_str()), expected, "{path:?}");
    }
    let table = String::from_utf8_lossy(catalog.tables().bytes()).into_owned();
    let nested = r#"["ping",{"kind":"function"}],["prompts",{"kind":"object","entries":[["get",{"kind":"function"}],["list",{"kind":"function"}]]}],["resources",{"kind":"object","#;
    assert!(table.contains(nested), "{table}");
    assert!(table.contains("Promise<McpToolResult & { structuredContent?: { up: boolean } }>;"), "{table}");
    assert!(
        table.contains("  namespace prompts {\n    /** Does mcp:docs:prompts_get. */\n    function get("),
        "{table}"
    );
    assert!(table.contains("5 functions of the MCP server docs."), "{table}");

    let api = catalog.mcp_server_api("docs", Some("resources.read"), ApiSchemas::Omitted).unwrap();
    let entry = json!({
        "method": "read",
        "path": "resources.read",
        "mcpTool": "resources_read",
        "operation": "resources_read",
        "description": "Does mcp:docs:resources_read.",
    });
    assert_eq!(api["tools"], json!([entry]));
}

#[test]
fn an_operation_under_another_id_is_refused() {
    for id in ["mcp:docs:resources_read", "mcp:docs:list", "plugin:docs:resources_list"] {
        let mut misnamed = tool(id);
        misnamed.operation = Operation::ListResources;
        let expected = CatalogError::Operation { id: id.to_owned(), expected: "resources_list" };
        assert_eq!(Catalog::new(vec![misnamed]).unwrap_err(), expected);
    }
}

#[test]
fn search_prefers_names_and_lists_mcp_tools_in_tool_search_only() {
    let catalog = catalog(&["openclaw:core:read_file", "openclaw:core:web_search", "mcp:files:read_file"]);
    let ids = |view, query| {
        let found = catalog.search(view, query, 8);
        found.into_iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(View::CodeMode, "read file"), ["openclaw:core:read_file"]);
    assert_eq!(ids(View::CodeMode, ""), ["openclaw:core:read_file", "openclaw:core:web_search"]);
    assert_eq!(ids(View::ToolSearch, "read file"), ["mcp:files:read_file", "openclaw:core:read_file"]);
    assert!(ids(View::ToolSearch, "zebra").is_empty());
}

#[test]
fn tool_search_sees_mcp_tools_by_id_and_its_cells_read_no_catalog() {
    let catalog = catalog(&["openclaw:core:read_file", "mcp:files:read_file"]);
    for id in ["openclaw:core:read_file", "mcp:files:read_file"] {
        let compact = catalog.compact(View::ToolSearch, id).unwrap();
        let mut described = catalog.describe(View::ToolSearch, id).unwrap();
        assert!(described.as_object_mut().unwrap().remove("parameters").unwrap().is_object());
        assert_eq!(described, compact);
    }
    let tables = catalog.tables_for(View::ToolSearch);
    assert!(!String::from_utf8_lossy(tables.bytes()).contains("read_file"));
    assert_eq!(tables, super::Catalog::new(Vec::new()).unwrap().tables_for(View::ToolSearch));
    assert_eq!(&catalog.tables_for(View::CodeMode), catalog.tables());
}

#[test]
fn tool_search_cleans_and_bounds_descriptions() {
    let mut hostile = tool("mcp:far:away");
    hostile.description = format!("Goes\u{1b}[31m \u{202e}away. {}", "x".repeat(100_000));
    let description = hostile.description.clone();
    let catalog =
        Catalog::new(vec![hostile, ToolSpec { description: description.clone(), ..tool("plugin:far:away") }]).unwrap();
    let bytes = |entry: &serde_json::Value| {
        let description = entry["description"].as_str().unwrap();
        assert!(description.starts_with("Goes[31m away. xxx") && description.ends_with('…'), "{description}");
        description.len()
    };
    assert_eq!(catalog.search(View::ToolSearch, "away", 8).iter().map(bytes).collect::<Vec<_>>(), [1024, 1024]);
    assert_eq!(bytes(&catalog.compact(View::ToolSearch, "mcp:far:away").unwrap()), 1024);
    assert_eq!(bytes(&catalog.describe(View::ToolSearch, "mcp:far:away").unwrap()), 16 << 10);
    assert_eq!(catalog.search(View::CodeMode, "away", 8)[0]["description"], json!(description));
}

#[test]
fn direct_bytes_equal_the_size_of_the_direct_surface() {
    let tools: Vec<ToolSpec> = ["openclaw:core:read_file", "mcp:files:read_file"].map(tool).into();
    let config = contract::config::ToolsConfig::resolve(&json!({})).unwrap();
    let catalog = Catalog::new(tools.clone()).unwrap();
    let visible =
        super::Surface::Direct(super::DirectTools::new(tools, 0)).visible_tools(&config, &catalog, ExecHold::Timeout);
    assert_eq!(visible.len(), 2);
    assert_eq!(catalog.direct_bytes(), visible.iter().map(super::VisibleTool::bytes).sum::<usize>());
}

#[test]
fn declarations_show_required_fields_first() {
    let catalog = catalog(&["mcp:c:z_tool"]);
    let api = catalog.mcp_server_api("c", Some("zTool"), ApiSchemas::Included).unwrap();
    assert_eq!(api["scope"], "tool");
    assert_eq!(
        api["header"],
        "  /** Does mcp:c:z_tool. */\n  function zTool(input: {\n    n: number; // integer\n    q?: string;\n  }): Promise<McpToolResult>;\n"
    );
    assert!(api["schemas"]["zTool"].is_object());
    assert_eq!(catalog.mcp_api()["servers"], json!([{"identifier": "c", "serverName": "c", "toolCount": 1}]));
}

#[test]
fn duplicate_ids_are_rejected() {
    let twins = vec![tool("openclaw:a:x"), tool("openclaw:a:x")];
    assert_eq!(Catalog::new(twins).unwrap_err(), CatalogError::Duplicate("openclaw:a:x".to_owned()));
}
