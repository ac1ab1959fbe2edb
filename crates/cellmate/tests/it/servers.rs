//! MCP servers as sources of tools. The server is this program, started again.

use std::io::{BufRead, Write};

use cellmate::{McpServer, Scope, json};
use serde_json::Value;

use super::{Result, builder};

/// The argument with which this program runs as an MCP server instead of the tests.
pub(super) const FAKE_SERVER_ARGUMENT: &str = "__fake-mcp-server";

/// Runs an MCP server with one tool, which adds two numbers, until standard input is closed.
pub(super) fn serve_fake_mcp() {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(id) = request.get("id") else { continue };
        let result = match request["method"].as_str().unwrap() {
            "initialize" => json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            }),
            "tools/list" => json!({"tools": [{
                "name": "add",
                "description": "Adds two numbers.",
                "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
            }]}),
            "tools/call" => {
                let given = &request["params"]["arguments"];
                let sum = given["a"].as_f64().unwrap() + given["b"].as_f64().unwrap();
                json!({"content": [{"type": "text", "text": sum.to_string()}]})
            }
            _ => json!({}),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap();
        out.flush().unwrap();
    }
}

fn this_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

pub(super) async fn a_cell_calls_a_tool_of_an_mcp_server() -> Result {
    let sums = McpServer::command("sums", this_program(), [FAKE_SERVER_ARGUMENT]).variable("LANG", "C").folder("/");
    let host = builder().mcp_server(sums).build().await?;
    let result = host.run(Scope::agent("a"))?.exec("1", "return MCP.sums.add({a: 1, b: 2})").await;
    assert!(result.value().is_some_and(|value| value.to_string().contains('3')), "{result:?}");
    host.shut_down().await
}

pub(super) async fn a_server_that_cannot_start_does_not_stop_the_program() -> Result {
    let missing = McpServer::command("missing", "/no/such/program", [""; 0]);
    let host = builder().mcp_server(missing).build().await?;
    let result = host.run(Scope::agent("a"))?.exec("1", "return MCP.missing.add({})").await;
    assert!(result.error().is_some_and(|error| error.contains("missing")), "{result:?}");
    host.shut_down().await
}

pub(super) async fn a_setting_of_the_other_transport_is_refused() -> Result {
    let servers = [
        McpServer::http("remote", "https://mcp.example.com").variable("A", "1"),
        McpServer::http("remote", "https://mcp.example.com").folder("/"),
        McpServer::command("local", "true", [""; 0]).header("Authorization", "Bearer a"),
    ];
    for server in servers {
        let error = builder().mcp_server(server).build().await.unwrap_err();
        assert_eq!(error.code(), "invalid_config", "{error}");
    }
    Ok(())
}
