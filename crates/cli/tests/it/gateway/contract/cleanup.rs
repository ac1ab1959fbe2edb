//! The fifteenth step of the plan: timeout, abort and expiry clean up what a cell has.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::model::{RUN_ID, Reply};

use super::super::running::{Setup, cell, when_last};
use super::super::wires::Wire;
use super::transcripts::{listed, newest_run};
use super::{Provider, configure, request, results, resumes, setup};
use crate::mcp::clients::PATIENCE;

/// Waits until a run has this state.
fn wait_for_state(setup: &Setup, run: &str, state: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = listed(&setup.place).into_iter().find(|one| one["runId"] == run).unwrap();
        if found["state"] == state {
            return found;
        }
        assert!(Instant::now() < deadline, "the run is not {state}: {found}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn timeout_abort_and_expiry_end_the_cells_of_a_turn() {
    let late = "return await tools.late({ file: 'never' })";
    let replies = vec![
        when_last("loop forever", cell("for (;;) {}")),
        when_last("\"code\":\"timeout\"", Reply::text("It was too slow.")),
        when_last("never return", cell(late)),
        when_last("come back later", cell("await yield_control('later'); return 'too late'")),
        when_last("\"reason\":\"yield\"", Reply::text("Later.")),
        when_last("resume it", Reply::call("wait", json!({"runId": RUN_ID}))),
        when_last("snapshot_expired", Reply::text("It has expired.")),
        resumes(),
    ];
    let setup = setup(replies);
    let code_mode = json!({"enabled": true, "timeoutMs": 2_000, "snapshotTtlSeconds": 1});
    configure(&setup, &json!({"codeMode": code_mode}), &json!({"abandonedSeconds": 0}));
    let running = setup.start();
    for (wire, provider) in Wire::ALL.into_iter().zip(Provider::ALL) {
        let ask = |items: &[Value]| running.send(wire, &request(wire, provider.agent(), items, true));
        // Timeout.
        let answer = ask(&wire.user("loop forever"));
        assert_eq!(answer.text, "It was too slow.", "{wire:?} {}", answer.body);
        let timed_out = wait_for_state(&setup, &newest_run(&setup.place), "failed");
        assert_eq!(timed_out["pending"], 0, "{timed_out}");
        // Abort: the client disconnects while the cell waits for a tool.
        let before = setup.model.requests().len();
        let stream = running.begin(wire, &request(wire, provider.agent(), &wire.user("never return"), true));
        let requests = setup.model.wait_for_requests(before + 2, PATIENCE).unwrap();
        assert_eq!(results(&requests[before + 1])[0]["status"], "waiting");
        let run = newest_run(&setup.place);
        drop(stream);
        let aborted = wait_for_state(&setup, &run, "aborted");
        assert_eq!(aborted["pending"], 0, "{aborted}");
        // Expiry: nothing resumes the cell in time.
        let mut items = wire.user("come back later");
        let answer = ask(&items);
        assert_eq!(answer.text, "Later.", "{wire:?} {}", answer.body);
        items.extend(answer.items);
        let run = newest_run(&setup.place);
        wait_for_state(&setup, &run, "expired");
        items.extend(wire.user("resume it"));
        let answer = ask(&items);
        assert_eq!(answer.text, "It has expired.", "{wire:?} {}", answer.body);
        let failed = &results(setup.model.requests().last().unwrap())[0];
        assert_eq!((&failed["status"], &failed["code"]), (&json!("failed"), &json!("snapshot_expired")), "{failed}");
    }
    let over = |run: &Value| ["failed", "aborted", "expired"].contains(&run["state"].as_str().unwrap());
    let runs = listed(&setup.place);
    assert!(runs.len() == 9 && runs.iter().all(over), "{runs:?}");
}
