//! Time limits of Tool Search: it answers within them or reports what it waited for.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::config::CodeMode;
use contract::ids::CallId;
use contract::limits::Limits;
use executor::{CallToken, Outcome, ToolResult, ToolSource};
use serde_json::json;
use store::{ApprovalScope, Decision};
use testkit::ledger::{CLIENT, Ledger};

use super::{Bench, DEPLOY, NEVER, host, source};

fn ledger(folder: &Path) -> Arc<dyn ToolSource> {
    Arc::new(Ledger::open(&folder.join("ledger")).unwrap())
}

#[tokio::test]
async fn a_cell_times_out_and_names_what_it_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"toolSearch": {"codeTimeoutMs": 1000}});
    let bench = Bench::of(host(config, vec![source(), ledger(folder.path())])).await;
    let call = |id: &str| format!("console.log('called'); return await openclaw.tools.call('{id}', {{}})");
    let block = |text: &str| format!("timed out after 1000 ms: {text}");
    let cases = [
        (call(NEVER), block(&format!("`{NEVER}` has not answered"))),
        (call(DEPLOY), block(&format!("a person has not approved `{DEPLOY}`"))),
        (call(CLIENT), block(&format!("the client has not answered `{CLIENT}`"))),
        ("console.log(1); await new Promise((go) => setTimeout(go, 60000))".to_owned(), block("a timer has not fired")),
        ("console.log(1); for (;;) {}".to_owned(), String::new()),
    ];
    for (code, error) in cases {
        let began = Instant::now();
        let answer = bench.code(&code).await;
        let took = began.elapsed();
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("timeout")), "{code}: {answer}");
        assert!(error.is_empty() || answer["error"] == error, "{code}: {answer}");
        assert_eq!(answer["logs"].as_array().map(Vec::len), Some(1), "{code}: {answer}");
        assert!((900..4000).contains(&took.as_millis()), "{code}: {took:?}");
    }
    // The structured tools have the same limit while they wait for a person or a client.
    for (id, who) in [(DEPLOY, "a person has not approved"), (CLIENT, "the client has not answered")] {
        let answer = bench.call(id, json!({})).await;
        let expected = (json!("timeout"), json!(block(&format!("{who} `{id}`"))));
        assert_eq!((answer["code"].clone(), answer["error"].clone()), expected);
    }
    // No approval is pending, no run is active, and the cells cannot be resumed.
    assert_eq!(bench.code_mode.store().pending_approvals().await.unwrap(), []);
    assert_eq!(bench.code_mode.live_runs(), 0);
    let entries = bench.code_mode.store().transcript("session").await.unwrap();
    let run_id = entries.iter().find_map(|entry| entry.entry["runId"].as_str()).unwrap();
    let config = CodeMode::enabled(Limits::DEFAULT);
    let waited = json!(bench.code_mode.wait(&bench.run.executor, &config, "wait-1", &run_id.into()).await);
    assert_eq!(waited["code"], "invalid_input", "{waited}");
}

#[tokio::test]
async fn a_decision_within_the_time_limit_takes_effect() {
    let bench = Bench::new(json!({"codeTimeoutMs": 5000})).await;
    let code = format!("return await openclaw.tools.call('{DEPLOY}', {{}}).catch((error) => error.message)");
    let yes = || Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
    let no = || Decision::Deny { note: "not on a Friday".to_owned() };
    let refused = "a person denied this call: not on a Friday";

    for (decision, expected) in [(yes(), "shipped"), (no(), refused)] {
        let (answer, ()) = tokio::join!(bench.code(&code), bench.decide_when_asked(decision));
        assert_eq!(answer["value"], expected, "{answer}");
    }
    let (answer, ()) = tokio::join!(bench.call(DEPLOY, json!({})), bench.decide_when_asked(yes()));
    assert_eq!(answer["result"], "shipped", "{answer}");
    let (answer, ()) = tokio::join!(bench.call(DEPLOY, json!({})), bench.decide_when_asked(no()));
    assert_eq!((&answer["error"], &answer["code"]), (&json!(refused), &json!("nested_tool_failed")));
}

#[tokio::test]
async fn a_client_answer_within_the_time_limit_is_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::of(host(json!({"toolSearch": true}), vec![ledger(folder.path())])).await;
    let settle = async {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let runs = bench.code_mode.store().runs_of_session("session").await.unwrap();
            let picked = ToolResult::json(json!("picked"));
            for run in runs {
                let token = CallToken { run, call: CallId(1) };
                if bench.code_mode.settle(&token, &Outcome::Returned(picked.clone())).await.is_ok() {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "no call was parked within 5 seconds");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (answer, ()) = tokio::join!(bench.call(CLIENT, json!({})), settle);
    assert_eq!(answer["result"], "picked", "{answer}");
}
