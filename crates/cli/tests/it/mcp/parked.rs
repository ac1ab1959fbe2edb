//! Tasks of MCP servers, which continue when a `cellmate mcp` process ends.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, PATIENCE, Streams};
use super::place::{Place, writes};

const CELL: &str = "text('before'); return (await MCP.s.long({})).structuredContent.n";

/// A server whose tool returns a task that completes once the file `over` exists.
fn tasks() -> Place {
    let place = Place::new(json!([]));
    let mut long = writes("long");
    let begun = json!({"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 50});
    long["does"] = json!([{"result": begun}]);
    let result = json!({"content": [], "structuredContent": {"n": 42}});
    let over = json!([{"result": {"taskId": "t1", "status": "completed", "result": result}}]);
    let working = json!([{"result": {"taskId": "t1", "status": "working", "pollIntervalMs": 50}}]);
    let on = json!({"tasks/get": [{"ifFile": [place.path("over"), over, working]}], "tasks/cancel": [{"result": {}}]});
    let script = json!({"tools": [long], "on": on, "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    place
}

fn start(place: &Place, era: Era) -> Streams {
    Streams::start(place, era, json!({}), &["--ask-nobody"])
}

/// Waits until the scripted server has received a message with this text.
fn until_received(place: &Place, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !place.received().contains(words) {
        assert!(Instant::now() < deadline, "not received: {words}\n{}", place.received());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts the cell and returns once its task is polled.
fn begin(place: &Place, client: &mut Streams) -> i64 {
    let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
    until_received(place, "tasks/get");
    id
}

/// Lets the task complete.
fn is_over(place: &Place) {
    std::fs::write(place.path("over"), "").unwrap();
}

fn assert_done(place: &Place, done: &Value) {
    assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!(42)), "{done}");
    assert_eq!(place.received().matches("\"tools/call\"").count(), 1, "called once");
    assert!(!place.received().contains("tasks/cancel"), "the task was not cancelled");
}

#[test]
fn a_task_that_completes_in_time_settles_its_call() {
    let place = tasks();
    is_over(&place);
    let done = start(&place, Era::July2026).exec(CELL);
    assert_done(&place, &done);
}

#[test]
fn after_a_kill_the_next_process_follows_the_task_to_its_end() {
    let place = tasks();
    let mut client = start(&place, Era::July2026);
    begin(&place, &mut client);
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    is_over(&place);
    let mut next = start(&place, Era::November2025);
    assert_done(&place, &waited(&mut next));
    // The stored result is returned again, and the task is not polled again.
    assert_eq!(next.call("wait", json!({}))["value"], 42);
}

#[test]
fn a_process_that_shuts_down_leaves_its_tasks_to_the_next() {
    let place = tasks();
    let mut client = start(&place, Era::November2025);
    begin(&place, &mut client);
    client.close();
    assert!(client.child.wait().unwrap().success());
    is_over(&place);
    let done = start(&place, Era::July2026).call("wait", json!({}));
    assert_done(&place, &done);
}

#[test]
fn two_processes_that_wait_for_one_task_get_the_same_result() {
    let place = tasks();
    let (mut one, mut two) = (start(&place, Era::July2026), start(&place, Era::July2026));
    let exec = begin(&place, &mut one);
    let wait = two.send("tools/call", json!({"name": "wait", "arguments": {}}));
    std::thread::sleep(Duration::from_millis(500));
    is_over(&place);
    for answer in [one.answer(exec), two.answer(wait)] {
        assert_done(&place, &answer["result"]["structuredContent"]);
    }
}

#[test]
fn a_process_that_was_stopped_past_its_lease_settles_nothing() {
    let place = tasks();
    let mut one = start(&place, Era::July2026);
    let exec = begin(&place, &mut one);
    signal(&one, "-STOP");
    is_over(&place);
    let mut two = start(&place, Era::July2026);
    assert_done(&place, &waited(&mut two));
    signal(&one, "-CONT");
    // The client of the stopped process gets the result that the other process stored, and both read the same.
    assert_done(&place, &one.answer(exec)["result"]["structuredContent"]);
    assert_done(&place, &one.call("wait", json!({})));
    assert_done(&place, &two.call("wait", json!({})));
}

fn signal(client: &Streams, signal: &str) {
    let sent = std::process::Command::new("kill").arg(signal).arg(client.child.id().to_string()).status();
    assert!(sent.unwrap().success());
}

/// Calls `wait` until the run has ended: the process that held the run may keep its lease for a while.
fn waited(client: &mut Streams) -> Value {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let result = client.call("wait", json!({}));
        if result["status"] != "waiting" || Instant::now() > deadline {
            return result;
        }
    }
}

#[test]
fn cancelling_a_run_cancels_its_task() {
    let place = tasks();
    let mut client = start(&place, Era::July2026);
    let id = begin(&place, &mut client);
    client.notify("notifications/cancelled", json!({"requestId": id}));
    until_received(&place, "tasks/cancel");
    let found = client.call("wait", json!({}));
    assert_eq!((&found["status"], &found["code"]), (&json!("failed"), &json!("aborted")), "{found}");
}
