//! `POST /tools/invoke`, and approvals of its calls.

use contract::config::pattern::Pattern;
use mcp::server::ApprovalPolicy;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api_client::{call, get, post};
use crate::world::{ADA, APPROVER, BOB, Options, ROOT, World};

const INVOKE: &str = "/tools/invoke";

fn options() -> Options {
    let numbers = json!({"type": "object", "properties": {"a": {"type": "integer"}, "action": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    Options {
        tools: json!([
            {"id": "openclaw:core:add", "parameters": numbers, "answers": [{"echo": true}]},
            {"id": "openclaw:core:exec"},
            {"id": "mcp:files:shell"},
            {"id": "mcp:one:same"},
            {"id": "mcp:two:same"},
            {"id": "mcp:one:broken", "answers": [{"fails": "no such city"}]},
            {"id": "mcp:one:hidden"},
        ]),
        tools_config: json!({"deny": ["mcp:one:hidden"]}),
        ..Options::default()
    }
}

fn error_type(body: &Value) -> (bool, &str) {
    (body["ok"] == false, body["error"]["type"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_by_its_id_or_its_only_name() {
    let world = World::start(options(), Vec::new()).await;
    for tool in ["add", "openclaw:core:add"] {
        let answer = post(&world, ADA, INVOKE, &json!({"tool": tool, "args": {"a": 1}, "action": "up"})).await;
        assert_eq!((answer.status, &answer.body["ok"]), (200, &json!(true)), "{}", answer.text);
        assert_eq!(answer.body["result"]["details"], json!({"a": 1, "action": "up"}), "{}", answer.text);
    }
    let dry = post(&world, ADA, INVOKE, &json!({"tool": "add", "args": {"a": 1}, "dryRun": true})).await;
    assert_eq!(dry.body["result"], json!({"dryRun": true, "toolId": "openclaw:core:add"}));
    let runs = get(&world, ADA, "/api/v1/runs").await.body;
    assert_eq!(runs["items"].as_array().unwrap().len(), 2);
    assert_eq!(get(&world, BOB, "/api/v1/runs").await.body["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_called_is_refused_in_the_form_of_the_route() {
    let world = World::start(options(), Vec::new()).await;
    for (body, status, kind) in [
        (json!({"tool": "nothing"}), 404, "not_found"),
        (json!({"tool": "exec"}), 404, "not_found"),
        (json!({"tool": "openclaw:core:exec"}), 404, "not_found"),
        (json!({"tool": "mcp:files:shell"}), 404, "not_found"),
        (json!({"tool": "hidden"}), 404, "not_found"),
        (json!({"tool": "same"}), 400, "ambiguous_tool"),
        (json!({"tool": "add"}), 400, "invalid_arguments"),
        (json!({"tool": "add", "args": {"a": "x"}}), 400, "invalid_arguments"),
        (json!({"tool": "broken"}), 400, "tool_error"),
        (json!({"tool": ""}), 400, "invalid_request"),
        (json!({"tool": "add", "args": []}), 400, "invalid_request"),
        (json!({}), 400, "invalid_request"),
        (json!({"tool": "add", "arguments": {"a": 1}}), 400, "invalid_request"),
    ] {
        let answer = post(&world, ADA, INVOKE, &body).await;
        assert_eq!((answer.status, error_type(&answer.body)), (status, (true, kind)), "{body}: {}", answer.text);
    }
    for tool in ["nothing", "hidden", "openclaw:core:exec"] {
        let answer = post(&world, ADA, INVOKE, &json!({"tool": tool})).await;
        let message = format!("no tool `{tool}` can be called here; `GET /api/v1/catalog` lists the ids of tools");
        assert_eq!(answer.body["error"]["message"], message);
    }
    let misspelled = post(&world, ADA, INVOKE, &json!({"tool": "add", "arguments": {"a": 1}})).await;
    assert!(misspelled.body["error"]["message"].as_str().unwrap().contains("arguments"), "{}", misspelled.text);
    assert_eq!(error_type(&post(&world, APPROVER, INVOKE, &json!({"tool": "add"})).await.body).1, "permission_denied");
    let large = json!({"tool": "add", "args": {"a": "x".repeat(2 << 20)}});
    assert_eq!(post(&world, ADA, INVOKE, &large).await.status, 413);
    let below = json!({"tool": "add", "args": {"a": "x".repeat((2 << 20) - 1_000)}});
    assert_eq!(post(&world, ADA, INVOKE, &below).await.status, 400);
    let agent = world.request(INVOKE, &json!({"tool": "add"})).header("x-openclaw-agent-id", "nobody");
    assert_eq!(agent.send().await.unwrap().status().as_u16(), 404);
    assert_eq!(call(&world, ADA, Method::POST, INVOKE, None).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_needs_approval_is_made_once_after_another_token_approves_it() {
    let approvals = ApprovalPolicy::ChangesAnd(vec![Pattern::parse("openclaw:core:add").unwrap()]);
    let world = World::start(Options { approvals, ..options() }, Vec::new()).await;
    let request = json!({"tool": "add", "args": {"a": 7}});
    let asked = post(&world, ADA, INVOKE, &request).await;
    assert_eq!((asked.status, error_type(&asked.body)), (403, (true, "approval_required")), "{}", asked.text);
    let id = asked.body["error"]["approvalId"].as_str().unwrap().to_owned();
    let again = post(&world, ADA, INVOKE, &request).await;
    assert_eq!(again.body["error"]["approvalId"], id.as_str(), "a repeated request asks no second time");

    let path = format!("/api/v1/approvals/{id}");
    for (token, count) in [(ADA, 1), (APPROVER, 1), (ROOT, 1), (BOB, 0)] {
        let listed = get(&world, token, "/api/v1/approvals").await.body;
        assert_eq!(listed["items"].as_array().unwrap().len(), count);
        assert_eq!(get(&world, token, &path).await.status, if count == 1 { 200 } else { 404 });
    }
    let decision = format!("{path}/decision");
    assert_eq!(post(&world, ADA, &decision, &json!({"decision": "approve"})).await.status, 403);
    for bad in [
        json!({}),
        json!({"decision": "yes"}),
        json!({"decision": "approve", "note": "x"}),
        json!({"decision": "deny", "scope": "always"}),
        json!({"decision": "deny", "note": "\u{0}"}),
        json!({"decision": "approve", "more": 1}),
    ] {
        assert_eq!(post(&world, APPROVER, &decision, &bad).await.status, 400, "{bad}");
    }
    let decided = post(&world, APPROVER, &decision, &json!({"decision": "approve"})).await;
    assert_eq!(decided.status, 200, "{}", decided.text);
    assert_eq!((&decided.body["approval"]["decidedBy"], &decided.body["covered"]), (&json!("ada"), &json!([])));
    let twice = post(&world, APPROVER, &decision, &json!({"decision": "deny"})).await;
    assert_eq!((twice.status, &twice.body["error"]["type"]), (400, &json!("not_pending")));
    let made = post(&world, ADA, INVOKE, &request).await;
    assert_eq!((made.status, &made.body["result"]["details"]), (200, &json!({"a": 7})), "{}", made.text);
    let next = post(&world, ADA, INVOKE, &request).await;
    assert_eq!(error_type(&next.body).1, "approval_required", "an approval holds for one call");
}
