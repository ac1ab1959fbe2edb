//! Results that are larger than other messages may be, over both transports.

use std::sync::Arc;
use std::time::Duration;

use contract::config::{Quotas, Retention};
use contract::ids::{CallId, OutputHandle};
use contract::limits::MAX_RUN_STORED_RESULT_BYTES;
use contract::scope::Scope;
use executor::{CallEnd, CallRequest, DropCause, Journal, Outcome, ProgressSink, StateSink};
use mcp::Limits;
use serde_json::{Value, json};
use store::{CallRow, FencedRun, NewRun, OutputPosition, Store};

use crate::fake::{Connected, limits, tool};

/// What the texts of these tests repeat: 16 characters, as JSON and decoded.
const PART: &str = r"0123\u00e4\ud83e\udd80\n\t\u0000";
const DECODED: &str = "0123ä🦀\n\t\0";

/// The steps that respond with a text of so many bytes.
pub(crate) fn large_text(bytes: usize) -> Value {
    answer(r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":""#, "x", bytes, r#""}]}}"#)
}

fn answer(before: &str, part: &str, times: usize, after: &str) -> Value {
    json!([{"repeated": [before, part, times, after]}])
}

fn escaped_text(times: usize) -> Value {
    answer(r#"{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":""#, PART, times, r#""}]},"id":$ID}"#)
}

/// Connects to the scripted server over pipes, and over HTTP with a stream and with a body.
async fn transports(tools: &[Value]) -> [Connected; 3] {
    let limits = || Limits { call: Duration::from_secs(120), ..limits() };
    [
        Connected::with(json!({"tools": tools}), limits()).await,
        Connected::at_address(json!({"tools": tools}), limits()).await,
        Connected::at_address(json!({"tools": tools, "http": {"json": true}}), limits()).await,
    ]
}

/// Reads a stored text, piece by piece, and checks that it repeats a part.
async fn check_stored(server: &Connected, handle: &Value, part: &str, times: usize) {
    let handle = OutputHandle::new(handle.as_str().unwrap());
    let row = server.store().await.output(&handle).await.unwrap().unwrap();
    assert_eq!(row.bytes, (part.len() * times) as u64);
    let expected = part.repeat(1 + (1 << 20) / part.len());
    let mut at = 0;
    while let Some(piece) = server.store().await.output_piece(&handle, OutputPosition::Byte(at)).await.unwrap() {
        let start = usize::try_from(at).unwrap() % part.len();
        assert!(piece.data == expected.as_bytes()[start..start + piece.data.len()], "piece {}", piece.number);
        at += piece.data.len() as u64;
    }
    assert_eq!(at, row.bytes);
}

#[tokio::test]
async fn a_text_of_64_mib_reaches_the_cell_as_a_handle() {
    let bytes = 64 << 20;
    for server in transports(&[tool("large", large_text(bytes)), tool("small", json!([{"echo": true}]))]).await {
        let returned = server.returned("large", json!({})).await;
        let block = returned.content[0].clone();
        assert_eq!(block["first"], "x".repeat(500));
        assert_eq!((&block["type"], &block["bytes"], block.get("text")), (&json!("text"), &json!(bytes), None));
        assert_eq!(returned.to_cell_value(), json!({"content": [block]}));
        assert!(returned.large.is_empty());
        check_stored(&server, &block["handle"], "x", bytes).await;
        // The connection is still open.
        server.returned("small", json!({})).await;
    }
}

#[tokio::test]
async fn a_text_is_decoded_and_a_result_before_its_id_is_recognized() {
    let times = 1_200_000;
    for server in transports(&[tool("large", escaped_text(times))]).await {
        let returned = server.returned("large", json!({})).await;
        let block = &returned.content[0];
        assert!(block["first"].as_str().unwrap().starts_with(DECODED));
        check_stored(&server, &block["handle"], DECODED, times).await;
    }
}

#[tokio::test]
async fn a_text_that_fits_the_bridge_reaches_the_cell_whole() {
    let bytes = 15 << 20;
    for server in transports(&[tool("large", large_text(bytes))]).await {
        let returned = server.returned("large", json!({})).await;
        let expected = json!({"content": [{"type": "text", "text": "x".repeat(bytes)}]});
        assert!(returned.to_cell_value() == expected);
        assert!(
            server
                .store()
                .await
                .outputs_of_session(&(&contract::scope::Scope::default()).into(), 10)
                .await
                .unwrap()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn texts_outside_of_blocks_are_stored_too() {
    let before = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"short"}],"structuredContent":{"a":[1,""#;
    let server = Connected::with(
        json!({"tools": [tool("large", answer(before, "0123456789abcdef", 2 << 20, r#""]}}}"#))]}),
        limits(),
    )
    .await;
    let returned = server.returned("large", json!({})).await;
    let result = returned.to_cell_value();
    assert_eq!(result["content"], json!([{"type": "text", "text": "short"}]));
    let preview = &result["structuredContent"]["a"][1];
    assert_eq!((&preview["of"], &preview["bytes"]), (&json!("text"), &json!(32 << 20)));
    check_stored(&server, &preview["handle"], "0123456789abcdef", 2 << 20).await;
}

#[tokio::test]
async fn what_is_too_large_fails_its_call_and_not_the_connection() {
    let error = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":7,"message":""#;
    let question = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","requestState":""#;
    let invalid = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"\x"#;
    let rows = |before: &str, after: &str| answer(before, r#""0123456789abcde","#, 1 << 20, after);
    let id_first = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"rows":["#;
    let id_last = r#"{"result":{"content":[],"structuredContent":{"rows":["#;
    let tools = [
        tool("rows", rows(id_first, r#""last"]}}}"#)),
        tool("rows_before_their_id", rows(id_last, r#""last"]}},"jsonrpc":"2.0","id":$ID}"#)),
        tool("over", large_text((64 << 20) + 1)),
        tool("error", answer(error, "x", 9 << 20, r#""}}"#)),
        tool("question", answer(question, "x", 9 << 20, r#""}}"#)),
        tool("invalid", answer(invalid, "x", 9 << 20, r#""}]}}"#)),
        tool("small", json!([{"echo": true}])),
    ];
    let expected = [
        ("rows", "its response is longer than 8388608 bytes"),
        ("rows_before_their_id", "its response is longer than 8388608 bytes"),
        ("over", "more than 67108864 bytes"),
        ("error", "its error is longer than 8388608 bytes"),
        ("question", "its request for input is too large"),
        ("invalid", "not valid JSON"),
    ];
    for server in transports(&tools).await {
        for (name, why) in expected {
            let failed = server.failed(name).await;
            assert!(failed.contains(why), "{name}: {failed}");
        }
        server.returned("small", json!({})).await;
    }
}

#[tokio::test]
async fn large_messages_that_no_call_waits_for_are_dropped_and_a_large_list_fails_its_call() {
    let stray = r#"{"jsonrpc":"2.0","id":999999,"result":{"content":[{"type":"text","text":""#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"message":""#;
    let mut does = Vec::new();
    for (before, after) in [(stray, r#""}]}}"#), (note, r#""}}"#)] {
        does.extend(answer(before, "x", 9 << 20, after).as_array().unwrap().clone());
    }
    does.push(json!({"result": {"content": []}}));
    let listed = answer(r#"{"jsonrpc":"2.0","id":$ID,"result":{"resources":[],"x":""#, "x", 9 << 20, r#""}}"#);
    let script =
        json!({"tools": [tool("strays", json!(does))], "resources": [], "on": {"prompts/list": listed}, "prompts": []});
    let server = Connected::with(script, limits()).await;
    server.returned("strays", json!({})).await;
    let Outcome::Dropped(dropped) = server.call("prompts_list", json!({})).await else { panic!() };
    let expected = "its response is longer than 8388608 bytes; ask it for less at once, such as a page, a filter or fewer \
                    fields; the call may have taken effect";
    assert!(dropped.cause == DropCause::TooLarge && dropped.message.ends_with(expected), "{}", dropped.message);
    server.returned("strays", json!({})).await;
}

/// Starts a run in a store.
fn journal(store: &Store, run: &str) -> Journal {
    let run = NewRun {
        run_id: run.into(),
        scope: Scope::default(),
        tool_call_id: "test".to_owned(),
        holder: String::new(),
        lease_until: 0,
        expires_at: i64::MAX,
        catalog: String::new(),
        tables: Arc::from([]),
        definition: "{}".to_owned(),
    };
    Journal::new(store.clone(), FencedRun::new(run))
}

async fn call_in_run(server: &Connected, journal: &Journal, call: u32) -> Outcome {
    let (call, id) = (CallId(call), "mcp:s:large".to_owned());
    journal.opened(CallRow::requested(call, "call", &id, "{}".to_owned(), "test", 0)).unwrap();
    let (updates, states) = (ProgressSink::default(), StateSink::default());
    let request = CallRequest { call, id, input: json!({}), parent: "test".to_owned(), updates, states };
    match server.executor().call(journal, &request).await {
        CallEnd::Settled(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_results_that_one_run_stores_are_limited_also_after_it_was_resumed() {
    let bytes = 17 << 20;
    let server = Connected::with(json!({"tools": [tool("large", large_text(bytes))]}), limits()).await;
    let store = server.store().await;
    let run = journal(store, "cm_1");
    let Outcome::Returned(returned) = call_in_run(&server, &run, 1).await else { panic!() };
    assert_eq!(returned.content[0]["handle"], "out_cm_1_c1n0");
    let row = store.output(&OutputHandle::new("out_cm_1_c1n0")).await.unwrap().unwrap();
    assert_eq!(row.source, Some((CallId(1), "mcp:s:large".to_owned())));
    let (bytes, limit) = (bytes as u64, MAX_RUN_STORED_RESULT_BYTES as u64);
    let resumed = journal(store, "cm_1");
    assert!(!resumed.reserve_stored_result(limit - bytes + 1, limit).await.unwrap());
    assert!(resumed.reserve_stored_result(limit - bytes, limit).await.unwrap());
    // All but a part of one result is taken.
    assert!(run.reserve_stored_result(limit - 2 * bytes + 1, limit).await.unwrap());
    let Outcome::Dropped(dropped) = call_in_run(&server, &run, 2).await else { panic!() };
    let expected = "the tool was called, but its result was dropped: `mcp:s:large` returned 17825792 bytes: one run may \
                    store 268435456 bytes of results; ask the tool for less at once";
    assert!(dropped.cause == DropCause::TooLarge && dropped.message.starts_with(expected), "{}", dropped.message);
    assert_eq!(store.output(&OutputHandle::new("out_cm_1_c2n0")).await.unwrap(), None);
    run.release_stored_result(1).await;
    assert!(matches!(call_in_run(&server, &run, 3).await, Outcome::Returned(_)));
}

#[tokio::test]
async fn a_result_that_exceeds_the_quota_fails_its_call_and_not_its_run() {
    let server = Connected::with(json!({"tools": [tool("large", large_text(17 << 20))]}), limits()).await;
    let quotas = Quotas { stored_bytes: 20 << 20, ..Quotas::DEFAULT };
    let store = server.store().await.clone().bounded(Retention::DEFAULT, quotas);
    let run = journal(&store, "cm_1");
    assert!(matches!(call_in_run(&server, &run, 1).await, Outcome::Returned(_)));
    let Outcome::Dropped(dropped) = call_in_run(&server, &run, 2).await else { panic!() };
    assert!(dropped.message.contains("returned 17825792 bytes: "), "{}", dropped.message);
    assert!(dropped.cause == DropCause::TooLarge && dropped.message.contains("maxStoredBytes"), "{}", dropped.message);
    run.flush().await.unwrap();
    assert_eq!(store.outputs_of_run(&"cm_1".into()).await.unwrap().len(), 1);
    assert!(run.reserve_stored_result(1, (17 << 20) + 1).await.unwrap(), "what was dropped does not count");
}
