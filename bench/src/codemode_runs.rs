//! Measures whole runs: `exec` with tool calls through the executor, journaled in a file, suspended and resumed.
//! Those that the incumbent can run too alternate with its runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use catalog::Catalog;
use codemode::{CodeMode, ExecInput};
use contract::cell::CellResult;
use contract::config;
use contract::limits::Limits;
use contract::scope::Scope;
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Executor, Outcome, Routes, ToolResult, ToolSource};
use figures::machine::load_average;
use figures::{Bar, Claim, Samples};
use serde_json::json;
use store::{Keys, Location, Store};

use crate::Result;
use crate::disk::SyncedFile;
use crate::incumbent::{self, Incumbent};
use crate::ours::Ours;
use crate::report::{Report, bytes};
use crate::stats::us_since;

const CLAIMS: [Claim; 6] = [
    ("trivial_recorded_ms", Bar::AtMost(0.2)),
    ("sequential_16_reading_ms", Bar::AtMost(1.2)),
    ("parallel_16_reading_ms", Bar::AtMost(0.9)),
    ("sequential_16_writing_ms", Bar::AtMost(4.0)),
    ("store_load_1000_ms", Bar::AtMost(150.0)),
    ("recorded_per_second", Bar::AtLeast(5_000.0)),
];

const READ: &str = "openclaw:bench:read";
const WRITE: &str = "openclaw:bench:write";
const SUSPENDED: usize = 1_000;

/// Rounds in which both sides take samples, after one that is not counted, and our samples of a cell in each.
const ROUNDS: usize = 10;
const ROUND_SAMPLES: usize = 30;

/// Our unmeasured runs before the samples of a round: the pool was idle while the incumbents ran.
const WAKING_RUNS: usize = 2;
const WAKING_SEED: u64 = 1_000_000_000;

/// Runs at once when cells per second are measured, and our runs in each round.
const CONCURRENT: usize = 24;
const CONCURRENT_ROUNDS: usize = 3;
const CONCURRENT_RUNS: usize = 4_000;
const INCUMBENT_SECONDS: f64 = 3.0;

/// A cell of the table.
struct Cell {
    name: &'static str,
    fact: &'static str,
    /// Its name in the incumbent's script, which has the same cell.
    theirs: Option<&'static str>,
    text: fn(u64) -> Text,
}

/// A source with a number of its own, so that nothing can be reused from an earlier run, and the value it must return.
pub(crate) struct Text {
    source: String,
    expect: u64,
}

const CELLS: [Cell; 8] = [
    Cell { name: "a trivial cell", fact: "trivial_recorded_ms", theirs: Some("trivial"), text: trivial },
    Cell {
        name: "1 call of a reading tool",
        fact: "one_reading_ms",
        theirs: None,
        text: |number| sequential(READ, 1, number),
    },
    Cell {
        name: "16 calls of a reading tool, one after the other",
        fact: "sequential_16_reading_ms",
        theirs: Some("sequential_16"),
        text: |number| sequential(READ, 16, number),
    },
    Cell {
        name: "16 calls of a reading tool, concurrently",
        fact: "parallel_16_reading_ms",
        theirs: Some("parallel_16"),
        text: |number| parallel(READ, number),
    },
    Cell {
        name: "1 call of a tool that must not be called twice",
        fact: "one_writing_ms",
        theirs: None,
        text: |number| sequential(WRITE, 1, number),
    },
    Cell {
        name: "16 calls of such a tool, one after the other",
        fact: "sequential_16_writing_ms",
        theirs: None,
        text: |number| sequential(WRITE, 16, number),
    },
    Cell {
        name: "16 calls of such a tool, concurrently",
        fact: "parallel_16_writing_ms",
        theirs: None,
        text: |number| parallel(WRITE, number),
    },
    Cell { name: "1,000 pairs of `store` and `load`", fact: "store_load_1000_ms", theirs: None, text: store_and_load },
];

fn store_and_load(number: u64) -> Text {
    let source = format!(
        "let n={number};for(let i=0;i<1000;i++){{await store('k'+i%8,i);if(await load('k'+i%8)===i)n++}}return n"
    );
    Text { source, expect: number + 1_000 }
}

