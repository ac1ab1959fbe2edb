//! Compaction of sessions, and the usage of models.

use serde_json::{Value, json};
use testkit::model::{Api, Reply};
use wire::Wire;

use crate::api_client::{get, post};
use crate::world::{ADA, APPROVER, BOB, Form, Options, ROOT, RUNNER, World, conversation, exec};

/// Answers this many questions of one conversation, each with a cell. Returns its messages.
async fn talk(world: &World, messages: &mut Vec<Value>, turns: std::ops::Range<usize>) {
    for turn in turns {
        messages.push(json!({"role": "user", "content": format!("question {turn}")}));
        let answer = world.ask(Wire::Chat, &conversation(Wire::Chat, Form::Whole, messages.clone())).await;
        assert_eq!(answer.text(), format!("answer {turn}"), "{}", answer.raw);
        messages.extend(answer.as_history());
    }
}

fn replies(turns: std::ops::Range<usize>) -> Vec<Reply> {
    let turn = |turn| [exec(&format!("return 'hidden {turn}'")), Reply::text(&format!("answer {turn}"))];
    turns.flat_map(turn).collect()
}

async fn session(world: &World) -> String {
    let sessions = get(world, ADA, "/api/v1/sessions").await.body;
    sessions["items"][0]["sessionId"].as_str().unwrap().to_owned()
}

