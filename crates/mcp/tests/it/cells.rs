//! A cell that calls a server, with the real code between them.

use std::sync::{Arc, Mutex};

use codemode::ExecInput;
use contract::config;
use contract::limits::Limits;
use executor::ToolUpdate;
use serde_json::{Value, json};
use testkit::runner;

use crate::fake::{Connected, limits, tool};
use crate::large_results::large_text;

async fn run(script: Value, cell: &str) -> Value {
    let server = Connected::with(script, limits()).await;
    let code_mode = runner::in_process().await.unwrap();
    let config = config::CodeMode::enabled(Limits::DEFAULT);
    json!(code_mode.exec(server.executor(), &config, "exec", ExecInput::javascript(cell)).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_calls_tools_reads_resources_and_gets_prompts() {
    let script = json!({
        "tools": [{
            "name": "create_issue",
            "description": "Create an issue.",
            "inputSchema": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "state": {"type": "string", "default": "open"}},
                "required": ["title"],
            },
            "outputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
            "does": [{"echo": true}],
        }],
        "resources": [{"uri": "note://1", "name": "one", "text": "hello"}],
        "prompts": [{"name": "greet", "text": "Hello!"}],
    });
    let cell = r#"
        const created = await MCP.s.createIssue({ title: "Crash" })
        const resource = await MCP.s.resources.read({ uri: "note://1" })
        const prompt = await MCP.s.prompts.get({ name: "greet" })
        const wrong = await MCP.s.createIssue({ titel: "Crash" }).catch((error) => error.message)
        const declared = await API.read("mcp/s.d.ts")
        return {
          sent: created.structuredContent.arguments,
          text: resource.contents[0].text,
          said: prompt.messages[0].content.text,
          wrong,
          declared: declared.includes("function createIssue(") && declared.includes("number?: number"),
          hidden: [ALL_TOOLS.length, (await tools.search("issue")).length, Object.keys(tools).length],
          byId: await tools.call("mcp:s:create_issue", {}).catch((error) => error.message),
          api: (await MCP.s.$api("createIssue", { schema: true })).schemas.createIssue.required,
        }
    "#;
    let result = run(script, cell).await;
    assert_eq!(result["status"], "completed", "{result}");
    let value = &result["value"];
    assert_eq!(value["sent"], json!({"title": "Crash", "state": "open"}), "defaults are filled in");
    assert_eq!((&value["text"], &value["said"]), (&json!("hello"), &json!("Hello!")));
    assert!(value["wrong"].as_str().unwrap().contains("did you misspell it as \"titel\"?"), "{}", value["wrong"]);
    assert_eq!((&value["declared"], &value["hidden"]), (&json!(true), &json!([0, 0, 3])));
    assert_eq!(value["byId"], "`mcp:s:create_issue` is an MCP tool; call it as `MCP.s.createIssue({ … })`");
    assert_eq!(value["api"], json!(["title"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_too_large_rejects_with_a_code_and_the_server_answers_the_next_call() {
    let rows = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"rows":["#;
    let large = json!([{"repeated": [rows, r#""0123456789abcde","#, 1 << 20, r#""last"]}}}"#]}]);
    let script = json!({"tools": [tool("large", large), tool("small", json!([{"echo": true}]))]});
    let cell = r#"
        const large = await MCP.s.large({}).catch((error) => [error.code, error.message])
        const small = await MCP.s.small({ n: 1 })
        return [...large, small.structuredContent.arguments]
    "#;
    let result = run(script, cell).await;
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!((&result["value"][0], &result["value"][2]), (&json!("value_too_large"), &json!({"n": 1})), "{result}");
    let message = result["value"][1].as_str().unwrap();
    assert!(message.contains("longer than 8388608 bytes") && message.contains("ask it for less at once"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tools_error_is_a_value_and_a_crashed_server_is_an_error() {
    let error = json!({"content": [{"type": "text", "text": "no such city"}], "isError": true});
    let script = json!({"tools": [tool("fails", json!([{"result": error}])), tool("dies", json!([{"exit": 1}]))]});
    let cell = r#"
        const failed = await MCP.s.fails({})
        const dead = await MCP.s.dies({}).catch((error) => error.message)
        const later = await MCP.s.fails({}).catch((error) => error.message)
        return [failed.isError, failed.content[0].text, dead, later]
    "#;
    let result = run(script, cell).await;
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!((&result["value"][0], &result["value"][1]), (&json!(true), &json!("no such city")));
    let message = |at: usize| result["value"][at].as_str().unwrap();
    assert!(message(2).starts_with("the outcome of this call is unknown"), "{}", message(2));
    assert!(message(3).contains("MCP server `s`"), "{}", message(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_a_tool_is_reported_with_its_call() {
    let steps = json!([{"progress": {"progress": 1, "total": 2}}, {"result": {"content": []}}]);
    let server = Connected::with(json!({"tools": [tool("slow", steps)]}), limits()).await;
    let heard: Arc<Mutex<Vec<ToolUpdate>>> = Arc::default();
    let hearing = Arc::clone(&heard);
    let executor = server.executor().clone().with_progress_sink(move |update| hearing.lock().unwrap().push(update));
    let code_mode = runner::in_process().await.unwrap();
    let config = config::CodeMode::enabled(Limits::DEFAULT);
    let cell = ExecInput::javascript("await MCP.s.slow({}); return 1");
    let result = json!(code_mode.exec(&executor, &config, "exec", cell).await);
    assert_eq!(result["status"], "completed", "{result}");
    let heard = heard.lock().unwrap();
    let said: Vec<_> = heard.iter().map(|one| (one.tool_id.as_str(), one.tool_call_id.as_str())).collect();
    assert_eq!(said, [("mcp:s:slow", "exec:1")]);
    assert_eq!(heard[0].update["progress"], json!(1), "{:?}", heard[0].update);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_gets_large_texts_whole_up_to_the_limit_of_the_bridge_and_else_handles() {
    let script = json!({"tools": [tool("medium", large_text(12 << 20)), tool("large", large_text(20 << 20))]});
    let cell = r#"
        const medium = await MCP.s.medium({})
        const large = await MCP.s.large({})
        return { medium: medium.content[0].text.length, large: large.content[0] }
    "#;
    let result = run(script, cell).await;
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["value"]["medium"], 12 << 20);
    let large = &result["value"]["large"];
    assert_eq!((&large["bytes"], large.get("text")), (&json!(20 << 20), None));
    assert!(large["handle"].as_str().unwrap().ends_with("_c2n0"), "{large}");
}
