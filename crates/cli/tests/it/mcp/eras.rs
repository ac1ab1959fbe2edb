//! The two tools, listed and called in every revision of the protocol.

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::{Place, reads};

fn adds() -> Place {
    Place::new(json!([reads("add", json!([{"result": {"content": [], "structuredContent": {"sum": 3}}}]))]))
}

#[test]
fn every_revision_lists_the_same_two_tools_with_their_metadata() {
    let place = adds();
    let mut seen: Vec<String> = Vec::new();
    for era in Era::ALL {
        let mut client = Streams::plain(&place, era);
        let list = client.ask("tools/list", json!({}))["result"].clone();
        assert_eq!(list["ttlMs"].is_number(), era.is_modern(), "{list}");
        let tools = list["tools"].as_array().unwrap().clone();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["exec", "wait"]);
        for tool in &tools {
            assert_eq!(tool["_meta"]["anthropic/alwaysLoad"], true);
            assert_eq!(tool["annotations"]["destructiveHint"], true);
            assert_eq!(tool["annotations"]["openWorldHint"], true);
            assert_eq!(tool["inputSchema"]["type"], "object");
            assert!(tool["inputSchema"]["properties"]["command"].is_null());
            // A result with images has no structured content, which a tool with an output schema must have.
            assert_eq!(tool.get("outputSchema"), None);
        }
        let descriptions: Vec<&str> = tools.iter().map(|tool| tool["description"].as_str().unwrap()).collect();
        assert!(descriptions[0].contains("Servers: s.\n"), "{}", descriptions[0]);
        assert!(descriptions[0].contains("\n  const r = await MCP.s.add({});\n"), "{}", descriptions[0]);
        assert!(descriptions[0].encode_utf16().count() <= 1_900 && descriptions[1].encode_utf16().count() <= 900);
        assert_eq!(tools[0]["inputSchema"]["required"], json!(["code"]));
        seen.push(Value::from(tools).to_string());
    }
    assert!(seen.windows(2).all(|two| two[0] == two[1]), "the lists differ between revisions");
}

#[test]
fn completed_waiting_and_failed_cells_are_results_and_not_errors() {
    let place = adds();
    for era in Era::ALL {
        let mut client = Streams::plain(&place, era);
        let result = client.exec("return (await MCP.s.add({ a: 1 })).structuredContent.sum + 1");
        assert_eq!((&result["status"], &result["value"]), (&json!("completed"), &json!(4)), "{result}");
        let waiting = client.exec("text('so far'); await yield_control(); return 7");
        assert_eq!(waiting["status"], "waiting");
        let done = client.call("wait", json!({"runId": waiting["runId"]}));
        assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!(7)));
        // The model must read the whole result of a failed cell, so it is not an error of the call.
        let failed = client.ask("tools/call", json!({"name": "exec", "arguments": {"code": "text('before'); null.x"}}));
        assert_eq!(failed["result"]["isError"], false, "{failed}");
        assert_eq!(structured(&failed)["output"][0]["text"], "before");
    }
}

