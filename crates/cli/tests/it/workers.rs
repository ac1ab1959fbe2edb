//! Worker processes: many cells, misbehaving cells, crashed workers, and workers that break the protocol.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use codemode::pool::{JailPolicy, Launch, Lease, Pool, PoolError, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::cell::{CellResult, Language, OutputItem};
use contract::config::{self, Languages};
use contract::error::ErrorCode;
use contract::frame::{
    Budget, Deliver, Failure, FromWorker, Hello, HostCall, Jail, Leg, LegEnd, Method, Reply, ReplyValue, Start,
};
use contract::ids::{CallId, CellId, ImageId};
use contract::limits::Limits;
use contract::tables::CatalogTables;
use serde_json::json;
use store::{Keys, Location, Store};
use testkit::runner;

fn jailed(workers: usize) -> PoolOptions {
    let launch = Launch::Program(PathBuf::from(env!("CARGO_BIN_EXE_cellmate")));
    PoolOptions { workers, ..PoolOptions::new(launch) }
}

fn tables() -> CatalogTables {
    CatalogTables::new(&BTreeMap::new())
}

fn budget(run_ms: u64) -> Budget {
    Budget { run_ms, memory_bytes: 64 << 20, output_bytes: 64 << 10, clock_us: 1_700_000_000_000_000 }
}

fn cell(source: &str, run_ms: u64) -> Start {
    Start {
        budget: budget(run_ms),
        catalog: tables().hash(),
        seed: 1,
        language: Language::JavaScript,
        languages: Languages::ALL,
        source: source.to_owned(),
    }
}

async fn run(pool: &Pool, source: &str, run_ms: u64) -> Result<(Lease, Leg), PoolError> {
    pool.start_cell(&tables(), cell(source, run_ms)).await
}

