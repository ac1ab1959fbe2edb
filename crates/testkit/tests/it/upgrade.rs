//! A waiting run whose host is replaced by one with another guest image is replayed from its journal. If it diverges,
//! it fails and names the place.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::{Host, effects};

/// Starts a host with another guest image: a real one if `make test-faults` built it, else one that only reports
/// another image id.
fn upgraded(folder: &Path) -> Host {
    let (store, ledger) = (folder.join("store.db").display().to_string(), folder.join("ledger"));
    match std::env::var_os("CELLMATE_OTHER_HOST").map(PathBuf::from) {
        Some(program) => Host::of_program(&program, &store, &ledger, &["attached=yes".to_owned(), lease()], &[]),
        None => Host::start_with(&store, &ledger, &["image=other".to_owned(), lease()], &[]),
    }
}

/// Shorter than a `wait`, so that one `wait` suffices to take over the run of a dead host.
fn lease() -> String {
    "lease=500".to_owned()
}

/// Starts a host with the original guest image.
fn original(folder: &Path) -> Host {
    let (store, ledger) = (folder.join("store.db").display().to_string(), folder.join("ledger"));
    let options = ["attached=yes".to_owned(), "exec=10000".to_owned(), lease()];
    Host::start_with(&store, &ledger, &options, &[])
}

/// Runs a cell until it waits, and kills its host.
fn suspend_and_kill(folder: &Path, code: &str) -> (String, Value) {
    let mut host = original(folder);
    let waiting = host.ask(&json!({"op": "exec", "code": code}));
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    host.kill();
    (waiting["runId"].as_str().unwrap().to_owned(), waiting)
}

/// Waits until the cell produces output or ends, and returns the result and the output.
fn wait_for_output(host: &mut Host, run_id: &str) -> (Value, Vec<Value>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut shown = Vec::new();
    loop {
        let result = host.ask(&json!({"op": "wait", "runId": run_id}));
        shown.extend(result["output"].as_array().unwrap().clone());
        if result["status"] != "waiting" || !shown.is_empty() || Instant::now() > deadline {
            return (result, shown);
        }
    }
}

/// Returns the transcript notes about replays.
fn replay_notes(host: &mut Host) -> Vec<Value> {
    let transcript = host.ask(&json!({"op": "transcript"}));
    let notes = transcript.as_array().unwrap().iter().filter(|entry| entry["kind"] == "note");
    notes.filter(|entry| entry["note"] == "replayed").cloned().collect()
}

#[test]
fn a_waiting_run_is_replayed_in_the_new_image_and_continues() {
    // Turns of every kind: a yield, a timer that fires and one that does not, calls out of order, randomness, time.
    let code = r#"
        text("before");
        const chance = Math.random(), when = Date.now();
        const never = setTimeout(() => text("never"), 3600000);
        const pick = tools.call("client:ledger:pick", { chance, when });
        const done = await Promise.all([
          tools.call("openclaw:ledger:slow", { n: 1, ms: 30 }),
          tools.call("openclaw:ledger:read", { n: 2 }),
        ]);
        await new Promise((resolve) => setTimeout(resolve, 20));
        clearTimeout(never);
        text("yields");
        await yield_control();
        text("asks");
        const asked = tools.call("openclaw:ledger:ask", { n: 3 });
        const picked = await pick;
        text("picked");
        return { done, asked: await asked, picked, chance, when };
    "#;
    let folder = tempfile::tempdir().unwrap();
    let (run_id, first) = suspend_and_kill(folder.path(), code);
    assert_eq!(first["output"].as_array().map(Vec::len), Some(2), "{first}");
    assert_eq!(effects(folder.path()), ["pick", "read", "slow"]);

    // The upgrade happens while the cell yields, the downgrade while it waits for an approval and a client.
    let mut host = upgraded(folder.path());
    let (second, output) = wait_for_output(&mut host, &run_id);
    assert_eq!(second["status"], "waiting", "{second}");
    assert_eq!(output, [json!({"type": "text", "text": "asks"})], "output that was returned before is not repeated");
    assert_eq!(second["pendingToolCalls"].as_array().map(Vec::len), Some(2), "{second}");
    assert_eq!(replay_notes(&mut host).len(), 1);
    assert!(replay_notes(&mut host)[0]["legs"].as_u64() >= Some(3));
    host.kill();

    // The new snapshot belongs to this image: nothing is replayed.
    let mut host = upgraded(folder.path());
    let third = host.ask(&json!({"op": "wait", "runId": run_id}));
    assert_eq!((&third["status"], &third["output"]), (&json!("waiting"), &json!([])), "{third}");
    assert_eq!(replay_notes(&mut host).len(), 1);
    host.kill();

    let mut host = original(folder.path());
    let settled = host.ask(&json!({"op": "settle", "runId": run_id, "call": 2, "value": "picked"}));
    assert_eq!(settled["settled"], "Ok(WillDeliver)");
    let pending = host.ask(&json!({"op": "approvals"}));
    host.ask(&json!({"op": "decide", "approvalId": pending[0]["approvalId"]}));
    let (mut last, mut output) = wait_for_output(&mut host, &run_id);
    if last["status"] == "waiting" {
        let more;
        (last, more) = wait_for_output(&mut host, &run_id);
        output.extend(more);
    }
    assert_eq!(last["status"], "completed", "{last}");
    assert_eq!(output, [json!({"type": "text", "text": "picked"})]);
    let value = &last["value"];
    assert_eq!(value["done"], json!([{"did": {"n": 1, "ms": 30}}, {"did": {"n": 2}}]));
    assert_eq!((&value["asked"], &value["picked"]), (&json!({"did": {"n": 3}}), &json!("picked")));
    assert_eq!(replay_notes(&mut host).len(), 2, "the downgrade replays, too");

    // The cell still has the values that it passed to the tool: randomness and time were the same in both images.
    let ledger = std::fs::read_to_string(folder.path().join("ledger")).unwrap();
    let pick = ledger.lines().find(|line| line.starts_with("pick")).unwrap();
    let seen: Value = serde_json::from_str(pick.splitn(5, ' ').nth(4).unwrap()).unwrap();
    assert_eq!((&value["chance"], &value["when"]), (&seen["chance"], &seen["when"]));
    assert_eq!(effects(folder.path()), ["ask", "pick", "read", "slow"], "every call is made once");
}