#[test]
fn bad_input_is_a_tool_error_and_an_unknown_tool_a_protocol_error() {
    let place = Place::new(json!([]));
    for era in Era::ALL {
        let mut client = Streams::plain(&place, era);
        for (tool, arguments, word) in [
            ("exec", json!({}), "`code` is empty"),
            ("exec", json!({"code": 1}), "must be a string"),
            ("exec", json!({"code": "1", "language": "bash"}), "`language` must be"),
            ("exec", json!("return 1"), "`arguments` must be an object"),
            ("wait", json!({"runId": "cm_nobody"}), "no such run"),
            ("wait", json!({"runId": 7}), "`runId` must be a string"),
            ("wait", json!({}), "no cell is live"),
        ] {
            let answer = client.ask("tools/call", json!({"name": tool, "arguments": arguments}));
            let result = structured(&answer);
            assert_eq!((&result["status"], &answer["result"]["isError"]), (&json!("failed"), &json!(true)), "{answer}");
            assert!(result["error"].as_str().unwrap().contains(word), "{result}");
        }
        let unknown = client.ask("tools/call", json!({"name": "rm", "arguments": {}}));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
}

#[test]
fn nested_calls_are_reported_to_a_client_with_a_progress_token() {
    let place = Place::new(json!([
        reads(
            "one",
            json!([{"progress": {"progress": 1, "total": 2, "message": "half"}}, {"result": {"content": []}}])
        ),
        reads("two", json!([{"sleepMs": 6000}, {"result": {"content": []}}])),
    ]));
    for era in [Era::June2025, Era::July2026] {
        let mut client = Streams::plain(&place, era);
        let code = "await MCP.s.one({}); await MCP.s.two({}); return 1";
        let params = json!({"name": "exec", "arguments": {"code": code}, "_meta": {"progressToken": "t"}});
        let done = client.ask("tools/call", params);
        assert_eq!(structured(&done)["value"], 1, "{done}");
        let updates = client.notifications("notifications/progress");
        let lines: Vec<&str> = updates.iter().filter_map(|update| update["params"]["message"].as_str()).collect();
        assert!(lines.contains(&"call 1: s.one") && lines.contains(&"call 2: s.two"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("half")), "{lines:?}");
        // A heartbeat while the second call slept.
        assert!(lines.iter().any(|line| line.ends_with(" s")), "{lines:?}");
        let numbers: Vec<f64> = updates.iter().map(|update| update["params"]["progress"].as_f64().unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
        assert!(updates.iter().all(|update| update["params"]["progressToken"] == "t"));
    }
}

#[test]
fn a_prefix_renames_both_tools() {
    let place = Place::new(json!([]));
    let mut client = Streams::start(&place, Era::June2025, json!({}), &["--tool-prefix", "cell_"]);
    let list = client.ask("tools/list", json!({}));
    assert_eq!(list["result"]["tools"][1]["name"], "cell_wait");
    assert!(list["result"]["tools"][0]["description"].as_str().unwrap().contains("`cell_wait` resumes the cell"));
    assert_eq!(client.call("cell_exec", json!({"code": "return 2"}))["value"], 2);
    assert_eq!(client.ask("tools/call", json!({"name": "exec", "arguments": {}}))["error"]["code"], -32602);
}

#[test]
fn a_server_that_cannot_start_does_not_affect_the_others() {
    let place = adds();
    let config = std::fs::read_to_string(place.path("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["mcpServers"]["gone"] = json!({"command": "/no/such/program"});
    config["mcpServers"]["far"] = json!({"url": "http://127.0.0.1:1/mcp"});
    config["mcpServers"]["my-files"] = json!({"command": "x", "env": {"TOKEN": "${NOT_SET_ANYWHERE}"}});
    place.configure(&config);
    let mut client = Streams::plain(&place, Era::November2025);
    let found = client.exec("return Object.keys(MCP).filter((name) => !name.startsWith('$'))");
    assert_eq!(found["value"], json!(["s"]), "{found}");

    // The model reads which servers are missing and why, in the description and when it calls them.
    let list = client.ask("tools/list", json!({}));
    let description = list["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(description.contains("Servers: s. Unavailable: far ("), "{description}");
    assert!(description.contains("gone (its command /no/such/program does not exist)"), "{description}");
    assert!(description.contains("my-files (environment variable NOT_SET_ANYWHERE is not set)"), "{description}");
    for (cell, expected) in [
        ("await MCP.myFiles.read({ path: 'x' })", "the MCP server `my-files` is unavailable: environment variable"),
        ("await MCP.gone.resources.list()", "the MCP server `gone` is unavailable: its command"),
        ("await MCP.far.$api()", "the MCP server `far` is unavailable: "),
        ("return await API.read('mcp/index.d.ts')", "// Unavailable: server \\\"my-files\\\": environment variable"),
    ] {
        let result = client.exec(cell).to_string();
        assert!(result.contains(expected), "{cell}: {result}");
    }
    let seen = client.exec("return [MCP.myFiles, typeof MCP.nowhere, (await MCP.$api()).unavailable.length]");
    assert_eq!(seen["value"], json!([{}, "undefined", 3]), "{seen}");
}

#[test]
fn the_server_exits_when_its_input_closes_or_on_sigterm() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::July2026);
    assert_eq!(client.exec("return 1")["value"], 1);
    client.close();
    assert!(client.child.wait().unwrap().success());
    let mut client = Streams::plain(&place, Era::June2025);
    let pid = rustix::process::Pid::from_child(&client.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(client.child.wait().unwrap().success());
}
