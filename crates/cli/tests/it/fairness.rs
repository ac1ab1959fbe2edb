//! Worker processes shared by principals: one that uses all it can get must not slow down another.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use codemode::pool::{Launch, Pool, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::cell::{CellResult, Language};
use contract::config::{self, Languages};
use contract::error::ErrorCode;
use contract::frame::{Budget, LegEnd, Start};
use contract::limits::{Limits, MAX_QUEUED_CELLS};
use contract::scope::Scope;
use contract::tables::CatalogTables;
use executor::{CannedTools, Executor};
use store::{Keys, Location, Store};
use tokio::task::{JoinHandle, JoinSet};

const ENDLESS: &str = "for (;;);";

/// Allocates nearly all of its memory limit and keeps using it.
const HUNGRY: &str = "const held = []; for (let i = 0; i < 50; i++) held.push(new Uint8Array(1 << 20).fill(i)); \
                      for (;;) for (const block of held) block.fill(7);";

/// Holds 50 MiB while a tool call is in progress.
const HOLDS_MEMORY: &str = "const held = []; for (let i = 0; i < 50; i++) held.push(new Uint8Array(1 << 20).fill(i)); \
                            await tools.call('openclaw:test:slow', {}); return held.length";

/// Upper bound for a worker's memory: the heaps of its cells and its own needs.
const MAX_WORKER_MIB: u64 = 400;

/// Generous, because a debug build shares two cores with other tests; `bench` measures an optimised build.
const MAX_DELAY: Duration = Duration::from_millis(1500);

struct Lab {
    pool: Pool,
    code_mode: CodeMode,
}

impl Lab {
    async fn start() -> Self {
        let launch = Launch::Program(PathBuf::from(env!("CARGO_BIN_EXE_cellmate")));
        let pool = Pool::start(PoolOptions { workers: 2, ..PoolOptions::new(launch) }).await.unwrap();
        while pool.worker_pids().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let store = Store::open(&Location::Memory, Keys::ephemeral().unwrap()).await.unwrap();
        let code_mode = CodeMode::new(pool.clone(), store).unwrap();
        Self { pool, code_mode }
    }

    fn spawn(&self, principal: &str, source: &str, timeout_ms: u64) -> JoinHandle<CellResult> {
        let (code_mode, tools) = (self.code_mode.clone(), tools(principal));
        let config = config::CodeMode::enabled(Limits { timeout_ms, max_wait_ms: 60_000, ..Limits::DEFAULT });
        let input = ExecInput::javascript(source.to_owned());
        tokio::spawn(async move { code_mode.exec(&tools, &config, "exec", input).await })
    }

    /// Runs trivial cells of a principal one after another and returns their durations, slowest last.
    async fn latencies(&self, principal: &str, count: usize) -> Vec<Duration> {
        let mut all = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            let result = self.spawn(principal, "return 2", 5000).await.unwrap();
            assert!(matches!(result, CellResult::Completed { .. }), "{result:?}");
            all.push(began.elapsed());
        }
        all.sort_unstable();
        all
    }

    /// Memory of each worker in MiB: current (`VmRSS`) or peak (`VmHWM`).
    fn memory_mib(&self, field: &str) -> Vec<u64> {
        let of = |pid: u32| testkit::processes::memory(pid, field).unwrap() >> 20;
        self.pool.worker_pids().into_iter().map(of).collect()
    }

    fn assert_workers_small(&self) {
        let peaks = self.memory_mib("VmHWM");
        assert!(peaks.iter().all(|peak| *peak < MAX_WORKER_MIB), "workers took {peaks:?} MiB");
        println!("workers took {peaks:?} MiB");
    }
}

