//! Runs continue in a new process after SIGKILL, and every call is made once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{Host, effects};

const THREE_PARKED_CALLS: &str = r#"
const [task, asked, picked] = await Promise.all([
  tools.call("openclaw:ledger:task", { n: 1 }),
  tools.call("openclaw:ledger:ask", { n: 2 }),
  tools.call("client:ledger:pick", { n: 3 }),
])
return { task, asked, picked }
"#;

#[derive(Clone, Copy, Debug)]
enum Step {
    Task,
    Ask,
    Pick,
}

fn settle(host: &mut Host, run_id: &str, step: Step) {
    let answer = match step {
        Step::Task => host.ask(&json!({"op": "settle", "runId": run_id, "call": 1, "value": "tasked"})),
        Step::Pick => host.ask(&json!({"op": "settle", "runId": run_id, "call": 3, "value": "picked"})),
        Step::Ask => {
            let pending = host.ask(&json!({"op": "approvals"}));
            assert_eq!(pending.as_array().map(Vec::len), Some(1), "{pending}");
            assert_eq!(pending[0]["input"], json!({"n": 2}));
            host.ask(&json!({"op": "decide", "approvalId": pending[0]["approvalId"]}))
        }
    };
    assert!(answer["settled"] == "Ok(WillDeliver)" || answer["decided"] == true, "{step:?}: {answer}");
}

fn wait_to_end(host: &mut Host, run_id: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let result = host.ask(&json!({"op": "wait", "runId": run_id}));
        if result["status"] != "waiting" || Instant::now() > deadline {
            return result;
        }
    }
}

#[test]
fn parked_calls_survive_a_host_crash_and_settle_in_any_order() {
    let orders = [
        [Step::Task, Step::Ask, Step::Pick],
        [Step::Task, Step::Pick, Step::Ask],
        [Step::Ask, Step::Task, Step::Pick],
        [Step::Ask, Step::Pick, Step::Task],
        [Step::Pick, Step::Task, Step::Ask],
        [Step::Pick, Step::Ask, Step::Task],
    ];
    for (number, order) in orders.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut host = Host::start(folder.path());
        let waiting = host.ask(&json!({"op": "exec", "code": THREE_PARKED_CALLS}));
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        let run_id = waiting["runId"].as_str().unwrap().to_owned();
        host.kill();

        let mut host = Host::start(folder.path());
        for (position, step) in order.into_iter().enumerate() {
            settle(&mut host, &run_id, step);
            // The next process dies as well, each time after a different step.
            if position == number % 3 {
                host.kill();
                host = Host::start(folder.path());
            }
        }
        let result = wait_to_end(&mut host, &run_id);
        assert_eq!(result["status"], "completed", "{order:?}: {result}");
        let expected = json!({"task": "tasked", "asked": {"did": {"n": 2}}, "picked": "picked"});
        assert_eq!(result["value"], expected, "{order:?}");
        assert_eq!(effects(folder.path()), ["ask", "pick", "task"], "{order:?}");
        // A second `wait` returns the same result.
        assert_eq!(host.ask(&json!({"op": "wait", "runId": run_id}))["value"], expected);
    }
}

#[test]
fn after_a_crash_a_non_repeatable_call_is_unknown_and_a_read_only_call_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let code = r#"
        const before = await tools.call("openclaw:ledger:read", { n: 0 })
        const settled = await Promise.allSettled([
          tools.call("openclaw:ledger:slow", { ms: 60000 }),
          tools.call("openclaw:ledger:read", { ms: 300, n: 1 }),
        ])
        const { message, code } = settled[0].reason
        return [before.did.n, message, settled[1].value.did.n, code]
    "#;
    let mut host = Host::start(folder.path());
    let waiting = host.ask(&json!({"op": "exec", "code": code}));
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    let run_id = waiting["runId"].as_str().unwrap().to_owned();
    host.kill();
    let mut host = Host::start(folder.path());
    let result = wait_to_end(&mut host, &run_id);
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!((&result["value"][0], &result["value"][2]), (&json!(0), &json!(1)));
    let message = result["value"][1].as_str().unwrap();
    assert!(message.starts_with("the outcome of this call is unknown"), "{message}");
    assert_eq!(result["value"][3], "unknown_outcome");
    assert_eq!(effects(folder.path()), ["read", "read", "slow"]);
}

#[test]
fn a_leg_interrupted_by_a_crash_is_replayed_with_its_recorded_replies() {
    let folder = tempfile::tempdir().unwrap();
    // The host dies during the turn: there is a journal, but no snapshot.
    let code = r#"
        const first = await tools.call("openclaw:ledger:slow", { n: 1 })
        const when = Date.now(), chance = Math.random()
        await tools.call("openclaw:ledger:slow", { n: 2, when, chance })
        await tools.call("client:ledger:pick", { when, chance })
        return [first.did.n, when === Date.now() || when < Date.now(), chance]
    "#;
    let mut host = Host::start(folder.path());
    host.send(&json!({"op": "exec", "code": code}));
    let deadline = Instant::now() + Duration::from_secs(10);
    while effects(folder.path()).len() < 3 {
        assert!(Instant::now() < deadline, "{:?}", effects(folder.path()));
        std::thread::sleep(Duration::from_millis(2));
    }
    host.kill();
    let ledger = std::fs::read_to_string(folder.path().join("ledger")).unwrap();
    let seen: Value = serde_json::from_str(ledger.lines().nth(2).unwrap().splitn(5, ' ').nth(4).unwrap()).unwrap();

    let mut host = Host::start(folder.path());
    let run_id = host.ask(&json!({"op": "runs"}))[0].as_str().unwrap().to_owned();
    // The dead host's lease must expire first.
    std::thread::sleep(Duration::from_millis(3100));
    let waiting = host.ask(&json!({"op": "wait", "runId": run_id}));
    let telemetry = &waiting["telemetry"];
    assert_eq!((&telemetry["execCount"], &telemetry["callCount"]), (&json!(1), &json!(3)), "{telemetry}");
    assert!(telemetry["catalogSize"].as_u64() > Some(0), "{telemetry}");
    assert_eq!(telemetry["nestedToolIds"], json!(["openclaw:ledger:slow", "client:ledger:pick"]));
    // Either the call to the client was stored as parked, or the crash came before that.
    if waiting["status"] == "waiting" {
        let settled = host.ask(&json!({"op": "settle", "runId": run_id, "call": 3, "value": null}));
        assert_eq!(settled["settled"], "Ok(WillDeliver)", "{waiting}");
        let result = wait_to_end(&mut host, &run_id);
        assert_eq!(result["value"], json!([1, true, seen["chance"]]), "{result}");
    } else {
        assert_eq!(waiting["code"], "nested_tool_failed", "{waiting}");
    }
    assert_eq!(effects(folder.path()), ["pick", "slow", "slow"]);
}
