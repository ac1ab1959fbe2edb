//! Files, the index and `$api()`, as a cell reads them.

use std::collections::BTreeMap;

use contract::tool::{Operation, ToolId, ToolSpec};
use serde_json::{Value, json};

use super::function;
use crate::declare::function::Function;
use crate::declare::server::{members, namespace};
use crate::declare::{ApiSchemas, FILE_BYTES, files, index, server_api};
use crate::server::Server;
use crate::unavailable::UnavailableServer;

fn tool(id: &str) -> ToolSpec {
    let id = ToolId::parse(id).unwrap();
    ToolSpec::new(id, "Does it.", json!({"type": "object"}))
}

fn server(name: &str, methods: &[&str]) -> Server {
    Server {
        name: name.to_owned(),
        methods: methods.iter().enumerate().map(|(at, method)| ((*method).to_owned(), at)).collect(),
        ..Server::default()
    }
}

#[test]
fn there_is_an_index_and_one_file_per_server() {
    let tools = [tool("mcp:git-hub:b_tool"), tool("mcp:git-hub:a_tool")];
    let servers = BTreeMap::from([("gitHub".to_owned(), server("git-hub", &["bTool", "aTool"]))]);
    let files = files(&tools, &servers, &BTreeMap::new());
    let listed: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.description.as_str())).collect();
    assert_eq!(
        listed,
        [
            ("mcp/index.d.ts", "All MCP servers of this run."),
            ("mcp/gitHub.d.ts", "2 functions of the MCP server git-hub."),
            ("cell.d.ts", "The functions of a cell besides tools: output, stored outputs, values of the session."),
        ]
    );
    let expected = r#"type McpToolResult = {
  content?: unknown[];
  structuredContent?: unknown;
  isError?: boolean;
  [key: string]: unknown;
};

type McpApiHeader = {
  kind: "mcp_api";
  scope: "root" | "server" | "tool";
  header: string;
  server?: { identifier: string; serverName: string };
  servers?: { identifier: string; serverName: string; toolCount: number }[];
  unavailable?: { serverName: string; reason: string }[];
  tools?: { method: string; path: string; mcpTool: string; operation: string; description: string }[];
  schemas?: Record<string, unknown>;
  note: string;
};

declare namespace MCP.gitHub {
  /** Return this TypeScript-style API header. */
  function $api(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;

  /** Does it. */
  function aTool(input?: Record<string, never>): Promise<McpToolResult>;

  /** Does it. */
  function bTool(input?: Record<string, never>): Promise<McpToolResult>;
}
"#;
    assert_eq!(files[1].text, expected);
    let without_servers = crate::declare::files(&tools, &BTreeMap::new(), &BTreeMap::new());
    assert_eq!(without_servers.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["cell.d.ts"]);
}

#[test]
fn the_index_names_servers_and_methods() {
    let methods: Vec<String> = (10..60).map(|number| format!("method{number}")).collect();
    let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
    let servers = BTreeMap::from([
        ("big".to_owned(), server("big", &methods)),
        ("odd".to_owned(), server("a\n*/ \"b\"", &["run"])),
    ]);
    let listed = methods[..24].join(", ");
    let expected = format!(
        r#"/// <reference path="./big.d.ts" />
/// <reference path="./odd.d.ts" />

declare namespace MCP {{
  /** All servers of this run. */
  function $api(): Promise<McpApiHeader>;
  /** Searches all servers' functions by keywords, best first; `call` is the function to call, `signature` its input. */
  function $search(query: string, options?: {{ limit?: number }}): Promise<{{ call: string; signature: string; description: string }}[]>;

  // API.read("mcp/<server>.d.ts") declares a server's functions.
  /** Server "big": {listed}, … 26 more */
  namespace big {{}}
  /** Server "a *\/ \"b\"": run */
  namespace odd {{}}
}}
"#
    );
    assert_eq!(index(&servers, &BTreeMap::new()), expected);
    let (name, reason) = ("far".to_owned(), "needs login".to_owned());
    let unavailable = BTreeMap::from([("far".to_owned(), UnavailableServer { name, reason })]);
    let expected = expected.replace("\n}\n", "\n  // Unavailable: server \"far\": needs login\n}\n");
    assert_eq!(index(&servers, &unavailable), expected);
    assert_eq!(crate::declare::files(&[], &BTreeMap::new(), &unavailable)[0].path, "mcp/index.d.ts");
}

