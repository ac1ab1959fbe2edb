//! Replaying and forking runs through the embedding API.

use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use codemode::replay::{ForkError, LegVerdict, Record, RecordError, ReplayError, ReplayFailure};
use contract::frame::LegEnd;
use serde_json::json;
use store::RunFilter;

use crate::world::{Parts, World, scope};

pub(crate) async fn pool() -> Pool {
    let launch = Launch::InProcess(sandbox::serve_attached);
    let options = PoolOptions { jail: JailPolicy::Off, workers: 1, slots: 16, threads: 2, ..PoolOptions::new(launch) };
    Pool::start(options).await.unwrap()
}

/// Runs a cell and reads its record from the store.
async fn record_of(world: &World, code: &str) -> Record {
    let run = world.run();
    let result = run.exec(code).await;
    let run_id = match result["runId"].as_str() {
        Some(run_id) => run_id.into(),
        None => {
            let listed = world.code_mode.store().runs(&RunFilter::default(), 1).await.unwrap();
            listed[0].run_id.clone()
        }
    };
    Record::read(world.code_mode.store(), &run_id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_ends_like_the_recorded_run() {
    let world = Parts::default().open().await;
    let pool = pool().await;
    for code in [
        "return { now: Date.now(), chance: Math.random(), named: Object.keys(globalThis).length }",
        "text('a'); await new Promise((done) => setTimeout(done, 5)); json({ b: 1 }); return [1, 'x', null]",
        "const found = await tools.search('anything'); text(found.length); await yield_control(); return 1",
        "await new Promise((done) => setTimeout(done, 1)); throw new TypeError('odd')",
        "return await new Promise(() => {})",
        "text('x'.repeat(1 << 20))",
        "const all = []; for (;;) all.push('x'.repeat(1 << 20))",
        "import('x')",
    ] {
        let record = record_of(&world, code).await;
        let mut verdicts = Vec::new();
        let same = record.replay(&pool, 60_000, |step| verdicts.push(step.verdict.clone())).await.unwrap();
        assert!(same, "{code}: {verdicts:?}");
        assert!(verdicts.iter().all(|verdict| *verdict == Ok(LegVerdict::Same)), "{code}: {verdicts:?}");
        assert_eq!(verdicts.len(), record.legs.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_reports_a_different_return_value() {
    let world = Parts::default().open().await;
    let mut record = record_of(&world, "return { n: 1 }").await;
    record.run.result = record.run.result.map(|result| result.replace("\"n\":1", "\"n\":2"));
    let mut difference = None;
    let same = record.replay(&pool().await, 60_000, |step| difference = step.verdict.clone().err()).await.unwrap();
    assert!(!same);
    assert_eq!(difference.unwrap().to_string(), "leg 0: expected a return of {\"n\":2}, got a return of {\"n\":1}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_stops_at_its_time_limit() {
    let world = Parts::default().open().await;
    let work = "{ const until = 3000000; for (let n = 0; n < until; n++) Math.sqrt(n) }";
    let record = record_of(&world, &format!("for (;;) {{ {work} await yield_control() }}")).await;
    let mut legs = Vec::new();
    let played = record.replay(&pool().await, 5, |step| legs.push(step.recorded.leg)).await;
    let Err(ReplayError::Failed(ReplayFailure::TooLong { leg, allowed_ms: 5 })) = played else { panic!("{played:?}") };
    assert_eq!((leg, legs.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_with_a_missing_leg_is_not_replayed() {
    let world = Parts::default().open().await;
    let mut record = record_of(&world, "await new Promise((done) => setTimeout(done, 1)); return 1").await;
    record.legs.remove(0);
    let played = record.replay(&pool().await, 60_000, |_| {}).await;
    assert!(matches!(played, Err(ReplayError::Failed(ReplayFailure::Hole(0)))), "{played:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_limited_to_its_owner_and_not_delayed_by_old_timers() {
    let world = Parts::default().open().await;
    let code = "const late = setTimeout(() => text('late'), 3600000); const chance = Math.random(); \
                await new Promise((done) => setTimeout(done, 1)); clearTimeout(late); \
                await yield_control(); text(chance); return chance";
    let record = record_of(&world, code).await;
    let run_id = record.run.run_id.clone();
    let (code_mode, config) = (&world.code_mode, contract::config::CodeMode::enabled(record.limits().unwrap()));
    let refused = code_mode.fork(&scope("main/other/run"), &config, "fork", &run_id, 1).await;
    assert!(matches!(refused, Err(ForkError::Record(RecordError::NoSuchRun))), "{refused:?}");

    let run = world.run();
    let fork = code_mode.fork(&record.run.scope, &config, "fork", &run_id, 2).await.unwrap();
    let first = run.wait(&fork).await;
    let other = run.wait(&run_id).await;
    assert_eq!((&first["status"], &first["value"]), (&json!("completed"), &other["value"]), "{first}");
    // Forked after the first leg: its replay sets the long timer again, and the next leg clears it.
    let fork = code_mode.fork(&record.run.scope, &config, "fork", &run_id, 1).await.unwrap();
    let mut result = run.wait(&fork).await;
    while result["status"] == "waiting" {
        result = run.wait(&fork).await;
    }
    assert_eq!(result["value"], other["value"], "{result}");
    // The fork's journal is complete and can be replayed.
    let record = Record::read(code_mode.store(), &fork).await.unwrap();
    let mut last = None;
    assert!(record.replay(&pool().await, 60_000, |step| last = Some(step.ran.clone())).await.unwrap());
    assert!(matches!(last.unwrap().end, LegEnd::Completed { .. }));
}
