//! Runs gone through again and forked, as a program that embeds us does it.

use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use codemode::replay::{ForkRefused, Record, Stumble, Unplayable, Unreadable, Verdict};
use contract::frame::LegEnd;
use serde_json::json;

use crate::world::{Parts, World, scope};

pub async fn pool() -> Pool {
    let launch = Launch::Attached(sandbox::serve_attached);
    let options = PoolOptions { jail: JailPolicy::Off, workers: 1, slots: 16, threads: 2, ..PoolOptions::new(launch) };
    Pool::start(options).await.unwrap()
}

async fn ran(world: &World, code: &str) -> Record {
    let run = world.run();
    let result = run.exec(code).await;
    let run_id = match result["runId"].as_str() {
        Some(run_id) => run_id.to_owned(),
        None => {
            let listed = world.code_mode.store().runs(1).await.unwrap();
            listed[0].run_id.clone()
        }
    };
    Record::read(world.code_mode.store(), &run_id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_is_the_same_when_it_is_gone_through_again() {
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
        let record = ran(&world, code).await;
        let mut verdicts = Vec::new();
        let same = record.replay(&pool, 60_000, |step| verdicts.push(step.verdict.clone())).await.unwrap();
        assert!(same, "{code}: {verdicts:?}");
        assert!(verdicts.iter().all(|verdict| *verdict == Ok(Verdict::Same)), "{code}: {verdicts:?}");
        assert_eq!(verdicts.len(), record.legs.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_another_is_told() {
    let world = Parts::default().open().await;
    let mut record = ran(&world, "return { n: 1 }").await;
    record.run.result = record.run.result.map(|result| result.replace("\"n\":1", "\"n\":2"));
    let mut told = None;
    let same = record.replay(&pool().await, 60_000, |step| told = step.verdict.clone().err()).await.unwrap();
    assert!(!same);
    assert_eq!(told.unwrap().to_string(), "leg 0: expected a return of {\"n\":2}, got a return of {\"n\":1}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_time_than_is_allowed_is_not_taken() {
    let world = Parts::default().open().await;
    let work = "{ const until = 3000000; for (let n = 0; n < until; n++) Math.sqrt(n) }";
    let record = ran(&world, &format!("for (;;) {{ {work} await yield_control() }}")).await;
    let mut legs = Vec::new();
    let played = record.replay(&pool().await, 5, |step| legs.push(step.recorded.leg)).await;
    let Err(Unplayable::Stumble(Stumble::TooLong { leg, allowed_ms: 5 })) = played else { panic!("{played:?}") };
    assert_eq!((leg, legs.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_with_a_hole_is_not_gone_through() {
    let world = Parts::default().open().await;
    let mut record = ran(&world, "await new Promise((done) => setTimeout(done, 1)); return 1").await;
    record.legs.remove(0);
    let played = record.replay(&pool().await, 60_000, |_| {}).await;
    assert!(matches!(played, Err(Unplayable::Stumble(Stumble::Hole(0)))), "{played:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_its_owners_and_timers_of_its_past_do_not_hold_it_up() {
    let world = Parts::default().open().await;
    let code = "const late = setTimeout(() => text('late'), 3600000); const chance = Math.random(); \
                await new Promise((done) => setTimeout(done, 1)); clearTimeout(late); \
                await yield_control(); text(chance); return chance";
    let record = ran(&world, code).await;
    let run_id = record.run.run_id.clone();
    let (code_mode, config) = (&world.code_mode, contract::config::CodeMode::enabled(record.limits().unwrap()));
    let refused = code_mode.fork(&scope("main/other/run"), &config, "fork", &run_id, 1).await;
    assert!(matches!(refused, Err(ForkRefused::Unreadable(Unreadable::NoSuchRun))), "{refused:?}");

    let run = world.run();
    let fork = code_mode.fork(&record.run.scope, &config, "fork", &run_id, 2).await.unwrap();
    let first = run.wait(&fork).await;
    let other = run.wait(&run_id).await;
    assert_eq!((&first["status"], &first["value"]), (&json!("completed"), &other["value"]), "{first}");
    // From its first step, the timer is set again by the step itself, and cleared by it.
    let fork = code_mode.fork(&record.run.scope, &config, "fork", &run_id, 1).await.unwrap();
    let mut result = run.wait(&fork).await;
    while result["status"] == "waiting" {
        result = run.wait(&fork).await;
    }
    assert_eq!(result["value"], other["value"], "{result}");
    // Its own journal is whole: it can be gone through like any other.
    let record = Record::read(code_mode.store(), &fork).await.unwrap();
    let mut last = None;
    assert!(record.replay(&pool().await, 60_000, |step| last = Some(step.ran.clone())).await.unwrap());
    assert!(matches!(last.unwrap().end, LegEnd::Completed { .. }));
}
