//! The fifteenth step of the plan: timeout, abort and expiry clean up what a cell has.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::model::{RUN_ID, Reply};

use super::super::running::{Setup, cell, when_last};
use super::super::wires::Wire;
use super::transcripts::{listed, newest_run};
use super::{Provider, configure, request, results, setup};
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

/// Adds an agent whose suspended cells do not expire soon.
fn add_patient_agent(setup: &Setup) {
    let config = setup.place.path("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(config).unwrap()).unwrap();
    let tools = json!({"codeMode": {"enabled": true, "snapshotTtlSeconds": 900}});
    let agent = json!({"id": "patient", "model": config["agents"]["list"][0]["model"], "tools": tools});
    config["agents"]["list"].as_array_mut().unwrap().push(agent);
    setup.place.configure(&config);
}

#[test]
fn timeout_abort_and_expiry_end_the_cells_of_a_turn() {
    let replies = vec![
        when_last("loop forever", cell("for (;;) {}")),
        when_last("\"code\":\"timeout\"", Reply::text("It was too slow.")),
        when_last("come back later", cell("await yield_control('later'); return 'too late'")),
        when_last("\"reason\":\"yield\"", Reply::text("Later.")),
        when_last("resume it", Reply::call("wait", json!({"runId": RUN_ID}))),
        when_last("\"code\":\"aborted\"", Reply::text("It was aborted.")),
        when_last("snapshot_expired", Reply::text("It has expired.")),
    ];
    let setup = setup(replies);
    let code_mode = json!({"enabled": true, "timeoutMs": 2_000, "snapshotTtlSeconds": 1});
    configure(&setup, &json!({"codeMode": code_mode}), &json!({}));
    add_patient_agent(&setup);
    let running = setup.start();
    for (wire, provider) in Wire::ALL.into_iter().zip(Provider::ALL) {
        let ask = |items: &[Value]| running.send(wire, &request(wire, provider.agent(), items, true));
        // Timeout.
        let answer = ask(&wire.user("loop forever"));
        assert_eq!(answer.text, "It was too slow.", "{wire:?} {}", answer.body);
        let timed_out = wait_for_state(&setup, &newest_run(&setup.place), "failed");
        assert_eq!(timed_out["pending"], 0, "{timed_out}");
        // Abort of a suspended cell.
        let mut items = wire.user("come back later");
        let answer = running.send(wire, &request(wire, "patient", &items, true));
        assert_eq!(answer.text, "Later.", "{wire:?} {}", answer.body);
        items.extend(answer.items);
        let run = newest_run(&setup.place);
        let bearer = format!("Bearer {}", running.token());
        let aborted = running.post(&format!("/api/v1/runs/{run}/abort"), &[("Authorization", &bearer)], &json!({}));
        assert_eq!(aborted.status, 200);
        wait_for_state(&setup, &run, "aborted");
        items.extend(wire.user("resume it"));
        let answer = running.send(wire, &request(wire, "patient", &items, true));
        assert_eq!(answer.text, "It was aborted.", "{wire:?} {}", answer.body);
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
    let runs = listed(&setup.place);
    let over = |run: &Value| ["failed", "aborted", "expired"].contains(&run["state"].as_str().unwrap());
    assert!(runs.len() == 9 && runs.iter().all(over), "{runs:?}");
}