fn tools(principal: &str) -> Executor {
    let scope = Scope { agent_id: principal.to_owned(), session_id: principal.to_owned(), ..Scope::default() };
    let slow = r#"{"tools": [{"id": "openclaw:test:slow", "answers": [{"returns": 1, "afterMs": 300}]}]}"#;
    CannedTools::parse(slow).unwrap().executor(scope).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_and_memory_hungry_cells_of_one_principal_do_not_delay_another() {
    let lab = Lab::start().await;
    // Four run at once: two of each kind.
    let mut cells = vec![lab.spawn("ada", HUNGRY, 60_000), lab.spawn("ada", HUNGRY, 60_000)];
    tokio::time::sleep(Duration::from_millis(200)).await;
    cells.extend((0..60).map(|_| lab.spawn("ada", ENDLESS, 60_000)));
    cells.extend((0..2).map(|_| lab.spawn("ada", HUNGRY, 60_000)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let during = lab.latencies("bob", 100).await;
    let (median, p99) = (during[50], during[98]);
    println!("median {median:?}, p99 {p99:?}");
    assert!(p99 < MAX_DELAY, "median {median:?}, p99 {p99:?}");
    lab.assert_workers_small();
    // They still run or wait in the queue: none was refused.
    assert!(cells.iter().all(|cell| !cell.is_finished()));
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_that_hold_memory_while_a_tool_works_stay_within_the_heap_and_all_finish() {
    let lab = Lab::start().await;
    let at_rest = lab.memory_mib("VmRSS");
    let began = Instant::now();
    let cells: Vec<_> = (0..16).map(|_| lab.spawn("ada", HOLDS_MEMORY, 30_000)).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let during = lab.latencies("bob", 20).await;
    assert!(during[19] < Duration::from_secs(5), "{during:?}");
    println!("slowest {:?}", during[19]);
    for cell in cells {
        let result = cell.await.unwrap();
        assert!(matches!(&result, CellResult::Completed { value, .. } if value.get() == "50"), "{result:?}");
    }
    println!("all finished in {:?}", began.elapsed());
    lab.assert_workers_small();
    // The memory of finished cells is returned to the system.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let now = lab.memory_mib("VmRSS");
        if now.iter().zip(&at_rest).all(|(now, at_rest)| *now <= at_rest + 64) {
            println!("{at_rest:?} MiB at the start, {now:?} at the end");
            break;
        }
        assert!(Instant::now() < deadline, "{at_rest:?} MiB at the start, {now:?} ten seconds after the end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_dropped_while_waiting_or_running_release_their_turns() {
    let lab = Lab::start().await;
    let ada = lab.pool.for_principal("ada");
    let tables = CatalogTables::new(&BTreeMap::new());
    let budget = |run_ms| Budget { run_ms, memory_bytes: 64 << 20, output_bytes: 1 << 10, clock_us: 0 };
    let cell = |source: &str, run_ms| Start {
        budget: budget(run_ms),
        catalog: tables.hash(),
        seed: 1,
        language: Language::JavaScript,
        languages: Languages::ALL,
        source: source.to_owned(),
    };
    for round in 0..8 {
        // The first four run, the others wait. They are dropped at various times, some just as their turn is granted.
        let mut cells = JoinSet::new();
        for _ in 0..40 {
            let (ada, tables, start) = (ada.clone(), tables.clone(), cell(ENDLESS, 60_000));
            cells.spawn(async move { ada.start_cell(&tables, start).await });
        }
        tokio::time::sleep(Duration::from_millis(3 * round)).await;
        cells.shutdown().await;
    }
    let (_, leg) = ada.start_cell(&tables, cell("return 1", 5000)).await.unwrap();
    assert!(matches!(leg.end, LegEnd::Completed { .. }), "{leg:?}");
    let deadline = Instant::now() + Duration::from_secs(5);
    while lab.pool.running_legs() > 0 {
        assert!(Instant::now() < deadline, "{} legs never ended", lab.pool.running_legs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_cells_of_a_single_principal_finish_quickly() {
    let lab = Lab::start().await;
    let began = Instant::now();
    for _ in 0..10 {
        let cells: Vec<_> = (0..24).map(|number| lab.spawn("ada", &format!("return {number}"), 10_000)).collect();
        for cell in cells {
            assert!(matches!(cell.await.unwrap(), CellResult::Completed { .. }));
        }
    }
    println!("ten times 24 cells took {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_with_a_full_queue_is_refused_and_another_is_not() {
    let lab = Lab::start().await;
    let mut cells: Vec<_> = (0..8).map(|_| lab.spawn("ada", ENDLESS, 60_000)).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    cells.extend((0..MAX_QUEUED_CELLS).map(|_| lab.spawn("ada", "return 1", 1000)));
    let deadline = Instant::now() + Duration::from_secs(20);
    // Each cell is a separate task; once all of them are in the queue, the next is refused.
    let refused = loop {
        let probe = lab.spawn("ada", "return 1", 1000);
        if let Ok(result) = tokio::time::timeout(Duration::from_secs(1), probe).await {
            break result.unwrap();
        }
        assert!(Instant::now() < deadline, "no cell was refused");
    };
    match refused {
        CellResult::Failed { code: Some(ErrorCode::RuntimeUnavailable), error, .. } => {
            assert!(error.contains("already wait for a sandbox worker"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    lab.latencies("bob", 3).await;
    cells.iter().for_each(JoinHandle::abort);
}
