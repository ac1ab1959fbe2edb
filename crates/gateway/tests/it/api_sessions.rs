//! Runs, turns, sessions and transcripts of a real turn, as their owner, an administrator and others see them.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::model::Reply;
use wire::Wire;

use crate::api_client::{call, get, post};
use crate::world::{ADA, APPROVER, BOB, Form, Options, ROOT, World, exec, question};

/// Two calls at once, then one that depends on them.
const CELL: &str =
    "const [a, b] = await Promise.all([tools.add({a: 1}), tools.add({a: 2})]); return await tools.add({a, b})";

async fn world_with_a_turn() -> World {
    let world = World::start(Options::default(), vec![exec(CELL), Reply::text("it is 42")]).await;
    let answer = world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "add something")).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "it is 42"), "{}", answer.raw);
    world
}

fn items(body: &Value) -> Vec<Value> {
    body["items"].as_array().unwrap().clone()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_cell_are_under_the_cell_in_transcript_and_trajectory() {
    let world = world_with_a_turn().await;
    let session = items(&get(&world, ADA, "/api/v1/sessions").await.body)[0].clone();
    let session = text(&session, "sessionId");
    let transcript = get(&world, ADA, &format!("/api/v1/sessions/{session}/transcript")).await;
    let entries = items(&transcript.body);
    let kinds: Vec<&str> = entries.iter().map(|entry| text(entry, "kind")).collect();
    let at = kinds.iter().position(|kind| *kind == "control_call").unwrap();
    assert!(!kinds.contains(&"tool_call") && kinds[..at].contains(&"user_message"), "{kinds:?}");
    let calls = entries[at]["toolCalls"].as_array().unwrap();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[2]["arguments"], json!({"a": 42, "b": 42}));
    assert!(calls.iter().all(|call| call["toolId"] == "openclaw:core:add" && call["result"]["isError"] == false));
    let export = get(&world, ADA, &format!("/api/v1/sessions/{session}/trajectory")).await;
    let lines: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((text(&lines[0], "kind"), text(&lines[0], "sessionId")), ("trajectory", session));
    assert_eq!(lines[1..], entries[..]);
    let page = get(&world, ADA, &format!("/api/v1/sessions/{session}/transcript?limit=1")).await;
    let cursor = text(&page.body, "nextCursor").to_owned();
    let rest = get(&world, ADA, &format!("/api/v1/sessions/{session}/transcript?cursor={cursor}")).await;
    assert_eq!([items(&page.body), items(&rest.body)].concat(), entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_others_is_as_unknown_as_what_does_not_exist() {
    let world = world_with_a_turn().await;
    let run = items(&get(&world, ADA, "/api/v1/runs").await.body)[0].clone();
    assert_eq!((text(&run, "principal"), text(&run, "state")), ("ada", "completed"));
    let (run_id, turn_id, session) = (text(&run, "runId"), text(&run, "turnId"), text(&run, "sessionId"));
    let paths = [
        format!("/api/v1/runs/{run_id}"),
        format!("/api/v1/runs/{run_id}/outputs"),
        format!("/api/v1/turns/{turn_id}"),
        format!("/api/v1/sessions/{session}"),
        format!("/api/v1/sessions/{session}/transcript"),
        format!("/api/v1/sessions/{session}/trajectory"),
    ];
    for path in &paths {
        for (token, status) in [(ADA, 200), (ROOT, 200), (BOB, 404)] {
            assert_eq!(get(&world, token, path).await.status, status, "{path}");
        }
        let unknown = get(&world, ADA, &path.replace(run_id, "x").replace(turn_id, "x").replace(session, "x")).await;
        assert_eq!((unknown.status, &unknown.body), (404, &get(&world, BOB, path).await.body), "{path}");
    }
    for path in [format!("/api/v1/runs/{run_id}/abort"), format!("/api/v1/turns/{turn_id}/abort")] {
        assert_eq!(post(&world, BOB, &path, &json!({})).await.status, 404);
        assert_eq!(post(&world, ADA, &path, &json!({})).await.body, json!({"aborted": false}));
    }
    for (list, token, count) in [("runs", BOB, 0), ("sessions", BOB, 0), ("runs", ROOT, 1), ("sessions", ROOT, 1)] {
        assert_eq!(items(&get(&world, token, &format!("/api/v1/{list}")).await.body).len(), count);
    }
    let detail = get(&world, ADA, &paths[0]).await.body;
    assert_eq!((text(&detail, "source"), detail["calls"].as_array().unwrap().len()), (CELL, 3));
    let steer = post(&world, ADA, &format!("/api/v1/turns/{turn_id}/steer"), &json!({"text": "stop"})).await;
    assert_eq!((steer.status, &steer.body["error"]["type"]), (400, &json!("not_running")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_is_gone_with_its_runs_and_transcript() {
    let world = world_with_a_turn().await;
    let run = items(&get(&world, ADA, "/api/v1/runs").await.body)[0].clone();
    let path = format!("/api/v1/sessions/{}", text(&run, "sessionId"));
    for (token, status) in [(BOB, 404), (APPROVER, 403)] {
        assert_eq!(call(&world, token, Method::DELETE, &path, None).await.status, status);
    }
    let deleted = call(&world, ADA, Method::DELETE, &path, None).await;
    assert_eq!(deleted.body, json!({"deletedTurns": 1, "deletedRuns": 1}));
    for token in [ADA, ROOT] {
        assert_eq!(get(&world, token, &path).await.status, 404);
        assert_eq!(get(&world, token, &format!("{path}/transcript")).await.status, 404);
        assert_eq!(get(&world, token, &format!("/api/v1/runs/{}", text(&run, "runId"))).await.status, 404);
    }
    assert_eq!(call(&world, ADA, Method::DELETE, &path, None).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_sessions_are_paged_without_gaps_or_repetitions() {
    let world = World::start(Options::default(), Vec::new()).await;
    for key in 0..7 {
        let body = json!({"tool": "add", "args": {"a": key}});
        assert_eq!(post(&world, ADA, "/tools/invoke", &body).await.status, 200);
    }
    let all = items(&get(&world, ADA, "/api/v1/runs").await.body);
    assert_eq!(all.len(), 7);
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&world, ADA, &format!("/api/v1/runs?limit=2{cursor}")).await.body;
        assert!(items(&page).len() <= 2);
        paged.extend(items(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, all);
    assert_eq!(get(&world, ADA, "/api/v1/runs?limit=501").await.status, 400);
    assert!(items(&get(&world, ADA, "/api/v1/runs?state=waiting").await.body).is_empty());
}
