//! Compares Tool Search with direct tools: the same calls with a much smaller request.

use catalog::VisibleTool;
use executor::run::{Host, PreparedRun};
use executor::{CallEnd, Outcome, ProgressSink};
use serde_json::json;

use super::{Bench, SECRET, TICKET, host, run, source};

const FIND_AND_CALL: &str = r#"
const hits = await openclaw.tools.search("open a ticket")
const tool = await openclaw.tools.describe(hits[0].id)
return { required: tool.parameters.required, made: await openclaw.tools.call(tool.id, { title: "Crash" }) }
"#;

/// The contract's regression test, point by point.
#[tokio::test]
async fn tool_search_calls_the_same_tool_as_direct_mode_with_a_smaller_request() {
    let direct = run(&host(json!({"deny": [SECRET]}), vec![source()]), "direct");
    let bench = Bench::new(json!(true)).await;

    // 1. Direct mode can call the tool.
    let tool = direct.surface.direct_tool("create_ticket").unwrap();
    assert_eq!(tool.id.as_str(), TICKET);
    let store = bench.code_mode.store();
    let input = json!({"title": "Crash"});
    let made = direct.executor.call_directly(store, "call-0", TICKET, input, ProgressSink::default()).await.unwrap();
    let CallEnd::Settled(Outcome::Returned(directly)) = made.end else { panic!("{made:?}") };
    // 2. Tool Search can call the same tool.
    let answer = bench.code(FIND_AND_CALL).await;
    let value = json!({"required": ["title"], "made": directly.to_cell_value()});
    assert_eq!((&answer["ok"], &answer["value"]), (&json!(true), &value), "{answer}");

    // 3. Direct mode shows every schema. 4. Tool Search shows the bridge alone.
    assert_eq!(direct.visible.len(), 225);
    let shown = direct.visible.iter().find(|tool| tool.name == "create_ticket").unwrap();
    assert_eq!(shown.parameters["required"], json!(["title"]));
    let names: Vec<&str> = bench.run.visible.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search_code"]);
    // 5. The Tool Search request is much smaller, and telemetry reports both sizes.
    let bytes = |run: &PreparedRun| run.visible.iter().map(VisibleTool::bytes).sum::<usize>();
    assert!(bytes(&bench.run) * 40 < bytes(&direct), "{} and {}", bytes(&bench.run), bytes(&direct));
    let mut telemetry = answer["telemetry"].clone();
    assert!(telemetry.as_object_mut().unwrap().remove("durationMs").unwrap().is_object());
    let expected = json!({
        "mode": "code",
        "visibleTools": ["tool_search_code"],
        "visibleBytes": bytes(&bench.run),
        "directBytes": bytes(&direct),
        "catalogSize": 225,
        "sources": {"openclaw": 1, "plugin": 223, "mcp": 1, "client": 0},
        "searchCount": 1,
        "describeCount": 1,
        "callCount": 1,
        "selectedTools": [{"id": TICKET, "source": "plugin"}],
    });
    assert_eq!(telemetry, expected);

    // 6. Both transcripts have the call; Tool Search's is under the control call.
    let call = [format!("tool_call {TICKET}"), format!("tool_result {TICKET}")];
    assert_eq!(bench.transcript("direct").await, call);
    let control = ["control_call tool_search_code".to_owned(), call[0].clone(), call[1].clone()];
    let transcript = bench.transcript("session").await;
    assert_eq!((&transcript[..3], transcript.len()), (&control[..], 4));
    let entries = store.transcript("session").await.unwrap();
    assert_eq!(entries[1].entry["parentToolCallId"], "call-1");
    assert_eq!(entries[3].entry["result"], answer, "the transcript has the returned result");
}

#[tokio::test]
async fn the_structured_tools_search_describe_and_call_step_by_step() {
    let bench = Bench::new(json!({"mode": "tools"})).await;
    let names: Vec<&str> = bench.run.visible.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search", "tool_describe", "tool_call"]);

    let found = bench.search(json!({"query": "open a ticket", "limit": 1})).await;
    let compact = json!({
        "id": TICKET, "name": "create_ticket", "description": "Opens a ticket.", "source": "plugin", "sourceName": "fake",
    });
    let mut hit = compact.clone();
    hit["signature"] = json!("{ title: string }");
    assert_eq!(found, json!([hit]));
    let described = bench.describe(TICKET).await;
    let parameters = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    let mut expected = compact.clone();
    expected["parameters"] = parameters;
    assert_eq!(described, expected);
    let called = bench.call(TICKET, json!({"title": "Crash"})).await;
    assert_eq!(called, json!({"tool": compact, "result": {"title": "Crash"}}));

    let tool = |name: &str| [format!("control_call {name}"), format!("control_result {name}")];
    let ([search, found], [describe, described], [call, called]) =
        (tool("tool_search"), tool("tool_describe"), tool("tool_call"));
    let (made, gave) = (format!("tool_call {TICKET}"), format!("tool_result {TICKET}"));
    assert_eq!(bench.transcript("session").await, [search, found, describe, described, call, made, gave, called]);
    let entries = bench.code_mode.store().transcript("session").await.unwrap();
    let telemetry = &entries[7].entry["telemetry"];
    assert_eq!(telemetry["selectedTools"], json!([{"id": TICKET, "source": "plugin"}]));
    assert_eq!((&telemetry["mode"], &telemetry["callCount"]), (&json!("tools"), &json!(1)));
}

#[tokio::test]
async fn without_a_runtime_tool_search_offers_structured_tools_with_a_note() {
    let without = Host { runtime_available: false, ..host(json!({"toolSearch": true}), vec![source()]) };
    let bench = Bench::of(without).await;
    let names: Vec<&str> = bench.run.visible.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool_search", "tool_describe", "tool_call"]);
    let note = bench.run.surface.note().unwrap();
    assert!(note.starts_with("tools.toolSearch.mode is `code`, but no runtime is available"), "{note}");
    assert_eq!(bench.run.executor.catalog().len(), 226);
    assert_eq!(bench.call(TICKET, json!({"title": "x"})).await["result"], json!({"title": "x"}));

    let with = host(json!({"toolSearch": true}), vec![source()]);
    assert_eq!(run(&with, "s").surface.note(), None);
}
