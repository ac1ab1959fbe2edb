//! Values that the cells of a session keep for each other.

use codemode::replay::{LegVerdict, Record};
use contract::config::{CodeMode as Config, Quotas};
use contract::limits::{MAX_STATE_BYTES, MAX_STATE_KEYS, MAX_STATE_VALUE_BYTES};
use contract::scope::Scope;
use contract::tool::{Repeat, ToolSpec};
use serde_json::json;
use store::RunFilter;

use crate::fake_tools::{Behavior, FakeTools, spec};
use crate::host::Host;
use crate::replaying::pool;
use crate::world::{Parts, Workers, World, code, value};

async fn world() -> World {
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 60_000, "maxWaitMs": 5_000}});
    Parts { workers: Workers::Attached, tools, ..Parts::default() }.open().await
}

/// Returns the record of the newest run.
async fn newest(world: &World) -> Record {
    let listed = world.store().runs(&RunFilter::default(), 1).await.unwrap();
    Record::read(world.store(), &listed[0].run_id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_cell_of_the_session_loads_what_an_earlier_one_stored() {
    let world = world().await;
    let stored = world.run().value("return [await store('a', { n: [1, null] }), await store('b', 'é')]").await;
    assert!(stored[0]["version"].is_string() && stored[0]["version"] != stored[1]["version"], "{stored}");
    let run = world.run_as("main/session/another-run");
    let loaded = run.value("return [await load('a'), await load('b'), await load('c') ?? 'absent']").await;
    assert_eq!(loaded, json!([{"n": [1, null]}, "é", "absent"]));
    let with_version = run.value("return await load('a', { version: true })").await;
    assert_eq!(with_version, json!({"value": {"n": [1, null]}, "version": stored[0]["version"]}));
    let keys = run.value("return await keys()").await;
    let entry = |key: &str, place: usize, bytes: usize| json!({"key": key, "version": stored[place]["version"], "bytes": bytes});
    assert_eq!(keys, json!([entry("a", 0, r#"{"n":[1,null]}"#.len()), entry("b", 1, "\"é\"".len())]));
    let forgotten = run.value("return [await forget('a'), await forget('a'), await forget('c'), await keys()]").await;
    assert_eq!(forgotten, json!([true, false, false, [entry("b", 1, 4)]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_session_agent_or_client_has_its_own_values() {
    let world = world().await;
    world.run().value("await store('a', 1)").await;
    for scope in ["main/other/run", "other/session/run"] {
        assert_eq!(
            world.run_as(scope).value("return [await load('a') ?? null, await keys()]").await,
            json!([null, []])
        );
    }
    let mut request = crate::world::request("main/session/run");
    request.scope = Scope { client: "another client".to_owned(), ..request.scope };
    assert_eq!(world.prepared(&request).value("return await keys()").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_not_awaited_take_effect_in_the_order_in_which_they_were_made() {
    let world = world().await;
    let code = "const all = [load('k'), store('k', 1), load('k'), store('k', 2), load('k'), forget('k'), load('k'), \
                keys(), store('k', 3, { ifVersion: null }), load('k'), store('k', 4), keys()]; \
                const done = await Promise.all(all); \
                return done.map((one, n) => [1, 3, 8, 10].includes(n) ? 'stored' : n == 7 || n == 11 ? one.length : one ?? null)";
    let expected = json!([null, "stored", 1, "stored", 2, true, null, 0, "stored", 3, "stored", 1]);
    assert_eq!(world.run().value(code).await, expected);
    assert_eq!(world.run().value("return await load('k')").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_write_wins_once() {
    let world = world().await;
    let run = world.run();
    let code = "const conflict = (error) => error.code; \
                const { version } = await store('a', 1, { ifVersion: null }); \
                const again = await store('a', 2, { ifVersion: null }).catch(conflict); \
                const stale = await store('a', 2, { ifVersion: 'cm_x:1' }).catch(conflict); \
                const forgot = await forget('a', { ifVersion: 'cm_x:1' }).catch(conflict); \
                const next = await store('a', 3, { ifVersion: version }); \
                const old = await store('a', 4, { ifVersion: version }).catch(conflict); \
                return [again, stale, forgot, old, next.version !== version, await load('a')]";
    let conflict = "version_conflict";
    assert_eq!(run.value(code).await, json!([conflict, conflict, conflict, conflict, true, 3]));
    let code = "const { version } = await load('a', { version: true }); \
                const gone = await forget('a', { ifVersion: version }); \
                return [gone, await forget('a', { ifVersion: null }), await load('a') ?? null]";
    assert_eq!(run.value(code).await, json!([true, false, null]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_cell_keeps_what_it_stored_before() {
    let world = world().await;
    let run = world.run();
    let failed = run.exec("await store('a', 1); throw new Error('later')").await;
    assert_eq!(code(&failed), "none");
    let (waiting, _) = run.suspend("await store('b', 1); await yield_control(); await store('c', 1)").await;
    assert!(world.code_mode.abort(&waiting).await);
    assert_eq!(run.value("return (await keys()).map(one => one.key)").await, json!(["a", "b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_errors_that_a_cell_can_catch() {
    let world = world().await;
    let run = world.run();
    let long = MAX_STATE_VALUE_BYTES;
    let code = format!(
        "const code = (error) => error.code; const all = []; \
         all.push(await store('a', 'x'.repeat({long})).catch(code)); \
         all.push(await store('k'.repeat(257), 1).catch(code)); \
         all.push(await store('', 1).catch(code)); \
         for (let n = 0; n < {MAX_STATE_KEYS}; n++) await store(`k${{n}}`, n); \
         all.push(await store('one more', 1).catch(code)); \
         await forget('k0'); await store('one more', 1); \
         return [...all, (await keys()).length]"
    );
    let expected = json!(["value_too_large", "value_too_large", "invalid_input", "too_many_keys", MAX_STATE_KEYS]);
    assert_eq!(run.value(&code).await, expected);
    let other = world.run_as("main/heavy/run");
    let code = format!(
        "let n = 0; const value = 'x'.repeat({long} - 2); \
         try {{ for (;; n++) await store(`k${{n}}`, value) }} catch (error) {{ return [n, error.code] }}"
    );
    assert_eq!(other.value(&code).await, json!([MAX_STATE_BYTES / long, "value_too_large"]));
    // The value that is replaced no longer counts, and neither does one that is removed.
    let code = format!(
        "await store('k0', 1); await store('new', 'x'.repeat({long} - 3)); await forget('k1'); \
         return (await keys()).reduce((sum, one) => sum + one.bytes, 0)"
    );
    let total = other.value(&code).await.as_u64().unwrap() as usize;
    assert_eq!(total, MAX_STATE_BYTES - long);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_the_largest_size_returns_unchanged() {
    let world = world().await;
    let run = world.run();
    let code = format!("const value = 'é'.repeat(({MAX_STATE_VALUE_BYTES} - 2) / 2); await store('a', value)");
    run.value(&code).await;
    let code = format!("const a = await load('a'); return a === 'é'.repeat(({MAX_STATE_VALUE_BYTES} - 2) / 2)");
    assert_eq!(run.value(&code).await, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_run_that_loads_values_is_identical_after_they_have_changed() {
    let world = world().await;
    world.run().value("await store('a', 1)").await;
    let code = "const before = await load('a', { version: true }); \
                const [stored, now] = await Promise.all([store('a', 2), load('a', { version: true })]); \
                const failed = await store('a', 3, { ifVersion: before.version }).catch((error) => error.code); \
                text(before); text(await keys()); return [before, stored, now, failed, await forget('b')]";
    world.run().value(code).await;
    let record = newest(&world).await;
    world.run().value("await store('a', 'other'); await store('b', 1)").await;
    let mut verdicts = Vec::new();
    let same = record.replay(&pool().await, 60_000, |step| verdicts.push(step.verdict.clone())).await.unwrap();
    assert!(same && verdicts.iter().all(|verdict| *verdict == Ok(LegVerdict::Same)), "{verdicts:?}");
    assert_eq!(world.run().value("return await load('a')").await, "other", "a replay writes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_the_recorded_replies_up_to_its_step_and_then_shares_the_session_values() {
    let world = world().await;
    let run = world.run();
    let code = "const first = await store('a', 1); await yield_control(); \
                const seen = await load('a', { version: true }); const { version } = await store('a', 'again'); \
                return { first: first.version, seen, version }";
    let (original, _) = run.suspend(code).await;
    let ended = run.wait(&original).await;
    let first = value(&ended)["first"].clone();
    assert_eq!(value(&ended)["seen"], json!({"value": 1, "version": first}));
    run.value("await store('a', 'newer')").await;
    let record = Record::read(world.store(), &original).await.unwrap();
    let config = Config::enabled(record.limits().unwrap());
    // Two legs: up to the reply of `store`.
    let fork = world.code_mode.fork(&record.run.scope, &config, "fork", &original, 2).await.unwrap();
    let forked = run.wait(&fork).await;
    let forked = value(&forked);
    assert_eq!((&forked["first"], &forked["seen"]["value"]), (&first, &json!("newer")), "{forked}");
    assert!(forked["version"].as_str().unwrap().starts_with(fork.as_str()), "{forked}");
    assert_eq!(run.value("return await load('a', { version: true })").await["version"], forked["version"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unconditional_writes_are_committed_once_at_the_end_of_the_cell() {
    let world = world().await;
    let code =
        "for (let n = 0; n < 200; n++) { await store(`k${n % 20}`, n); if (await load(`k${n % 20}`) !== n) throw n }";
    world.run().value(code).await;
    let record = newest(&world).await;
    let session = store::SessionKey::from(&record.run.scope);
    let values = world.store().session_values(&session).await.unwrap();
    assert_eq!(values.len(), 20);
    // Written by the last calls for each key: the replaced writes are not in the store.
    assert!(values.iter().all(|one| one.run_id == record.run.run_id && one.value.parse::<u32>().unwrap() >= 180));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_wrote_nothing_yet_sees_the_writes_of_others() {
    let tools = FakeTools::new([("openclaw:a:gate", Behavior::WaitForGate)]);
    let world = Parts { workers: Workers::Attached, sources: vec![tools.clone()], ..Parts::default() }.open().await;
    let run = world.run();
    // The call commits the first write. After that the run reads the store, and not what it wrote itself.
    let code = "await store('a', 'own'); await tools.call('openclaw:a:gate', {}); return await load('a')";
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.value(code).await }
    });
    tools.until(1).await;
    assert_eq!(run.value("return await load('a')").await, "own", "it was committed before the tool was called");
    run.value("await store('a', 'newer')").await;
    tools.gate.notify_one();
    assert_eq!(waiting.await.unwrap(), "newer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_of_tool_search_has_no_session_values() {
    let parts = Parts { workers: Workers::Attached, tools: json!({"toolSearch": true}), ..Parts::default() };
    let world = parts.open().await;
    let run = world.run();
    let tool_search = codemode::ToolSearch::new(world.code_mode.clone());
    let config = &run.prepared.config.tool_search;
    let input = json!({"code": "return typeof store === 'undefined' ? 'none' : await store('a', 1).catch(error => error.code)"});
    let answer = tool_search.run_code(&run.prepared.executor, config, "call-1", &input).await;
    assert!(["none", "invalid_input"].iter().any(|expected| answer["value"] == *expected), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_its_quota_fails_and_writes_no_values() {
    let quotas = Quotas { stored_bytes: 64 << 10, ..Quotas::DEFAULT };
    let world = Parts { workers: Workers::Attached, quotas, ..Parts::default() }.open().await;
    let run = world.run();
    let failed = run.exec("await store('small', 1); await store('a', 'x'.repeat(100000)); return 1").await;
    assert_eq!(code(&failed), "runtime_unavailable");
    assert_eq!(run.value("return await keys()").await, json!([]));
}

#[test]
fn a_killed_host_loses_no_value_of_a_reported_turn() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::start(folder.path());
    let exec = |code: &str| json!({"op": "exec", "code": code});
    let first = host.ask(&exec("await store('a', 1); return 1"));
    assert_eq!(first["status"], "completed", "{first}");
    let second = host.ask(&exec("await store('b', 2); await yield_control(); await store('c', 3); return 1"));
    assert_eq!(second["status"], "waiting", "{second}");
    host.kill();
    let mut host = Host::start(folder.path());
    let keys = exec("return (await keys()).map(one => one.key)");
    assert_eq!(host.ask(&keys)["value"], json!(["a", "b"]));
    let mut end = host.ask(&json!({"op": "wait", "runId": second["runId"]}));
    while end["status"] == "waiting" {
        end = host.ask(&json!({"op": "wait", "runId": second["runId"]}));
    }
    assert_eq!(end["status"], "completed", "{end}");
    assert_eq!(host.ask(&keys)["value"], json!(["a", "b", "c"]));
}

/// Returns a tool that only reads.
pub(crate) fn reads(id: &str) -> ToolSpec {
    ToolSpec { repeat: Repeat::Always, declared_repeat: Repeat::Always, ..spec(id) }
}
