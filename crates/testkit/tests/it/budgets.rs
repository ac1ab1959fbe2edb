//! Limits of one run: the number of its calls, the size of its journal (which has only a hash of each catalog query), and
//! its principal's storage quota.

use contract::config::Quotas;
use contract::limits::{MAX_JOURNAL_BYTES, MAX_RUN_CALLS};
use serde_json::{Value, json};
use store::RunFilter;

use crate::fake_tools::{Behavior, FakeTools};
use crate::replaying::pool;
use crate::world::{Parts, World, value};

const ECHO: &str = "openclaw:a:echo";

async fn open_world(tools: Value) -> World {
    let fakes = FakeTools::new([(ECHO, Behavior::Echo)]);
    Parts { sources: vec![fakes], tools, ..Parts::default() }.open().await
}

fn long_timeouts() -> Value {
    json!({"codeMode": {"enabled": true, "timeoutMs": 60_000, "maxWaitMs": 60_000}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_can_catch_a_full_journal_and_return_partial_results() {
    let world = open_world(long_timeouts()).await;
    let cell = "
        const text = 'a'.repeat(1 << 20);
        for (let made = 0; made < 200; made++) {
            try { await tools.call('openclaw:a:echo', { text }) }
            catch (error) { return { made, code: error.code, message: error.message } }
        }";
    let result = world.run().finish(cell).await;
    let ended = value(&result);
    assert_eq!(ended["code"], "journal_limit_exceeded", "{result}");
    let made = ended["made"].as_u64().unwrap();
    assert!((20..32).contains(&made), "each call journals 1 MiB of input and 1 MiB of result: {result}");
    assert!(ended["message"].as_str().unwrap().contains(&MAX_JOURNAL_BYTES.to_string()), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_keeps_calling_after_its_calls_are_refused_fails() {
    let world = open_world(long_timeouts()).await;
    let cell = "
        const text = 'a'.repeat(8 << 10);
        for (;;) await tools.call('openclaw:a:echo', { text }).catch(() => 0)";
    let result = world.run().finish(cell).await;
    assert_eq!(result["code"], "too_many_pending_tool_calls", "{result}");
    assert!(result["error"].as_str().unwrap().contains("did not stop when its calls were refused"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_sets_timers_forever_fails_at_the_call_limit() {
    let world = open_world(long_timeouts()).await;
    let cell =
        "for (;;) await Promise.all(Array.from({ length: 900 }, () => new Promise(done => setTimeout(done, 0))))";
    let result = world.run().finish(cell).await;
    assert_eq!(result["code"], "too_many_pending_tool_calls", "{result}");
    let error = result["error"].as_str().unwrap();
    assert!(error.starts_with("the cell set a timer") && error.contains(&MAX_RUN_CALLS.to_string()), "{result}");
    let runs = world.store().runs(&RunFilter::default(), 1).await.unwrap();
    let totals = world.store().journal_totals(&runs[0].run_id).await.unwrap();
    assert!(totals.calls <= MAX_RUN_CALLS && totals.bytes <= MAX_JOURNAL_BYTES, "{totals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn catalog_queries_are_journaled_by_hash_and_replay_identically() {
    let world = open_world(long_timeouts()).await;
    let cell = "
        await tools.search('echo echo echo');
        await tools.describe('openclaw:a:echo');
        await tools.call('openclaw:a:nothing', { secret: 'unread' }).catch(() => 0);
        return await tools.call('openclaw:a:echo', { kept: 1 })";
    value(&world.run().exec(cell).await);
    let run_id = world.store().runs(&RunFilter::default(), 1).await.unwrap()[0].run_id.clone();
    let calls = world.store().calls(&run_id).await.unwrap();
    let payloads: Vec<&str> = calls.iter().map(|row| row.payload.as_str()).collect();
    assert_eq!(payloads, ["", "", "", r#"{"kept":1}"#], "{calls:?}");
    let record = codemode::replay::Record::read(world.store(), &run_id).await.unwrap();
    assert!(record.replay(&pool().await, 10_000, |_| {}).await.unwrap());
    // Earlier versions journaled the payload, too.
    let mut older = record.clone();
    older.calls[0].payload = r#"["echo echo echo"]"#.to_owned();
    assert!(older.replay(&pool().await, 10_000, |_| {}).await.unwrap());
    let mut other = record;
    other.calls[0].input_hash = "another".to_owned();
    assert!(!other.replay(&pool().await, 10_000, |_| {}).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_its_principals_quota_fails_and_other_runs_continue() {
    let folder = tempfile::tempdir().unwrap();
    let fakes = FakeTools::new([(ECHO, Behavior::Echo)]);
    let quotas = Quotas { stored_bytes: 4 << 20, ..Quotas::DEFAULT };
    let (tools, store) = (long_timeouts(), Some(folder.path().join("runs.db")));
    let world = Parts { sources: vec![fakes], tools, store, quotas, ..Parts::default() }.open().await;
    let cell = "
        const text = 'a'.repeat(1 << 20);
        for (let i = 0; i < 20; i++) await tools.call('openclaw:a:echo', { text });";
    let result = world.run().exec(cell).await;
    assert_eq!(result["code"], "runtime_unavailable", "{result}");
    assert!(result["error"].as_str().unwrap().contains("store.perPrincipal.maxStoredBytes"), "{result}");
    let size = std::fs::metadata(folder.path().join("runs.db")).unwrap().len();
    assert!(size < 8 << 20, "{size}");
    let other = world.run_as("other/session/run").exec("return await tools.call('openclaw:a:echo', { n: 1 })").await;
    assert_eq!(value(&other), &json!({"n": 1}));
}
