//! The surfaces of `cellmate mcp`: code mode, Tool Search in both modes, the tools themselves, and the automatic choice.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::{Keys, Location, Store};

use super::clients::{Era, PATIENCE, Served, Streams};
use super::place::{Place, reads, writes};
use super::runs::json_of;

const CHANGED: &str = "notifications/tools/list_changed";

fn say(answer: &str) -> Value {
    let content = json!([{"type": "text", "text": answer}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]);
    let mut say = reads("say", json!([{"result": {"content": content, "structuredContent": {"said": answer}}}]));
    say["description"] = json!("Says a word.");
    say["inputSchema"] = json!({"type": "object", "properties": {"loud": {"type": "boolean"}}});
    say["outputSchema"] = json!({"type": "object", "properties": {"said": {"type": "string"}}});
    say
}

fn place() -> Place {
    Place::new(json!([say("hello"), writes("push")]))
}

fn settings(place: &Place, tools: Value) {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["tools"] = tools;
    place.configure(&config);
}

fn start(place: &Place, era: Era, more: &[&str]) -> Streams {
    Streams::start(place, era, json!({}), more)
}

fn listed(client: &mut Streams) -> Vec<Value> {
    client.ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone()
}

fn names(client: &mut Streams) -> Vec<String> {
    listed(client).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn call(client: &mut Streams, tool: &str, arguments: Value) -> Value {
    client.ask("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
}

/// Returns the answer of a Tool Search tool, which is the text, and the structured content if it is an object. An answer
/// with further content blocks has no structured content.
fn answer(result: &Value) -> Value {
    let blocks = result["content"].as_array().unwrap();
    let value: Value = serde_json::from_str(blocks[0]["text"].as_str().unwrap()).unwrap();
    match &value {
        Value::Object(_) if blocks.len() == 1 => assert_eq!(result["structuredContent"], value, "{result}"),
        _ => assert_eq!(result.get("structuredContent"), None, "{result}"),
    }
    value
}

fn telemetry(result: &Value) -> &Value {
    &result["_meta"]["cellmate/telemetry"]
}

fn made(place: &Place, tool: &str) -> usize {
    place.received().lines().filter(|line| line.contains("tools/call") && line.contains(&format!("\"{tool}\""))).count()
}

fn approvals(place: &Place) -> Vec<Value> {
    serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap()
}

fn wait_for_approval(place: &Place) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(first) = approvals(place).first() {
            return first["approvalId"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "no approval was requested");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn log_text(place: &Place) -> String {
    std::fs::read_to_string(place.path("state/logs/cellmate.log")).unwrap_or_default()
}

#[test]
fn settings_and_flag_choose_the_tools_that_are_listed() {
    let code = ["exec", "wait"];
    let search = ["tool_search", "tool_describe", "tool_call"];
    let direct = ["s__push", "s__say"];
    let cases: [(Value, &[&str], &[&str]); 14] = [
        (json!({}), &[], &code),
        (json!({"codeMode": true, "toolSearch": true}), &[], &code),
        (json!({"codeMode": {"timeoutMs": 500}}), &[], &code),
        (json!({"codeMode": false}), &[], &direct),
        (json!({"codeMode": {"enabled": false}}), &[], &direct),
        (json!({"toolSearch": true}), &[], &["tool_search_code"]),
        (json!({"codeMode": false, "toolSearch": {"mode": "tools"}}), &[], &search),
        (json!({"codeMode": true}), &["--surface", "direct"], &direct),
        (json!({"codeMode": false}), &["--surface", "code"], &code),
        (json!({"toolSearch": {"mode": "tools"}}), &["--surface", "search"], &search),
        (json!({}), &["--surface", "search"], &["tool_search_code"]),
        (json!({}), &["--surface", "auto"], &direct),
        (json!({}), &["--surface", "direct", "--tool-prefix", "cm_"], &["cm_s__push", "cm_s__say"]),
        (json!({"allow": []}), &[], &[]),
    ];
    for (tools, arguments, expected) in cases {
        let place = place();
        settings(&place, tools.clone());
        let mut client = start(&place, Era::November2025, arguments);
        assert_eq!(names(&mut client), expected, "{tools} {arguments:?}");
        let log = log_text(&place);
        assert!(log.contains("surface chosen") && log.contains("direct_bytes"), "{log}");
        let unlisted = if expected.contains(&"exec") { "s__say" } else { "exec" };
        let refused = client.ask("tools/call", json!({"name": unlisted, "arguments": {"code": "return 1"}}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[test]
fn without_tools_the_controls_are_listed_unless_an_allow_list_is_empty() {
    for (tools, arguments, expected) in [
        (json!({"deny": ["*"]}), &[][..], &["exec", "wait"][..]),
        (json!({"deny": ["*"]}), &["--surface", "search"], &["tool_search_code"]),
        (json!({"deny": ["*"]}), &["--surface", "auto"], &["exec", "wait"]),
        (json!({"deny": ["*"]}), &["--surface", "direct"], &[]),
        (json!({"allow": []}), &["--surface", "search"], &[]),
        (json!({"allow": []}), &["--surface", "code"], &[]),
        (json!({"sandbox": {"tools": {"allow": []}}}), &["--sandboxed"], &[]),
        (json!({"byProvider": {"openai": {"allow": []}}}), &[], &[]),
        (json!({"byProvider": {"openai": {"allow": []}}}), &["--provider", "anthropic/opus"], &["exec", "wait"]),
    ] {
        let place = place();
        settings(&place, tools.clone());
        assert_eq!(names(&mut start(&place, Era::November2025, arguments)), expected, "{tools} {arguments:?}");
    }
}

#[test]
fn direct_tools_have_their_own_definitions_and_results_pass_whole() {
    for era in Era::ALL {
        let place = place();
        let mut client = start(&place, era, &["--surface", "direct"]);
        let tools = listed(&mut client);
        let say = &tools[1];
        assert_eq!((&say["name"], &say["description"]), (&json!("s__say"), &json!("Says a word.")));
        assert_eq!(say["inputSchema"]["properties"], json!({"loud": {"type": "boolean"}}));
        assert_eq!(say["outputSchema"]["properties"], json!({"said": {"type": "string"}}));
        assert_eq!(say["annotations"]["readOnlyHint"], true);
        assert_eq!(tools[0]["annotations"]["readOnlyHint"], false);
        let result = call(&mut client, "s__say", json!({"loud": true}));
        assert_eq!(result["content"][1], json!({"type": "image", "data": "AA==", "mimeType": "image/png"}));
        assert_eq!(result["structuredContent"], json!({"said": "hello"}));
        assert_ne!(result["isError"], true, "{result}");
        let telemetry = telemetry(&result);
        assert_eq!((&telemetry["toolId"], &telemetry["surface"]["surface"]), (&json!("mcp:s:say"), &json!("direct")));
        assert!(telemetry["surface"]["codeBytes"].as_u64().unwrap() > 1_000, "{telemetry}");
        let wrong = call(&mut client, "s__say", json!({"loud": "yes"}));
        assert_eq!(wrong["isError"], true, "{wrong}");
        assert!(wrong["content"][0]["text"].as_str().unwrap().contains("loud"), "{wrong}");
        assert_eq!(made(&place, "say"), 1);
    }
}

#[test]
fn tool_search_shows_images_as_blocks_and_never_as_text() {
    let png = json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"});
    let wav = json!({"type": "audio", "data": "UklGRg", "mimeType": "audio/wav"});
    let content = json!([{"type": "text", "text": "a chart"}, png, wav]);
    let chart = reads("chart", json!([{"result": {"content": content, "structuredContent": {"again": [png]}}}]));
    let shown = |result: &Value, expected: &[(&str, &str)]| {
        let blocks = result["content"].as_array().unwrap();
        let text = blocks[0]["text"].as_str().unwrap();
        assert!(!text.contains("iVBOR") && !text.contains("UklG"), "{text}");
        assert_eq!(result.get("structuredContent"), None, "{result}");
        let media = blocks[1..].iter().map(|block| (block["type"].as_str().unwrap(), block["data"].as_str().unwrap()));
        assert_eq!(media.collect::<Vec<_>>(), expected, "{result}");
    };
    for era in Era::ALL {
        let place = Place::new(json!([chart]));
        let mut client = start(&place, era, &["--surface", "search"]);
        let code = "const r = await openclaw.tools.call('mcp:s:chart'); image(r.content[1]); return r.content";
        let result = call(&mut client, "tool_search_code", json!({"code": code}));
        shown(&result, &[("image", "iVBORw0KGgo="), ("audio", "UklGRg==")]);
        let value = answer(&result);
        assert_eq!((&value["ok"], &value["value"][1]["bytes"]), (&json!(true), &json!(8)), "{value}");
        assert!(value["logs"][0].as_str().unwrap().contains("image/png"), "{value}");
        let failing = "image({ data: 'iVBORw0KGgo=', mimeType: 'image/png' }); throw new Error('after')";
        let result = call(&mut client, "tool_search_code", json!({"code": failing}));
        shown(&result, &[("image", "iVBORw0KGgo=")]);
        assert_eq!(answer(&result)["ok"], false);

        settings(&place, json!({"toolSearch": {"mode": "tools"}}));
        let mut client = start(&place, era, &["--surface", "search"]);
        let result = call(&mut client, "tool_call", json!({"id": "mcp:s:chart"}));
        shown(&result, &[("image", "iVBORw0KGgo="), ("audio", "UklGRg=="), ("image", "iVBORw0KGgo=")]);
        let value = answer(&result);
        assert_eq!(value["result"]["content"][1], json!({"type": "image", "mimeType": "image/png", "bytes": 8}));
        assert_eq!(value["result"]["structuredContent"]["again"][0]["bytes"], 8);
    }
}

#[test]
fn a_call_of_tool_call_belongs_to_its_control_call_and_its_time_is_measured() {
    let place =
        Place::new(json!([reads("slow", json!([{"sleepMs": 80}, {"result": {"content": []}}])), writes("push")]));
    settings(&place, json!({"toolSearch": {"mode": "tools"}}));
    let mut client = start(&place, Era::November2025, &["--surface", "search"]);
    let result = call(&mut client, "tool_call", json!({"id": "mcp:s:slow"}));
    let times = &result["_meta"]["cellmate/telemetry"]["durationMs"];
    let [tools, total] = ["tools", "total"].map(|name| times[name].as_u64().unwrap());
    assert!((80..10_000).contains(&tools) && total >= tools, "{times}");

    let run = json_of(&place.runs(&["list", "--json"]))[0].clone();
    assert_eq!((&run["state"], &run["pending"]), (&json!("completed"), &json!(0)), "{run}");
    let session = run["sessionId"].as_str().unwrap().to_owned();
    let entries = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let location = Location::File(place.path("state/runs.db").into());
        let store = Store::open(&location, Keys::ephemeral().unwrap()).await.unwrap();
        store.transcript(&session).await.unwrap()
    });
    let kinds: Vec<&str> = entries.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["control_call", "tool_call", "tool_result", "control_result"], "{entries:?}");
    let control = &entries[0].entry["toolCallId"];
    assert!(entries[1..3].iter().all(|entry| entry.entry["parentToolCallId"] == *control), "{entries:?}");
    assert_eq!(entries[3].entry["telemetry"]["durationMs"], *times, "{entries:?}");
}

#[test]
fn a_tools_own_error_passes_through_a_direct_call_and_a_crash_is_reported() {
    let failing = json!({"content": [{"type": "text", "text": "no such city"}], "isError": true});
    let place = Place::new(json!([
        reads("fail", json!([{"result": failing}])),
        reads("odd", json!([{"error": {"code": -1, "message": "odd"}}]))
    ]));
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let failed = call(&mut client, "s__fail", json!({}));
    assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("no such city")));
    let odd = call(&mut client, "s__odd", json!({}));
    assert_eq!(odd["isError"], true, "{odd}");
    assert!(odd["content"][0]["text"].as_str().unwrap().contains("odd"), "{odd}");
}

#[test]
fn a_direct_call_waits_for_an_approval_and_is_then_made() {
    let place = place();
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let id = client.send("tools/call", json!({"name": "s__push", "arguments": {"to": "main"}}));
    let approval = wait_for_approval(&place);
    assert_eq!(made(&place, "push"), 0);
    assert_eq!(place.approvals(&["approve", &approval]).status.code(), Some(0));
    let done = client.answer(id)["result"].clone();
    assert_eq!(done["structuredContent"], json!({"done": "push"}), "{done}");
    assert_eq!(made(&place, "push"), 1);

    let id = client.send("tools/call", json!({"name": "s__push", "arguments": {"to": "main"}}));
    let approval = wait_for_approval(&place);
    assert_eq!(place.approvals(&["deny", &approval, "--note", "not today"]).status.code(), Some(0));
    let denied = client.answer(id)["result"].clone();
    assert_eq!(denied["isError"], true);
    assert!(denied["content"][0]["text"].as_str().unwrap().contains("not today"), "{denied}");
    assert_eq!(made(&place, "push"), 1);
}

#[test]
fn an_approval_that_outlives_the_request_is_used_by_the_repeated_call_in_another_process() {
    let place = place();
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let meta = json!({"progressToken": "p"});
    let id = client.send("tools/call", json!({"name": "s__push", "arguments": {"to": "main", "n": 1}, "_meta": meta}));
    client.next("progress", |message| message["params"]["message"].to_string().contains("waiting for a person"));
    let waiting = client.answer(id)["result"].clone();
    assert_eq!(waiting["isError"], true, "{waiting}");
    let text = waiting["content"][0]["text"].as_str().unwrap();
    for part in ["was not called yet", "run `cellmate approvals`", "call `s__push` again with the same arguments"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("approvals approve"), "{text}");
    drop(client);
    let approval = wait_for_approval(&place);
    assert_eq!(place.approvals(&["approve", &approval]).status.code(), Some(0));
    assert_eq!(made(&place, "push"), 0, "nothing happens before the call is repeated");

    let mut other = start(&place, Era::July2026, &["--surface", "direct"]);
    // The order of the keys does not matter.
    let done = call(&mut other, "s__push", json!({"n": 1, "to": "main"}));
    assert_eq!(done["structuredContent"], json!({"done": "push"}), "{done}");
    assert_eq!(made(&place, "push"), 1);
    // The approval is used up: the next call asks again.
    let id = other.send("tools/call", json!({"name": "s__push", "arguments": {"n": 1, "to": "main"}}));
    wait_for_approval(&place);
    assert_eq!(made(&place, "push"), 1);
    other.notify("notifications/cancelled", json!({"requestId": id}));
    let deadline = Instant::now() + PATIENCE;
    while !approvals(&place).is_empty() {
        assert!(Instant::now() < deadline, "a cancelled call leaves no open approval: {:?}", approvals(&place));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn two_equal_direct_calls_at_the_same_time_are_two_calls() {
    let place = place();
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let params = json!({"name": "s__push", "arguments": {"to": "main"}});
    let ids = [client.send("tools/call", params.clone()), client.send("tools/call", params)];
    let deadline = Instant::now() + PATIENCE;
    while approvals(&place).len() < 2 {
        assert!(Instant::now() < deadline, "{:?}", approvals(&place));
        std::thread::sleep(Duration::from_millis(50));
    }
    for approval in approvals(&place) {
        let id = approval["approvalId"].as_str().unwrap().to_owned();
        assert_eq!(place.approvals(&["approve", &id]).status.code(), Some(0));
    }
    for id in ids {
        let done = client.answer(id)["result"].clone();
        assert_eq!(done["structuredContent"], json!({"done": "push"}), "{done}");
    }
    assert_eq!(made(&place, "push"), 2);
}

#[test]
fn forms_approve_direct_calls_in_every_revision() {
    let forms = json!({"elicitation": {"form": {}}});
    let yes = json!({"action": "accept", "content": {"decision": "approve once"}});
    let place = place();
    let mut client = Streams::start(&place, Era::July2026, forms.clone(), &["--surface", "direct"]);
    let params = json!({"name": "s__push", "arguments": {"to": "main"}});
    let asked = client.ask("tools/call", params.clone())["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (id, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = params.clone();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ id: yes });
    let done = client.ask("tools/call", again.clone())["result"].clone();
    assert_eq!(done["structuredContent"], json!({"done": "push"}), "{done}");
    again["arguments"] = json!({"to": "other"});
    assert_eq!(client.ask("tools/call", again)["error"]["code"], -32602, "the state belongs to one call");

    let mut client = Streams::start(&place, Era::November2025, forms, &["--surface", "direct"]);
    let id = client.send("tools/call", params);
    let form = client.next("form", |message| message["method"] == "elicitation/create");
    client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": yes}));
    assert_eq!(client.answer(id)["result"]["structuredContent"], json!({"done": "push"}));
    assert_eq!(made(&place, "push"), 2);
}

#[test]
fn a_question_during_a_direct_call_is_shown_as_a_form() {
    let form = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let book = reads("book", json!([{"ask": {"message": "Where to?", "requestedSchema": form}}]));
    let place = Place::new(json!([book]));
    let forms = json!({"elicitation": {"form": {}}});
    let mut client = Streams::start(&place, Era::November2025, forms, &["--surface", "direct"]);
    let id = client.send("tools/call", json!({"name": "s__book", "arguments": {}}));
    let form = client.next("form", |message| message["method"] == "elicitation/create");
    assert!(form["params"]["message"].as_str().unwrap().contains("Where to?"), "{form}");
    let oslo = json!({"action": "accept", "content": {"city": "Oslo"}});
    client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": oslo}));
    let done = client.answer(id)["result"].clone();
    assert_eq!(done["structuredContent"]["content"], json!({"city": "Oslo"}), "{done}");
}

#[test]
fn cancelling_and_progress_reach_direct_calls() {
    let slow = reads("slow", json!([{"progress": {"progress": 1, "total": 4, "message": "half"}}]));
    let place = Place::new(json!([slow]));
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let meta = json!({"progressToken": "p"});
    let id = client.send("tools/call", json!({"name": "s__slow", "arguments": {}, "_meta": meta}));
    client.next("progress", |message| message["params"]["message"].to_string().contains("half (1 of 4)"));
    client.notify("notifications/cancelled", json!({"requestId": id}));
    let deadline = Instant::now() + PATIENCE;
    while !place.received().contains("notifications/cancelled") {
        assert!(Instant::now() < deadline, "{}", place.received());
        std::thread::sleep(Duration::from_millis(20));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let runs = place.command(&["runs", "list", "--json"]);
        let runs: Value = serde_json::from_slice(&runs.stdout).unwrap();
        if runs.to_string().contains("\"aborted\"") {
            break;
        }
        assert!(Instant::now() < deadline, "{runs}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn tool_search_with_code_finds_describes_and_calls_tools() {
    for era in Era::ALL {
        let place = place();
        settings(&place, json!({"toolSearch": true}));
        let mut client = start(&place, era, &[]);
        let tools = listed(&mut client);
        assert_eq!(tools.len(), 1);
        assert!(tools[0]["description"].as_str().unwrap().contains("2 tools"), "{}", tools[0]);
        let code = "const hits = await openclaw.tools.search('says a word'); \
                    const tool = await openclaw.tools.describe(hits[0].id); console.log(tool.parameters.type); \
                    return (await openclaw.tools.call(tool.id, {})).structuredContent";
        let result = call(&mut client, "tool_search_code", json!({"code": code}));
        assert_eq!(answer(&result), json!({"ok": true, "value": {"said": "hello"}, "logs": ["object"]}));
        let telemetry = telemetry(&result);
        assert_eq!(
            (&telemetry["searchCount"], &telemetry["describeCount"], &telemetry["callCount"]),
            (&json!(1), &json!(1), &json!(1))
        );
        assert_eq!(telemetry["selectedTools"], json!([{"id": "mcp:s:say", "source": "mcp"}]));
        assert_eq!(telemetry["surface"]["surface"], "search-code");
        let failed = call(&mut client, "tool_search_code", json!({"code": "throw new Error('mine')"}));
        let failed_answer = answer(&failed);
        assert!(failed_answer["error"].as_str().unwrap().contains("mine"), "{failed}");
        assert_ne!(failed["isError"], true, "the program was run: {failed}");
        let refused = call(&mut client, "tool_search_code", json!({}));
        assert_eq!((&refused["isError"], &answer(&refused)["code"]), (&json!(true), &json!("invalid_input")));
    }
}

#[test]
fn a_tool_search_cell_reports_the_approval_that_it_waited_for_and_a_form_decides_in_time() {
    let place = place();
    settings(&place, json!({"toolSearch": {"codeTimeoutMs": 1000}}));
    let code = "return (await openclaw.tools.call('mcp:s:push', {})).structuredContent";
    let mut client = start(&place, Era::November2025, &[]);
    let late = answer(&call(&mut client, "tool_search_code", json!({"code": code})));
    assert_eq!((&late["ok"], &late["code"]), (&json!(false), &json!("timeout")), "{late}");
    assert!(late["error"].as_str().unwrap().contains("mcp:s:push"), "{late}");
    assert_eq!(approvals(&place), Vec::<Value>::new(), "the request ended with the cell");
    drop(client);

    settings(&place, json!({"toolSearch": {"codeTimeoutMs": 30_000}}));
    let mut client = Streams::start(&place, Era::November2025, json!({"elicitation": {"form": {}}}), &[]);
    let id = client.send("tools/call", json!({"name": "tool_search_code", "arguments": {"code": code}}));
    let form = client.next("form", |message| message["method"] == "elicitation/create");
    let yes = json!({"action": "accept", "content": {"decision": "approve once"}});
    client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": yes}));
    let done = answer(&client.answer(id)["result"]);
    assert_eq!((&done["value"], made(&place, "push")), (&json!({"done": "push"}), 1), "{done}");
}

#[test]
fn cancelling_a_tool_search_cell_cancels_its_calls() {
    let place = Place::new(json!([reads("hang", json!([]))]));
    settings(&place, json!({"toolSearch": {"codeTimeoutMs": 40_000}}));
    let mut client = start(&place, Era::November2025, &[]);
    let code = "return await openclaw.tools.call('mcp:s:hang', {})";
    let id = client.send("tools/call", json!({"name": "tool_search_code", "arguments": {"code": code}}));
    let deadline = Instant::now() + PATIENCE;
    while made(&place, "hang") == 0 {
        assert!(Instant::now() < deadline, "{}", place.received());
        std::thread::sleep(Duration::from_millis(20));
    }
    client.notify("notifications/cancelled", json!({"requestId": id}));
    while !place.received().contains("notifications/cancelled") {
        assert!(Instant::now() < deadline, "{}", place.received());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn tool_search_with_tools_searches_describes_and_calls() {
    for era in Era::ALL {
        let place = place();
        settings(&place, json!({"toolSearch": {"mode": "tools", "maxSearchLimit": 5}}));
        let mut client = start(&place, era, &["--tool-prefix", "cm_"]);
        let tools = listed(&mut client);
        assert!(tools[0]["description"].as_str().unwrap().contains("`cm_tool_call`"), "{}", tools[0]);
        let found = call(&mut client, "cm_tool_search", json!({"query": "says a word", "limit": 1}));
        let hits = answer(&found);
        assert_eq!((hits.as_array().unwrap().len(), &hits[0]["id"]), (1, &json!("mcp:s:say")));
        assert_eq!(telemetry(&found)["searchCount"], 1);
        let described = answer(&call(&mut client, "cm_tool_describe", json!({"id": "mcp:s:say"})));
        assert_eq!(described["parameters"]["properties"], json!({"loud": {"type": "boolean"}}));
        let called = call(&mut client, "cm_tool_call", json!({"id": "mcp:s:say", "args": {"loud": true}}));
        let value = answer(&called);
        assert_eq!(
            (&value["tool"]["id"], &value["result"]["structuredContent"]),
            (&json!("mcp:s:say"), &json!({"said": "hello"}))
        );
        assert_eq!(telemetry(&called)["selectedTools"], json!([{"id": "mcp:s:say", "source": "mcp"}]));
        for (tool, arguments, message) in [
            ("cm_tool_search", json!({}), "`query` is missing"),
            ("cm_tool_describe", json!({"id": "mcp:s:nothing"}), "mcp:s:nothing"),
            ("cm_tool_call", json!({"id": "mcp:s:nothing"}), "mcp:s:nothing"),
        ] {
            let refused = call(&mut client, tool, arguments);
            assert_eq!(refused["isError"], true, "{refused}");
            assert!(answer(&refused)["error"].as_str().unwrap().contains(message), "{refused}");
        }
    }
}

/// Starts a server that cannot start workers: they reserve more address space than it is allowed.
fn without_workers(place: &Place, more: &[&str]) -> std::process::Command {
    let server = place.server(more);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\""]).arg(server.get_program()).args(server.get_args());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

#[test]
fn without_a_sandbox_tool_search_shows_the_tools_without_code_and_code_mode_does_not_start() {
    let place = place();
    settings(&place, json!({"toolSearch": true}));
    let mut server = without_workers(&place, &[]).spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut ask = |id: u32, method: &str, params: Value| -> Value {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    let about = json!({"name": "test", "version": "1"});
    ask(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}));
    let called = ask(2, "tools/call", json!({"name": "tool_call", "arguments": {"id": "mcp:s:say"}}));
    assert_eq!(answer(&called)["result"]["structuredContent"], json!({"said": "hello"}), "{called}");
    let listed = ask(3, "tools/list", json!({}));
    let names: Vec<&Value> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["tool_search", "tool_describe", "tool_call"]);
    assert!(log_text(&place).contains("no runtime is available"), "{}", log_text(&place));
    server.kill().unwrap();
    server.wait().unwrap();
    // Code mode never shows the tools instead.
    for arguments in [&["--surface", "code"][..], &["--surface", "auto"]] {
        let ended = without_workers(&place, arguments).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stdout.is_empty());
    }
}

#[test]
fn tool_call_asks_for_approval_and_a_repeated_call_continues_it() {
    let place = place();
    settings(&place, json!({"toolSearch": {"mode": "tools"}}));
    let mut client = start(&place, Era::November2025, &[]);
    let push = json!({"id": "mcp:s:push", "args": {"to": "main"}});
    let id = client.send("tools/call", json!({"name": "tool_call", "arguments": push}));
    let approval = wait_for_approval(&place);
    client.close();
    drop(client);
    let _lost = id;
    assert_eq!(place.approvals(&["approve", &approval]).status.code(), Some(0));
    assert_eq!(made(&place, "push"), 0);
    let mut client = Streams::start(&place, Era::July2026, json!({"elicitation": {"form": {}}}), &[]);
    let done = answer(&call(&mut client, "tool_call", push.clone()));
    assert_eq!((&done["result"]["structuredContent"], made(&place, "push")), (&json!({"done": "push"}), 1), "{done}");

    let asked = call(&mut client, "tool_call", push.clone());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (id, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let again = json!({
        "name": "tool_call", "arguments": push, "requestState": asked["requestState"],
        "inputResponses": {id: {"action": "decline"}},
    });
    let denied = answer(&client.ask("tools/call", again)["result"]);
    assert_eq!((&denied["ok"], &denied["code"]), (&json!(false), &json!("nested_tool_failed")), "{denied}");
    assert_eq!(made(&place, "push"), 1);
}

#[test]
fn a_long_answer_of_tool_call_is_cut_and_a_direct_result_is_not() {
    let long = "x".repeat(400_000);
    let big = reads("big", json!([{"result": {"content": [{"type": "text", "text": long}]}}]));
    let place = Place::new(json!([big]));
    settings(&place, json!({"toolSearch": {"mode": "tools"}}));
    let mut client = start(&place, Era::November2025, &[]);
    let cut = call(&mut client, "tool_call", json!({"id": "mcp:s:big"}));
    assert!(answer(&cut)["note"].as_str().unwrap().contains("do not repeat the call"), "{}", cut["note"]);
    assert!(cut.to_string().len() < 400_000);
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    assert_eq!(call(&mut client, "s__big", json!({}))["content"][0]["text"].as_str().map(str::len), Some(400_000));
}

#[test]
fn many_direct_tools_are_listed_in_pages_and_too_many_are_refused() {
    let tools =
        |count: usize| Value::from((0..count).map(|at| reads(&format!("t{at:04}"), json!([]))).collect::<Vec<_>>());
    let place = Place::new(tools(600));
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let mut names = std::collections::BTreeSet::new();
    let mut params = json!({});
    let mut pages = 0;
    loop {
        let page = client.ask("tools/list", params)["result"].clone();
        pages += 1;
        for tool in page["tools"].as_array().unwrap() {
            assert!(names.insert(tool["name"].as_str().unwrap().to_owned()));
        }
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    assert_eq!((names.len(), pages), (600, 3));
    let refused = client.ask("tools/list", json!({"cursor": "1.0000000000000000"}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");

    let place = Place::new(tools(1_001));
    let mut client = start(&place, Era::November2025, &["--surface", "direct"]);
    let refused = client.ask("tools/list", json!({}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("--surface code"), "{refused}");
    let mut client = start(&place, Era::November2025, &["--surface", "auto"]);
    assert_eq!(self::names(&mut client), ["exec", "wait"], "a large catalog is not shown directly");
}

/// Lists the tools after each notification, until they are the expected ones. The first notification may be about servers
/// that have started.
fn wait_for_notified(client: &mut Streams, expected: &[&str]) {
    loop {
        client.next("notification of changed tools", |message| message["method"] == CHANGED);
        if names(client) == expected {
            return;
        }
    }
}

#[test]
fn clients_are_notified_when_the_settings_or_the_catalog_change_the_surface() {
    let place = place();
    settings(&place, json!({"codeMode": false}));
    let mut client = start(&place, Era::November2025, &[]);
    assert_eq!(names(&mut client), ["s__push", "s__say"]);
    settings(&place, json!({"codeMode": false, "deny": ["push"]}));
    wait_for_notified(&mut client, &["s__say"]);
    let gone = client.ask("tools/call", json!({"name": "s__push", "arguments": {}}));
    assert_eq!(gone["error"]["code"], -32602, "a denied tool cannot be called: {gone}");
    settings(&place, json!({"codeMode": false, "toolSearch": {"mode": "tools"}}));
    wait_for_notified(&mut client, &["tool_search", "tool_describe", "tool_call"]);
    let gone = client.ask("tools/call", json!({"name": "s__say", "arguments": {}}));
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    let found = answer(&call(&mut client, "tool_search", json!({"query": "push"})));
    assert_eq!(found[0]["id"], "mcp:s:push", "{found}");
}

#[test]
fn a_cell_that_was_started_before_the_surface_changed_can_be_resumed() {
    let place = place();
    let mut client = start(&place, Era::November2025, &[]);
    let waiting = client.exec("await yield_control('phase'); return 7");
    settings(&place, json!({"codeMode": false}));
    let deadline = Instant::now() + PATIENCE;
    while names(&mut client) != ["s__push", "s__say"] {
        assert!(Instant::now() < deadline, "{}", log_text(&place));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(client.call("wait", json!({"runId": waiting["runId"]}))["value"], 7);
    for arguments in [json!({}), json!({"runId": "cm_0"})] {
        let refused = client.ask("tools/call", json!({"name": "wait", "arguments": arguments}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[test]
fn rules_for_providers_and_sandboxes_apply_to_every_surface_and_are_announced() {
    let place = place();
    settings(&place, json!({"byProvider": {"openai": {"deny": ["push"]}}, "sandbox": {"tools": {"deny": ["say"]}}}));
    let listed = |more: &[&str]| {
        let arguments: Vec<&str> = ["--surface", "direct"].iter().chain(more).copied().collect();
        names(&mut start(&place, Era::November2025, &arguments))
    };
    assert_eq!(listed(&[]), ["s__say"], "the rules of all providers apply");
    assert_eq!(listed(&["--provider", "openai/gpt-5"]), ["s__say"]);
    assert_eq!(listed(&["--provider", "anthropic"]), ["s__push", "s__say"]);
    assert_eq!(listed(&["--provider", "anthropic", "--sandboxed"]), ["s__push"]);
    assert_eq!(listed(&["--sandboxed"]), Vec::<String>::new());
    assert!(log_text(&place).contains("--provider NAME[/MODEL]"), "{}", log_text(&place));

    let exec = |more: &[&str]| {
        let arguments: Vec<&str> =
            ["exec", "-e", "return Object.keys(MCP.s)", "--json"].iter().chain(more).copied().collect();
        let done = place.command(&arguments);
        let value: Value = serde_json::from_slice(&done.stdout).unwrap();
        (value["value"].to_string(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (tools, note) = exec(&[]);
    assert!(tools.contains("say") && !tools.contains("push"), "{tools}");
    assert_eq!(note.matches("--provider NAME[/MODEL]").count(), 1, "{note}");
    let (tools, note) = exec(&["--provider", "anthropic", "--sandboxed"]);
    assert!(tools.contains("push") && !tools.contains("say"), "{tools}");
    assert_eq!(note, "");
    let refused = place.by_hand("s.push").arg("--yes").output().unwrap();
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    let allowed = place.by_hand("s.push").args(["--yes", "--provider", "anthropic"]).output().unwrap();
    assert_eq!(allowed.status.code(), Some(0), "{allowed:?}");
}

#[test]
fn tools_list_reports_the_surface_and_what_the_other_way_costs() {
    let place = place();
    let report = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["tools", "list", "--json", "--config", &place.path("config.json")]).args(more);
        command.env("HOME", &place.0).env("XDG_STATE_HOME", place.path("lists"));
        let listed: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        listed["surface"].clone()
    };
    let code = report(&[]);
    assert_eq!((&code["surface"], &code["chosenBy"], &code["tools"]), (&json!("code"), &json!("default"), &json!(2)));
    assert_eq!(code["visibleBytes"], code["codeBytes"]);
    let auto = report(&["--surface", "auto"]);
    assert_eq!((&auto["surface"], &auto["chosenBy"]), (&json!("direct"), &json!("small-catalog")));
    assert_eq!((&auto["visibleBytes"], &auto["codeBytes"]), (&code["directBytes"], &code["codeBytes"]));
    assert_eq!(report(&["--surface", "search"])["surface"], "search-code");
    // What is sent is what is reported.
    let mut client = start(&place, Era::November2025, &["--surface", "auto"]);
    let result = call(&mut client, "s__say", json!({}));
    assert_eq!(telemetry(&result)["surface"], auto);
}

#[test]
fn direct_tools_and_tool_search_work_over_http_for_named_principals() {
    let place = place();
    std::fs::write(place.path("tokens"), "ada 0123456789abcdef\n").unwrap();
    std::process::Command::new("chmod").args(["600", &place.path("tokens")]).status().unwrap();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["tools"] = json!({"codeMode": false});
    config["agents"] = json!({"ada": {"tools": {"toolSearch": {"mode": "tools"}, "deny": ["push"]}}});
    place.configure(&config);
    let served = Served::start(&place, &["--tokens", &place.path("tokens")]);
    for era in [Era::November2025, Era::July2026] {
        let mut local = served.client(era, &served.token, json!({}));
        let result = local.send("tools/call", json!({"name": "s__say", "arguments": {}})).answer()["result"].clone();
        assert_eq!(result["structuredContent"], json!({"said": "hello"}), "{result}");
        let mut ada = served.client(era, "0123456789abcdef", json!({}));
        let tools = ada.send("tools/list", json!({})).answer()["result"]["tools"].clone();
        assert_eq!(tools[0]["name"], "tool_search", "{tools}");
        let denied = ada.send("tools/call", json!({"name": "tool_call", "arguments": {"id": "mcp:s:push"}})).answer();
        assert_eq!(denied["result"]["structuredContent"]["ok"], false, "{denied}");
        assert_eq!(made(&place, "push"), 0);
    }
}