#[test]
fn resources_and_prompts_have_their_own_namespaces() {
    let (input, output) = (json!({"required": ["uri"]}), json!({"properties": {"contents": {"type": "array"}}}));
    let at = |operation, method, output| Function { operation, method, ..function("", &input, output) };
    let functions = [
        at(Operation::ReadResource, "read", Some(&output)),
        at(Operation::Tool, "ping", None),
        at(Operation::GetPrompt, "get", Some(&output)),
        at(Operation::ListResources, "list", None),
    ];
    let expected = "  function ping(input: {
    uri: unknown;
  }): Promise<McpToolResult>;

  namespace prompts {
    function get(input: {
      uri: unknown;
    }): Promise<{ contents?: unknown[] }>;
  }

  namespace resources {
    function list(input: {
      uri: unknown;
    }): Promise<McpResourceList>;

    function read(input: {
      uri: unknown;
    }): Promise<{ contents?: unknown[] }>;
  }
";
    assert_eq!(members(&functions), expected);
    assert_eq!(functions[0].path(), "resources.read");
    // The file declares the result types that it uses, and no others.
    let file = namespace("docs", &functions);
    for (word, is_there) in [("List", true), ("Contents", true)] {
        assert_eq!(file.contains(&format!("\ntype McpResource{word} = {{\n")), is_there, "{file}");
    }
    assert!(!file.contains("type McpPromptList"), "{file}");
}

#[test]
fn api_describes_a_server_or_one_tool() {
    let tools = [tool("mcp:s:a_tool"), tool("mcp:s:b_tool")];
    let server = server("s", &["aTool", "bTool"]);
    let scope = |selector| server_api(&tools, "s", &server, selector, ApiSchemas::Omitted).unwrap();
    for (selector, kind, count) in
        [(None, "server", 2), (Some("aTool"), "tool", 1), (Some("b_tool"), "tool", 1), (Some("none"), "server", 0)]
    {
        let api = scope(selector);
        assert_eq!(
            (&api["scope"], api["tools"].as_array().unwrap().len()),
            (&Value::from(kind), count),
            "{selector:?}"
        );
    }
    let expected = json!({
        "kind": "mcp_api",
        "scope": "tool",
        "server": {"identifier": "s", "serverName": "s"},
        "header": "  /** Does it. */\n  function aTool(input?: Record<string, never>): Promise<McpToolResult>;\n",
        "tools": [
            {"method": "aTool", "path": "aTool", "mcpTool": "a_tool", "operation": "tool", "description": "Does it."},
        ],
        "note": "call as MCP.s.<method>({ ...input })",
        "schemas": {"aTool": {"type": "object"}},
    });
    assert_eq!(server_api(&tools, "s", &server, Some("aTool"), ApiSchemas::Included), Some(expected));
}

#[test]
fn a_full_file_continues_with_outlines_and_then_a_count() {
    let input = json!({"properties": {"a": {"type": "string", "description": "word ".repeat(40)}}});
    let methods: Vec<String> = (0..8000).map(|number| format!("method{number:05}")).collect();
    let functions: Vec<_> =
        methods.iter().map(|method| Function { method, ..function("Does it.", &input, None) }).collect();
    let text = namespace("big", &functions);
    assert!(text.len() <= FILE_BYTES && text.len() > FILE_BYTES - 4096, "{}", text.len());
    assert!(text.contains("  // Outlines from here on: $api(\"<method>\") declares one in full.\n"));
    assert!(text.contains("): Promise<McpToolResult>;\n  /* … "));
    assert!(text.ends_with(" more */\n}\n"));

    let long = "x".repeat(300);
    let unnamed = Function { method: &long, ..function("", &input, None) };
    assert_eq!(members(&[unnamed]), "  /* … 1 more */\n");
}