#[test]
fn a_run_that_diverges_in_the_new_image_fails_and_names_the_leg() {
    let edition = "const edition = globalThis.edition ?? 1;";
    let cases = [
        (
            r#"await tools.call("openclaw:ledger:read", { n: 0 }); return await tools.call("client:ledger:pick", { edition })"#,
            r#"leg 1, call 2: expected `call` of `client:ledger:pick` with {"edition":1}, got `call` of `client:ledger:pick` with {"edition":2}"#,
        ),
        (
            r#"return await tools.call(edition === 1 ? "client:ledger:pick" : "openclaw:ledger:slow", {})"#,
            "leg 0, call 1: expected `call` of `client:ledger:pick` with {}, got `call` of `openclaw:ledger:slow` with {}",
        ),
        (
            r#"if (edition === 2) return "done"; return await tools.call("client:ledger:pick", {})"#,
            "leg 0, call 1: expected `call` of `client:ledger:pick` with {}, got a return of \"done\"",
        ),
        (
            r#"if (edition === 2) throw new TypeError("odd"); return await tools.call("client:ledger:pick", {})"#,
            "leg 0, call 1: expected `call` of `client:ledger:pick` with {}, got a failure: TypeError: odd",
        ),
        (
            r#"if (edition === 2) tools.call("openclaw:ledger:slow", { n: 1 }); await yield_control(); await yield_control()"#,
            "leg 0, call 1: expected `yield` with null, got `call` of `openclaw:ledger:slow` with {\"n\":1}",
        ),
        (
            r#"const pick = tools.call("client:ledger:pick", {}); if (edition === 2) tools.call("openclaw:ledger:slow", {}); await pick"#,
            "leg 0, call 2: expected a wait without this call, got `call` of `openclaw:ledger:slow` with {}",
        ),
        (
            r#"text(`edition ${edition}`); return await tools.call("client:ledger:pick", {})"#,
            r#"got an output of 1 items: [{"type":"text","text":"edition 2"}]"#,
        ),
    ];
    for (cell, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (run_id, _) = suspend_and_kill(folder.path(), &format!("{edition} {cell}"));
        let effects_before = effects(folder.path());
        let mut host = upgraded(folder.path());
        let failed = host.ask(&json!({"op": "wait", "runId": run_id}));
        assert_eq!(
            (&failed["status"], &failed["code"]),
            (&json!("failed"), &json!("snapshot_restore_failed")),
            "{failed}"
        );
        let error = failed["error"].as_str().unwrap();
        assert!(error.starts_with("the cell was run again and did not match its record: leg "), "{error}");
        assert!(error.ends_with(expected), "{cell}\n     got: {error}\nexpected: {expected}");
        assert_eq!(effects(folder.path()), effects_before, "no tool is called");
        assert_eq!(host.ask(&json!({"op": "run", "runId": run_id}))["state"], "failed");
        assert_eq!(host.ask(&json!({"op": "wait", "runId": run_id}))["error"], error, "the run stays failed");
    }
}

#[test]
fn replay_time_does_not_count_against_the_cell() {
    // A turn may take 2,000 ms; the cell works for a tenth of that in each of eleven turns.
    let options = ["attached=yes", "exec=2000", "wait=2000"].map(str::to_owned);
    let folder = tempfile::tempdir().unwrap();
    let (store, ledger) = (folder.path().join("store.db").display().to_string(), folder.path().join("ledger"));
    let mut host = Host::start_with(&store, &ledger, &options, &[]);
    let guest = |result: &Value| result["telemetry"]["durationMs"]["guest"].as_u64().unwrap();
    // Measures how fast this machine is.
    let measured = host.ask(&json!({"op": "exec", "code": "for (let n = 0; n < 1000000; n++) Math.sqrt(n); return 0"}));
    let rounds = 200_000_000 / guest(&measured).max(1);
    let work = format!("for (let n = 0; n < {rounds}; n++) Math.sqrt(n);");
    let code = format!("for (let turn = 0; turn < 10; turn++) {{ {work} await yield_control() }} {work} return 'done'");
    let mut waiting = host.ask(&json!({"op": "exec", "code": code}));
    let run_id = waiting["runId"].as_str().unwrap().to_owned();
    for _ in 1..10 {
        waiting = host.ask(&json!({"op": "wait", "runId": run_id}));
        assert_eq!(waiting["reason"], "yield", "{waiting}");
    }
    let worked = guest(&waiting);
    host.kill();

    let mut host = upgraded(folder.path());
    let done = host.ask(&json!({"op": "wait", "runId": run_id}));
    assert_eq!(done["value"], "done", "{done}");
    assert!(guest(&done) < worked * 7 / 4, "{worked} ms, then {} ms: replayed legs must not be counted", guest(&done));
}
