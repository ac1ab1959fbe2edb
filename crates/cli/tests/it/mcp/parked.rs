//! Tasks of servers behind us, which go on when we do not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, PATIENCE, Streams};
use super::place::{Place, writes};

const CELL: &str = "text('before'); return (await MCP.s.long({})).structuredContent.n";

/// A server whose tool answers with a task that is over once the file `over` is there.
fn tasks() -> Place {
    let place = Place::new(json!([]));
    let mut long = writes("long");
    let begun = json!({"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 50});
    long["does"] = json!([{"result": begun}]);
    let result = json!({"content": [], "structuredContent": {"n": 42}});
    let over = json!([{"result": {"taskId": "t1", "status": "completed", "result": result}}]);
    let working = json!([{"result": {"taskId": "t1", "status": "working", "pollIntervalMs": 50}}]);
    let on = json!({"tasks/get": [{"ifFile": [place.path("over"), over, working]}], "tasks/cancel": [{"result": {}}]});
    let script = json!({"tools": [long], "on": on, "record": place.path("heard")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    place
}

fn start(place: &Place, era: Era) -> Streams {
    Streams::start(place, era, json!({}), &["--ask-nobody"])
}

fn until_heard(place: &Place, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !place.heard().contains(words) {
        assert!(Instant::now() < deadline, "not heard: {words}\n{}", place.heard());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Begins the cell and returns when its task is followed.
fn begin(place: &Place, client: &mut Streams) -> i64 {
    let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
    until_heard(place, "tasks/get");
    id
}

fn is_over(place: &Place) {
    std::fs::write(place.path("over"), "").unwrap();
}

fn assert_done(place: &Place, done: &Value) {
    assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!(42)), "{done}");
    assert_eq!(place.heard().matches("\"tools/call\"").count(), 1, "called once");
    assert!(!place.heard().contains("tasks/cancel"), "nobody called it off");
}

#[test]
fn a_task_that_ends_in_time_is_a_call_like_others() {
    let place = tasks();
    is_over(&place);
    let done = start(&place, Era::July2026).exec(CELL);
    assert_done(&place, &done);
}

#[test]
fn a_task_is_followed_to_its_end_by_the_next_process_when_ours_is_killed() {
    let place = tasks();
    let mut client = start(&place, Era::July2026);
    begin(&place, &mut client);
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    is_over(&place);
    let mut next = start(&place, Era::November2025);
    assert_done(&place, &waited(&mut next));
    // What is over is told again, and not followed again.
    assert_eq!(next.call("wait", json!({}))["value"], 42);
}

#[test]
fn a_process_that_ends_in_good_order_leaves_its_tasks_to_the_next() {
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
fn two_processes_that_wait_for_one_task_are_told_the_same() {
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
fn a_process_that_slept_past_its_lease_settles_nothing() {
    let place = tasks();
    let mut one = start(&place, Era::July2026);
    let exec = begin(&place, &mut one);
    signal(&one, "-STOP");
    is_over(&place);
    let mut two = start(&place, Era::July2026);
    assert_done(&place, &waited(&mut two));
    signal(&one, "-CONT");
    // Who asked the sleeper is told how the run ended elsewhere; both read what the other has written.
    assert_done(&place, &one.answer(exec)["result"]["structuredContent"]);
    assert_done(&place, &one.call("wait", json!({})));
    assert_done(&place, &two.call("wait", json!({})));
}

fn signal(client: &Streams, signal: &str) {
    let told = std::process::Command::new("kill").arg(signal).arg(client.child.id().to_string()).status();
    assert!(told.unwrap().success());
}

/// Whoever held the run may hold it for a while yet: another `wait` is as good as the first.
fn waited(client: &mut Streams) -> Value {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let told = client.call("wait", json!({}));
        if told["status"] != "waiting" || Instant::now() > deadline {
            return told;
        }
    }
}

#[test]
fn a_run_that_is_called_off_calls_off_its_task() {
    let place = tasks();
    let mut client = start(&place, Era::July2026);
    let id = begin(&place, &mut client);
    client.notify("notifications/cancelled", json!({"requestId": id}));
    until_heard(&place, "tasks/cancel");
    let found = client.call("wait", json!({}));
    assert_eq!((&found["status"], &found["code"]), (&json!("failed"), &json!("aborted")), "{found}");
}