async fn value(pool: &Pool, source: &str) -> String {
    match run(pool, source, 5000).await {
        Ok((_, Leg { end: LegEnd::Completed { value }, .. })) => value.get().to_owned(),
        other => panic!("{source}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_jailed_before_it_sees_a_cell() {
    let pool = Pool::start(jailed(2)).await.unwrap();
    assert_eq!(value(&pool, "return 1 + 1").await, "2");
    for hello in pool.workers() {
        assert_eq!(hello.jail, Jail::Full);
    }
    for pid in pool.worker_pids() {
        // Other processes cannot inspect a process that is not dumpable; as root this test still can.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(environment.is_empty());
        // Private writable memory is limited, above what the worker has when idle; address space is not.
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let limit = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().ok()
        };
        let idle = testkit::processes::memory(pid, "VmData").unwrap();
        let data = limit("Max data size").unwrap();
        println!("idle {} MiB, limit {} MiB", idle >> 20, data >> 20);
        assert!(data > idle && data < idle + (4 << 30), "{data} with {idle} when idle");
        assert_eq!(limit("Max address space"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_that_send_too_much_do_not_affect_other_cells() {
    let pool = Pool::start(jailed(1)).await.unwrap();
    let pid = pool.worker_pids();
    let sources = [
        "const s = 'a'.repeat((16 << 20) - 64); for (let i = 0; i < 5; i++) tools.call('a:b:c', s).catch(() => 0)",
        "const s = 'a'.repeat(16 << 20); for (let i = 0; i < 30; i++) tools.describe(s).catch(() => 0)",
        "for (let i = 0; i < 1100; i++) tools.call('a:b:c', 'a'.repeat(1 << 15)).catch(() => 0)",
        "tools.call('a:b:c', Array(4100).fill(Array(1000).fill([0]))).catch(() => 0); tools.describe('x')",
    ];
    let legs = sources.map(|source| {
        let pool = pool.clone();
        tokio::spawn(async move { run(&pool, source, 60_000).await })
    });
    for _ in 0..10 {
        assert_eq!(value(&pool, "return 2").await, "2");
    }
    for (source, leg) in sources.into_iter().zip(legs) {
        let (_, leg) = leg.await.unwrap().unwrap_or_else(|error| panic!("{source}: {error}"));
        let sent = match &leg.end {
            LegEnd::Suspended { calls, .. } => calls.iter().map(|call| call.payload.len() + call.target.len()).sum(),
            LegEnd::Completed { .. } => 0,
            LegEnd::Failed(failure) => panic!("{source}: {failure:?}"),
        };
        assert!(sent <= 32 << 20, "{source}: {sent} bytes");
    }
    assert_eq!(pool.worker_pids(), pid, "the worker must not be replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_cell_resumes_in_another_worker() {
    let pool = Pool::start(jailed(2)).await.unwrap();
    let (lease, leg) = run(
        &pool,
        "const before = { n: 6 }; const r = await tools.call('openclaw:a:b', {}); return before.n + r",
        1000,
    )
    .await
    .unwrap();
    assert!(matches!(leg.end, LegEnd::Suspended { .. }));
    let snapshot = lease.freeze(1 << 20).await.unwrap();
    assert!(snapshot.len() < 8 << 10, "{} bytes", snapshot.len());
    for _ in 0..4 {
        let reply = Reply { call: CallId(1), value: ReplyValue::Resolved(b"1".to_vec()) };
        let deliver = Deliver { budget: budget(1000), replies: vec![reply] };
        let (_, leg) = pool.thaw_cell(&tables(), snapshot.clone(), deliver).await.unwrap();
        assert!(matches!(leg.end, LegEnd::Completed { value } if value.get() == "7"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_cells_do_not_block_other_principals() {
    let pool = Pool::start(jailed(1)).await.unwrap();
    let neighbour = pool.for_principal("neighbour");
    let endless: Vec<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { run(&pool, "for (;;);", 3000).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    for number in 0..50 {
        assert_eq!(value(&neighbour, &format!("return {number}")).await, number.to_string());
    }
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    for cell in endless {
        let (_, leg) = cell.await.unwrap().unwrap();
        assert!(matches!(leg.end, LegEnd::Failed(Failure { code: Some(ErrorCode::Timeout), .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_fails_its_own_cells_and_is_replaced() {
    let pool = Pool::start(jailed(2)).await.unwrap();
    while pool.worker_pids().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let running: Vec<_> = (0..6)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { run(&pool, "for (;;);", 2000).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let victim = pool.worker_pids()[0];
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(victim).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let died = Instant::now();
    while pool.worker_pids().len() < 2 || pool.worker_pids().contains(&victim) {
        assert!(died.elapsed() < Duration::from_secs(1), "not replaced within a second");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut dead, mut timed_out) = (0, 0);
    for cell in running {
        match cell.await.unwrap() {
            Err(PoolError::WorkerDied(_)) => dead += 1,
            Ok((_, leg)) => {
                assert!(matches!(leg.end, LegEnd::Failed(Failure { code: Some(ErrorCode::Timeout), .. })));
                timed_out += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(dead > 0 && timed_out > 0 && dead + timed_out == 6, "{dead} died, {timed_out} ran out of time");
    assert_eq!(value(&pool, "return 'again'").await, "\"again\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_cell_frees_its_slot() {
    let options = PoolOptions { slots: 4, threads: 4, ..jailed(1) };
    let pool = Pool::start(options).await.unwrap();
    for round in 0..40 {
        // One cell is dropped while it runs, one while it waits.
        let endless = tokio::time::timeout(Duration::from_millis(10), run(&pool, "for (;;);", 60_000)).await;
        assert!(endless.is_err(), "round {round}");
        let (lease, leg) = run(&pool, "await tools.call('openclaw:a:b')", 60_000).await.unwrap();
        assert!(matches!(leg.end, LegEnd::Suspended { .. }), "round {round}: {:?}", leg.end);
        drop(lease);
    }
    assert_eq!(value(&pool, "return 1").await, "1");
}

/// Default of `CELLMATE_FAULT_SUSPENDED`, the number of cells that wait; `make test-faults` takes ten thousand.
const WAITING: u64 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn as_many_cells_as_allowed_can_wait_at_once_and_one_more_is_refused() {
    let count = std::env::var("CELLMATE_FAULT_SUSPENDED").ok().and_then(|text| text.parse().ok()).unwrap_or(WAITING);
    let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
    let quotas = config::Quotas { waiting_runs: count, ..config::Quotas::DEFAULT };
    let store = store.bounded(config::Retention::DEFAULT, quotas);
    let code_mode = CodeMode::new(Pool::start(jailed(2)).await.unwrap(), store).unwrap();
    let tools = runner::canned(&json!([{"id": "openclaw:test:never", "answers": [{"never": true}]}])).unwrap();
    let config = config::CodeMode::enabled(Limits { max_wait_ms: 100, ..Limits::DEFAULT });
    let config = config::CodeMode { max_live_runs: count, ..config };
    let mut waiting = Vec::new();
    let numbers: Vec<u64> = (0..count).collect();
    for batch in numbers.chunks(500) {
        let start = |number: &u64| {
            let (code_mode, tools, config) = (code_mode.clone(), tools.clone(), config.clone());
            let source = format!(
                "const mine = {number}; await Promise.race([tools.call('openclaw:test:never'), yield_control()]); return mine"
            );
            tokio::spawn(async move { code_mode.exec(&tools, &config, "exec", ExecInput::javascript(source)).await })
        };
        let batch: Vec<_> = batch.iter().map(start).collect();
        for cell in batch {
            match cell.await.unwrap() {
                CellResult::Waiting { run_id, .. } => waiting.push(run_id),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(waiting.len() as u64, count);
    // The cell has returned, but its call never settles, so the run keeps waiting.
    assert!(matches!(code_mode.wait(&tools, &config, "wait", &waiting[7]).await, CellResult::Waiting { .. }));
    let refused = code_mode.exec(&tools, &config, "exec", ExecInput::javascript("return 1")).await;
    assert!(matches!(refused, CellResult::Failed { code: Some(ErrorCode::RuntimeUnavailable), .. }));
    for run_id in &waiting {
        code_mode.abort(run_id).await;
    }
    assert!(matches!(
        code_mode.wait(&tools, &config, "wait", &waiting[7]).await,
        CellResult::Failed { code: Some(ErrorCode::Aborted), .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_workers_cannot_start_reports_why() {
    let launch = Launch::Program(PathBuf::from("/no/such/program"));
    let error = Pool::start(PoolOptions::new(launch)).await.unwrap_err();
    assert!(matches!(error, PoolError::Unavailable(_)), "{error}");
    let refusing = Launch::InProcess(|mut stream, _, _| {
        stream.write_all(&FromWorker::Unfit { reason: "the jail is required, and there is none".to_owned() }.encode())
    });
    let error = Pool::start(PoolOptions { workers: 1, ..PoolOptions::new(refusing) }).await.unwrap_err();
    assert_eq!(error.to_string(), "no sandbox worker could be started: the jail is required, and there is none");
}

// ---- workers that break the protocol ----

/// A worker that sends a valid hello and answers the first frame with these bytes.
fn liar(answer: fn(CellId) -> Vec<u8>) -> impl Fn(UnixStream) -> std::io::Result<()> {
    move |mut stream| {
        let hello = Hello { image: ImageId([7; 32]), image_bytes: 0, jail: Jail::None, slots: 4, page_scan: false };
        stream.write_all(&FromWorker::Hello(hello).encode())?;
        let mut frame = vec![0; 64 << 10];
        // The catalog precedes the cell that needs it, in the same write.
        let count = stream.read(&mut frame)?;
        let cell = u64::from_le_bytes(last_frame(&frame[..count])[1..9].try_into().unwrap());
        stream.write_all(&answer(CellId(cell)))?;
        // Stay until the host closes the connection.
        while stream.read(&mut frame)? > 0 {}
        Ok(())
    }
}

fn last_frame(mut bytes: &[u8]) -> &[u8] {
    loop {
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let (frame, rest) = bytes[4..].split_at(length);
        if rest.is_empty() {
            return frame;
        }
        bytes = rest;
    }
}

fn leg(cell: CellId, end: LegEnd, output: Vec<OutputItem>) -> Vec<u8> {
    FromWorker::Leg(cell, Leg { end, output, run_us: 1, memory_bytes: 1 }).encode()
}

fn call(id: u32, payload: Vec<u8>) -> HostCall {
    HostCall { id: CallId(id), method: Method::Call, target: "openclaw:a:b".to_owned(), payload }
}

async fn check_lie(launch: Launch, reason: &str) {
    let pool = Pool::start(PoolOptions {
        workers: 1,
        slots: 4,
        threads: 2,
        jail: JailPolicy::Off,
        ..PoolOptions::new(launch)
    })
    .await
    .unwrap();
    match run(&pool, "return 1", 200).await {
        Err(PoolError::WorkerDied(why)) => assert!(why.contains(reason), "{why}"),
        other => panic!("{reason}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_breaks_the_protocol_is_terminated() {
    check_lie(Launch::InProcess(|s, _, _| liar(|_| vec![255; 64])(s)), "frame of 4294967295 bytes").await;
    check_lie(
        Launch::InProcess(|s, _, _| liar(|_| vec![9, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0])(s)),
        "invalid field: kind",
    )
    .await;
    check_lie(Launch::InProcess(|s, _, _| liar(|_| vec![3, 0, 0, 0, 102, 0, 0])(s)), "ends inside a field").await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| leg(CellId(cell.0 + 1), LegEnd::Suspended { calls: vec![], cleared: vec![] }, vec![]))(s)
        }),
        "the worker sent an answer to no request",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| liar(|cell| FromWorker::Frozen { cell, snapshot: vec![1] }.encode())(s)),
        "a leg answered with another frame",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| {
                let flood = OutputItem::Text { text: "x".repeat(100_000) };
                leg(cell, LegEnd::Suspended { calls: vec![], cleared: vec![] }, vec![flood])
            })(s)
        }),
        "more output than was allowed",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| {
                leg(
                    cell,
                    LegEnd::Suspended {
                        calls: (0..2000).map(|id| call(id, b"{}".to_vec())).collect(),
                        cleared: vec![],
                    },
                    vec![],
                )
            })(s)
        }),
        "more calls than a cell may have",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| {
                leg(cell, LegEnd::Suspended { calls: vec![call(1, b"[".repeat(2000))], cleared: vec![] }, vec![])
            })(s)
        }),
        "a call larger than allowed",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| {
                leg(cell, LegEnd::Suspended { calls: vec![call(2, vec![]), call(1, vec![])], cleared: vec![] }, vec![])
            })(s)
        }),
        "calls out of order",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| {
                leg(cell, LegEnd::Suspended { calls: vec![call(1, vec![]), call(1, vec![])], cleared: vec![] }, vec![])
            })(s)
        }),
        "an id used twice",
    )
    .await;
    check_lie(
        Launch::InProcess(|s, _, _| {
            liar(|cell| {
                let payload = vec![b' '; 15 << 20];
                let calls = (1..4).map(|id| call(id, payload.clone())).collect();
                leg(cell, LegEnd::Suspended { calls, cleared: vec![] }, vec![])
            })(s)
        }),
        "more bytes of calls than a cell may have",
    )
    .await;
    check_lie(Launch::InProcess(|s, _, _| liar(|_| Vec::new())(s)), "the worker did not answer within 5200 ms").await;
}