/// Two tools that immediately return their input: one that only reads, one that must not be called twice.
#[derive(Debug)]
struct Tools;

impl ToolSource for Tools {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |id: &str, repeat| {
            let id = ToolId::parse(id).ok()?;
            Some(ToolSpec { repeat, ..ToolSpec::new(id, "Returns its input.", json!({"type": "object"})) })
        };
        [tool(READ, Repeat::Always), tool(WRITE, Repeat::Never)].into_iter().flatten().collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        let input = call.input().clone();
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Returned(ToolResult::json(input)))))
    }
}

#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) code_mode: CodeMode,
    pub(crate) executor: Executor,
    pub(crate) config: config::CodeMode,
}

/// Runs the benchmark and returns whether every bar was met.
pub(crate) fn run(quick: bool) -> Result<bool> {
    let load = load_average()?;
    let ours = Ours::start()?;
    println!("ours: {}; load average before: {load:.2}", ours.describe());
    let mut report = Report::new();
    report.fact("load_average", load);
    let folder = std::env::temp_dir().join(format!("cellmate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(&ours, &mut report, &folder, quick);
    std::fs::remove_dir_all(&folder)?;
    let compared = measured?;
    println!("\nload average after: {:.2}", load_average()?);
    let claims = CLAIMS.into_iter().chain(incumbent::CLAIMS.into_iter().filter(|_| compared));
    report.verdict(&claims.collect::<Vec<_>>())
}

/// Measures everything and returns whether the incumbent that has bars was among it.
fn measure(ours: &Ours, report: &mut Report, folder: &Path, quick: bool) -> Result<bool> {
    let setup = open(ours, &folder.join("runs.db"), vec![Arc::new(Tools)])?;
    let mut incumbents = incumbent::start(folder);
    for incumbent in &incumbents {
        println!("peer: {} under Node {}", incumbent.describe(), incumbent.node());
    }
    let mut synced = SyncedFile::create(&folder.join("synced"))?;
    let (samples, synced) = alternate(ours, &setup, &mut incumbents, &mut synced, if quick { 1 } else { ROUNDS })?;
    let per_second = alternate_concurrent(ours, &setup, &mut incumbents, if quick { 1 } else { CONCURRENT_ROUNDS })?;
    let compared = show(report, &incumbents, &samples, per_second)?;
    report.heading("the disk");
    report.show("4 KiB written and synchronised", &synced);
    report.fact("synced_write_ms", synced.p50() / 1e3);
    // Idle processes would still take memory and a little time from what is measured next.
    drop(incumbents);

    let (suspend, resume) = ours.wait_for(suspended(setup))?;
    report.heading(&format!("{SUSPENDED} suspended runs"));
    report.show("exec to `waiting`, written", &suspend);
    report.show("wait to its result", &resume);
    report.fact("suspend_ms", suspend.p50() / 1e3);
    report.fact("resume_ms", resume.p50() / 1e3);
    let stored = std::fs::metadata(folder.join("runs.db"))?.len() as f64;
    println!("size of the store file after all of the above: {}", bytes(stored));
    catalogs(ours, report, folder)?;
    Ok(compared)
}

/// Runs every cell in rounds, ours and then each incumbent's. Returns our samples of each, and those of the disk, which is
/// measured in each round, too.
fn alternate(
    ours: &Ours,
    setup: &Setup,
    incumbents: &mut [Incumbent],
    file: &mut SyncedFile,
    rounds: usize,
) -> Result<(Vec<Samples>, Samples)> {
    let mut all = vec![Samples::default(); CELLS.len()];
    let mut synced = Samples::default();
    for round in 0..=rounds {
        if round == 1 {
            all.fill(Samples::default());
            synced = Samples::default();
            incumbents.iter_mut().for_each(Incumbent::discard_samples);
        }
        for (cell, samples) in CELLS.iter().zip(&mut all) {
            let seed = 1 + (round * ROUND_SAMPLES) as u64;
            ours.wait_for(executed(setup.clone(), cell.text, WAKING_SEED + seed, WAKING_RUNS))?;
            samples.add(ours.wait_for(executed(setup.clone(), cell.text, seed, ROUND_SAMPLES))?);
            for incumbent in &mut *incumbents {
                cell.theirs.map_or(Ok(()), |theirs| incumbent.run(theirs, seed))?;
            }
        }
        synced.add(file.write(ROUND_SAMPLES)?);
    }
    Ok((all, synced))
}

/// Measures trivial cells per second in rounds, ours and then each incumbent's, and returns the median of ours.
fn alternate_concurrent(ours: &Ours, setup: &Setup, incumbents: &mut [Incumbent], rounds: usize) -> Result<f64> {
    let mut rates = Samples::default();
    for round in 0..=rounds {
        if round == 1 {
            rates = Samples::default();
            incumbents.iter_mut().for_each(Incumbent::discard_rates);
        }
        let seed = 1 + (round * CONCURRENT_RUNS) as u64;
        let from = Instant::now();
        let runs = ours.wait_for(concurrent(setup.clone(), seed))?;
        rates.push(runs as f64 / from.elapsed().as_secs_f64());
        for incumbent in &mut *incumbents {
            incumbent.concurrent(CONCURRENT, INCUMBENT_SECONDS, seed)?;
        }
    }
    Ok(rates.p50())
}

/// Prints a table with the first incumbent as the peer, then one for each other. Returns whether the first has bars.
fn show(report: &mut Report, incumbents: &[Incumbent], samples: &[Samples], per_second: f64) -> Result<bool> {
    let rate = format!("trivial cells per second, {CONCURRENT} at once");
    let main = incumbents.first().filter(|incumbent| incumbent.has_bars());
    let peer = main.map_or(String::new(), |peer| format!("; peer: {}", peer.describe()));
    report.heading(&format!("a recorded run{peer}"));
    for (cell, samples) in CELLS.iter().zip(samples) {
        match (main, cell.theirs) {
            (Some(main), Some(theirs)) => main.compare(report, cell.name, theirs, samples)?,
            _ => report.show(cell.name, samples),
        }
        report.fact(cell.fact, samples.p50() / 1e3);
    }
    match main {
        Some(main) => main.compare_rates(report, &rate, per_second),
        None => println!("{rate}: {per_second:.0}"),
    }
    report.fact("recorded_per_second", per_second);
    for other in incumbents.iter().filter(|incumbent| !incumbent.has_bars()) {
        report.heading(&format!("peer: {}", other.describe()));
        for (cell, samples) in CELLS.iter().zip(samples) {
            cell.theirs.map_or(Ok(()), |theirs| other.compare(report, cell.name, theirs, samples))?;
        }
        other.compare_rates(report, &rate, per_second);
    }
    Ok(main.is_some())
}

fn catalogs(ours: &Ours, report: &mut Report, folder: &Path) -> Result<()> {
    report.heading("a catalog built, and a first cell in it");
    for count in [20, 500, 10_000] {
        let tools = many_tools(count)?;
        let samples: Result<Samples> = (0..5)
            .map(|_| {
                let tools = tools.clone();
                let from = Instant::now();
                Catalog::new(tools)?;
                Ok(us_since(from))
            })
            .collect();
        let samples = samples?;
        report.show(&format!("catalog of {count} tools"), &samples);
        report.fact(&format!("catalog_{count}_ms"), samples.p50() / 1e3);
        let many: Arc<dyn ToolSource> = Arc::new(Many(tools));
        let setup = open(ours, &folder.join(format!("{count}.db")), vec![many])?;
        let first = ours.wait_for(executed(setup, all_tools, count as u64, 1))?;
        report.show(&format!("first cell, which reads all {count}"), &first);
        report.fact(&format!("first_cell_{count}_ms"), first.p50() / 1e3);
    }
    Ok(())
}

/// Tools that are listed but never called.
#[derive(Debug)]
pub(crate) struct Many(pub(crate) Vec<ToolSpec>);

impl ToolSource for Many {
    fn tools(&self) -> Vec<ToolSpec> {
        self.0.clone()
    }

    fn call(&self, _: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Unknown)))
    }
}