fn last_prompt(world: &World) -> String {
    String::from_utf8(world.model.requests().last().unwrap().body.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_conversation_reaches_the_model_as_its_summary_and_the_newest_turns() {
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let mut script = replies(0..4);
        script.push(Reply::text("They spoke about the first things."));
        script.extend(replies(4..6));
        let world = World::start(Options { api, ..Options::default() }, script).await;
        let mut messages = Vec::new();
        talk(&world, &mut messages, 0..4).await;
        let session = session(&world).await;
        let compact = format!("/api/v1/sessions/{session}/compact");
        let before = get(&world, ADA, &format!("/api/v1/sessions/{session}/transcript")).await.body;
        let body = json!({"keepTurns": 1, "key": "once"});
        for (token, status) in [(BOB, 404), (APPROVER, 403)] {
            assert_eq!(post(&world, token, &compact, &body).await.status, status);
        }
        let made = post(&world, ADA, &compact, &body).await;
        assert_eq!((made.status, &made.body["compacted"]), (200, &json!(true)), "{}", made.text);
        let asked = last_prompt(&world);
        assert!(asked.contains("hidden 2") && !asked.contains("hidden 3"), "it sees what it summarizes: {asked}");
        assert_eq!(world.model.requests().len(), 9);
        // The same key, and the same turns without a key: the same summary, and no model.
        for again in [body, json!({"keepTurns": 1})] {
            assert_eq!(post(&world, ADA, &compact, &again).await.body, made.body, "{api:?}");
        }
        assert_eq!(world.model.requests().len(), 9);
        talk(&world, &mut messages, 4..6).await;
        let prompt = last_prompt(&world);
        for part in ["They spoke about the first things.", "question 3", "hidden 3", "answer 4", "question 5"] {
            assert!(prompt.contains(part), "{api:?}: {part} in {prompt}");
        }
        for part in ["question 0", "hidden 0", "answer 2", "Summarize the conversation"] {
            assert!(!prompt.contains(part), "{api:?}: {part} in {prompt}");
        }
        // The transcript keeps everything, with the control calls.
        let after = get(&world, ADA, &format!("/api/v1/sessions/{session}/transcript")).await.body;
        let (before, after) = (before["items"].as_array().unwrap(), after["items"].as_array().unwrap());
        assert_eq!(after[..before.len()], before[..]);
        let kinds = |entry: &&Value| entry["kind"] == "control_call";
        assert_eq!(after.iter().filter(kinds).count(), 6);
        assert!(after.iter().any(|entry| entry["compaction"]["upTo"] == made.body["upTo"]));
    }
}

/// The tokens of the model's context in tests of long sessions. The definitions of `exec` and `wait` fit, and some turns.
const SMALL_CONTEXT: u64 = 12_000;

fn small_context() -> Options {
    Options { provider: json!({"models": [{"id": "m-1", "contextWindow": SMALL_CONTEXT}]}), ..Options::default() }
}

/// Returns replies for questions whose cells return this many bytes.
fn long_replies(turns: usize, bytes: usize) -> Vec<Reply> {
    let code = |turn| format!("return 'hidden {turn} ' + 'x'.repeat({bytes}) + ' end {turn}'");
    (0..turns).flat_map(|turn| [exec(&code(turn)), Reply::text(&format!("answer {turn}"))]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_exceeds_the_models_context_is_summarized_in_stages_that_fit() {
    let (turns, bytes) = (8, 5_000);
    let mut script = long_replies(turns, bytes);
    script.extend((0..turns).map(|stage| Reply::text(&format!("summary of stage {stage}"))));
    let world = World::start(small_context(), script).await;
    talk(&world, &mut Vec::new(), 0..turns).await;
    let asked = world.model.requests().len();
    let compact = format!("/api/v1/sessions/{}/compact", session(&world).await);
    let made = post(&world, ADA, &compact, &json!({"keepTurns": 0, "key": "k"})).await;
    assert_eq!((made.status, &made.body["compacted"]), (200, &json!(true)), "{}", made.text);
    let stages: Vec<String> =
        world.model.requests()[asked..].iter().map(|one| String::from_utf8(one.body.clone()).unwrap()).collect();
    assert!((2..turns).contains(&stages.len()), "{} stages", stages.len());
    for (number, stage) in stages.iter().enumerate() {
        // Three bytes are counted as a token; the summary needs some of the context.
        assert!(stage.len() as u64 <= (SMALL_CONTEXT - 4_096) * 3, "stage {number} has {} bytes", stage.len());
        assert!(stage.contains("Summarize the conversation"), "{stage}");
        // Each stage continues the summary of the one before.
        let before = number.checked_sub(1).map(|before| format!("summary of stage {before}"));
        assert!(before.is_none_or(|before| stage.contains(&before)), "{stage}");
    }
    for turn in 0..turns {
        let seen = stages.iter().filter(|stage| stage.contains(&format!("end {turn}"))).count();
        assert_eq!(seen, 1, "turn {turn} is summarized once");
    }
    let last = format!("summary of stage {}", stages.len() - 1);
    assert!(made.body["summary"].as_str().unwrap().contains(&last), "{}", made.text);
    // A repeated request, and one for the same turns, ask no model.
    for again in [json!({"keepTurns": 0, "key": "k"}), json!({"keepTurns": 0})] {
        assert_eq!(post(&world, ADA, &compact, &again).await.body, made.body);
    }
    assert_eq!(world.model.requests().len(), asked + stages.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_stage_is_repeated_and_the_stages_before_it_are_not() {
    let turns = 6;
    let mut script = long_replies(turns, 5_000);
    script.extend([Reply::text("summary one"), Reply::status(400, "no"), Reply::text("summary two")]);
    script.extend((0..turns).map(|_| Reply::text("summary three")));
    let world = World::start(small_context(), script).await;
    talk(&world, &mut Vec::new(), 0..turns).await;
    let asked = world.model.requests().len();
    let compact = format!("/api/v1/sessions/{}/compact", session(&world).await);
    let body = json!({"keepTurns": 0});
    let failed = post(&world, ADA, &compact, &body).await;
    assert_eq!((failed.status, &failed.body["error"]["type"]), (503, &json!("model_failed")), "{}", failed.text);
    assert_eq!(world.model.requests().len(), asked + 2);
    let made = post(&world, ADA, &compact, &body).await;
    assert_eq!(made.body["compacted"], true, "{}", made.text);
    let requests = world.model.requests();
    let (second, repeated) = (&requests[asked + 1].body, &requests[asked + 2].body);
    assert_eq!(second, repeated, "it continues after the first summary");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_turn_that_alone_exceeds_the_context_the_model_sees_an_excerpt() {
    let mut script = long_replies(1, 40_000);
    script.push(Reply::text("summary"));
    let world = World::start(small_context(), script).await;
    talk(&world, &mut Vec::new(), 0..1).await;
    let compact = format!("/api/v1/sessions/{}/compact", session(&world).await);
    let made = post(&world, ADA, &compact, &json!({"keepTurns": 0})).await;
    assert_eq!(made.body["compacted"], true, "{}", made.text);
    let prompt = last_prompt(&world);
    assert!(prompt.len() as u64 <= (SMALL_CONTEXT - 4_096) * 3, "{}", prompt.len());
    for part in ["question 0", "hidden 0", "end 0", "bytes are left out", "answer 0"] {
        assert!(prompt.contains(part), "{part} in {prompt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_older_turns_is_not_compacted_and_no_model_is_asked() {
    let world = World::start(Options::default(), replies(0..2)).await;
    talk(&world, &mut Vec::new(), 0..2).await;
    let compact = format!("/api/v1/sessions/{}/compact", session(&world).await);
    let made = post(&world, RUNNER, &compact, &json!({})).await;
    assert_eq!(made.body, json!({"compacted": false, "turnId": null, "upTo": null, "summary": null}));
    assert_eq!(world.model.requests().len(), 4);
    for bad in
        [json!({"keepTurns": -1}), json!({"keepTurns": 1_001}), json!({"key": ""}), json!({"key": "k".repeat(201)})]
    {
        assert_eq!(post(&world, ADA, &compact, &bad).await.status, 400, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_that_fails_or_is_empty_changes_nothing_and_can_be_repeated() {
    let mut script = replies(0..2);
    script.extend([exec("return 'not a summary'"), Reply::text(" "), Reply::text("A good summary.")]);
    script.extend(replies(2..3));
    let world = World::start(Options::default(), script).await;
    let mut messages = Vec::new();
    talk(&world, &mut messages, 0..2).await;
    let compact = format!("/api/v1/sessions/{}/compact", session(&world).await);
    let body = json!({"keepTurns": 0, "key": "k"});
    for _ in 0..2 {
        let failed = post(&world, ADA, &compact, &body).await;
        assert_eq!((failed.status, &failed.body["error"]["type"]), (503, &json!("model_failed")), "{}", failed.text);
    }
    let made = post(&world, ADA, &compact, &body).await;
    assert!(made.body["summary"].as_str().unwrap().contains("A good summary."), "{}", made.text);
    talk(&world, &mut messages, 2..3).await;
    assert!(!last_prompt(&world).contains("question 0"), "{}", last_prompt(&world));
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_at_once_compact_a_session_once() {
    let mut script = replies(0..3);
    script.push(Reply { delay_ms: 50, ..Reply::text("One summary.") });
    let world = World::start(Options::default(), script).await;
    talk(&world, &mut Vec::new(), 0..3).await;
    let compact = format!("/api/v1/sessions/{}/compact", session(&world).await);
    let body = json!({"key": "together"});
    let both = futures_util::future::join_all((0..4).map(|_| post(&world, ADA, &compact, &body))).await;
    assert!(both.iter().all(|one| one.status == 200 && one.body == both[0].body), "{both:?}");
    assert_eq!(world.model.requests().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_summed_up_by_day_agent_session_and_model() {
    let world = World::start(Options::default(), replies(0..3)).await;
    talk(&world, &mut Vec::new(), 0..3).await;
    let session = session(&world).await;
    // Each request of the scripted model has 12 tokens, 4 of them from a cache, and each response 5.
    let expected = |key: &str| {
        json!({"key": key, "turns": 3, "modelCalls": 6, "inputTokens": 72, "outputTokens": 30, "cacheReadTokens": 24,
            "cacheWriteTokens": 0})
    };
    for (by, key) in [("agent", "main"), ("session", session.as_str()), ("model", "scripted/m-1")] {
        for token in [ADA, ROOT] {
            let usage = get(&world, token, &format!("/api/v1/usage?by={by}")).await;
            assert_eq!(usage.body, json!({"items": [expected(key)], "nextCursor": null}), "{by}");
        }
        let usage = get(&world, BOB, &format!("/api/v1/usage?by={by}")).await;
        assert_eq!(usage.body, json!({"items": [], "nextCursor": null}), "{by}");
    }
    let days = get(&world, ADA, "/api/v1/usage").await.body["items"].as_array().unwrap().clone();
    let turns: u64 = days.iter().map(|day| day["turns"].as_u64().unwrap()).sum();
    assert_eq!(turns, 3, "{days:?}");
    assert_eq!(days[0]["key"].as_str().unwrap().len(), "2026-11-16".len(), "{days:?}");
    let other = get(&world, ADA, "/api/v1/usage?by=model&agent=other").await;
    assert_eq!(other.body["items"], json!([]));
    for (token, path, status) in
        [(RUNNER, "/api/v1/usage", 403), (ADA, "/api/v1/usage?by=week", 400), (ADA, "/api/v1/usage?days=401", 400)]
    {
        assert_eq!(get(&world, token, path).await.status, status, "{path}");
    }
}