pub(crate) fn many_tools(count: usize) -> Result<Vec<ToolSpec>> {
    (0..count)
        .map(|number| {
            let id = ToolId::parse(&format!("plugin:owner{}:tool_{number}", number % 50))?;
            let parameters = json!({
                "type": "object",
                "properties": {"name": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["name"],
            });
            let description = format!("Lists record {number} by name, newest first, at most `limit` of them.");
            Ok(ToolSpec::new(id, description, parameters))
        })
        .collect()
}

pub(crate) fn open(ours: &Ours, path: &Path, sources: Vec<Arc<dyn ToolSource>>) -> Result<Setup> {
    let (routes, tools) = Routes::collect(&sources);
    let executor = Executor::new(Arc::new(Catalog::new(tools)?), routes, Scope::default());
    let (pool, location) = (ours.runner.pool.clone(), Location::File(path.to_owned()));
    let code_mode = ours.wait_for(async move {
        let store = Store::open(&location, Keys::ephemeral()?).await?;
        Ok(CodeMode::new(pool, store)?)
    })?;
    Ok(Setup { code_mode, executor, config: config::CodeMode::enabled(Limits::DEFAULT) })
}

pub(crate) fn trivial(number: u64) -> Text {
    Text { source: format!("return {number}"), expect: number }
}

/// A cell that reads a catalog of so many tools.
pub(crate) fn all_tools(count: u64) -> Text {
    Text { source: "return ALL_TOOLS.length".to_owned(), expect: count }
}

fn sequential(tool: &str, calls: u64, number: u64) -> Text {
    let call = format!("(await tools.call('{tool}', {{ i: 1 }})).i");
    let source = format!("let n = {number}; for (let i = 0; i < {calls}; i++) n += {call}; return n");
    Text { source, expect: number + calls }
}

fn parallel(tool: &str, number: u64) -> Text {
    let call = format!("(await tools.call('{tool}', {{ i }})).i");
    let source = format!(
        "const all = await Promise.all(Array.from({{ length: 16 }}, async (_, i) => {call})); \
         return all.reduce((sum, i) => sum + i, {number})"
    );
    Text { source, expect: number + 120 }
}

/// Runs `count` cells one after the other, whose numbers start with `seed`, and checks their values.
pub(crate) async fn executed(setup: Setup, text: fn(u64) -> Text, seed: u64, count: usize) -> Result<Samples> {
    let mut samples = Samples::default();
    for number in (seed..).take(count) {
        let Text { source, expect } = text(number);
        let input = ExecInput::javascript(source);
        let from = Instant::now();
        match setup.code_mode.exec(&setup.executor, &setup.config, "bench", input).await {
            CellResult::Completed { value, .. } if value.get() == expect.to_string() => samples.push(us_since(from)),
            other => return Err(format!("`{}` ended with {other:?}", text(number).source).into()),
        }
    }
    Ok(samples)
}

/// Runs trivial cells, `CONCURRENT` at once, and returns how many.
async fn concurrent(setup: Setup, seed: u64) -> Result<usize> {
    let each = CONCURRENT_RUNS / CONCURRENT;
    let lane = |lane| tokio::spawn(executed(setup.clone(), trivial, seed + (lane * each) as u64, each));
    for task in (0..CONCURRENT).map(lane).collect::<Vec<_>>() {
        task.await??;
    }
    Ok(each * CONCURRENT)
}

async fn suspended(setup: Setup) -> Result<(Samples, Samples)> {
    let (mut suspend, mut resume, mut waiting) = (Samples::default(), Samples::default(), Vec::new());
    for number in 0..SUSPENDED {
        let source = format!("const mine = {number}; await yield_control(); return mine");
        let from = Instant::now();
        match setup.code_mode.exec(&setup.executor, &setup.config, "bench", ExecInput::javascript(source)).await {
            CellResult::Waiting { run_id, .. } => waiting.push(run_id),
            other => return Err(format!("a yielding cell ended with {other:?}").into()),
        }
        suspend.push(us_since(from));
    }
    for (number, run_id) in waiting.iter().enumerate() {
        let from = Instant::now();
        match setup.code_mode.wait(&setup.executor, &setup.config, "bench", run_id).await {
            CellResult::Completed { value, .. } if value.get() == number.to_string() => resume.push(us_since(from)),
            other => return Err(format!("run {number} ended with {other:?}").into()),
        }
    }
    Ok((suspend, resume))
}
