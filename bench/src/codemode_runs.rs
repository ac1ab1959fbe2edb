//! Measures whole runs: `exec` with tool calls through the executor, journaled in a file, suspended and resumed.

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
use crate::ours::Ours;
use crate::report::{Report, bytes};
use crate::stats::us_since;

const CLAIMS: [Claim; 5] = [
    ("trivial_recorded_ms", Bar::AtMost(0.2)),
    ("sequential_16_reading_ms", Bar::AtMost(1.2)),
    ("parallel_16_reading_ms", Bar::AtMost(0.9)),
    ("sequential_16_writing_ms", Bar::AtMost(4.0)),
    ("recorded_per_second", Bar::AtLeast(5_000.0)),
];

const READ: &str = "openclaw:bench:read";
const WRITE: &str = "openclaw:bench:write";
const ROUNDS: usize = 300;
const SUSPENDED: usize = 1_000;

/// Runs at once, and in total, when cells per second are measured.
const CONCURRENT: usize = 24;
const CONCURRENT_RUNS: usize = 12_000;

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
struct Setup {
    code_mode: CodeMode,
    executor: Executor,
    config: config::CodeMode,
}

/// Runs the benchmark and returns whether every bar was met.
pub(crate) fn run() -> Result<bool> {
    let load = load_average()?;
    let ours = Ours::start()?;
    println!("ours: {}; load average before: {load:.2}", ours.describe());
    let mut report = Report::new();
    report.fact("load_average", load);
    let folder = std::env::temp_dir().join(format!("cellmate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(&ours, &mut report, &folder);
    std::fs::remove_dir_all(&folder)?;
    measured?;
    println!("\nload average after: {:.2}", load_average()?);
    report.verdict(&CLAIMS)
}

fn measure(ours: &Ours, report: &mut Report, folder: &Path) -> Result<()> {
    let setup = open(ours, &folder.join("runs.db"), vec![Arc::new(Tools)])?;
    report.heading("a run with its journal in a file");
    let cells = [
        ("a trivial cell", "trivial_recorded_ms", "return 1".to_owned()),
        ("1 call of a reading tool", "one_reading_ms", sequential(READ, 1)),
        ("16 calls of a reading tool, one after the other", "sequential_16_reading_ms", sequential(READ, 16)),
        ("16 calls of a reading tool, concurrently", "parallel_16_reading_ms", parallel(READ)),
        ("1 call of a tool that must not be called twice", "one_writing_ms", sequential(WRITE, 1)),
        ("16 calls of such a tool, one after the other", "sequential_16_writing_ms", sequential(WRITE, 16)),
        ("16 calls of such a tool, concurrently", "parallel_16_writing_ms", parallel(WRITE)),
    ];
    for (name, fact, source) in cells {
        let samples = ours.wait_for(executed(setup.clone(), source, ROUNDS))?;
        report.show(name, &samples);
        report.fact(fact, samples.p50() / 1e3);
    }
    let from = Instant::now();
    ours.wait_for(concurrent(setup.clone()))?;
    let per_second = CONCURRENT_RUNS as f64 / from.elapsed().as_secs_f64();
    println!("trivial cells per second, {CONCURRENT} at once: {per_second:.0}");
    report.fact("recorded_per_second", per_second);
    let (suspend, resume) = ours.wait_for(suspended(setup))?;
    report.heading(&format!("{SUSPENDED} suspended runs"));
    report.show("exec to `waiting`, written", &suspend);
    report.show("wait to its result", &resume);
    report.fact("suspend_ms", suspend.p50() / 1e3);
    report.fact("resume_ms", resume.p50() / 1e3);
    let stored = std::fs::metadata(folder.join("runs.db"))?.len() as f64;
    println!("size of the store file after all of the above: {}", bytes(stored));
    catalogs(ours, report, folder)
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
        let first = ours.wait_for(executed(setup.clone(), "return ALL_TOOLS.length".to_owned(), 1))?;
        report.show(&format!("first cell, which reads all {count}"), &first);
        report.fact(&format!("first_cell_{count}_ms"), first.p50() / 1e3);
    }
    Ok(())
}

/// Tools that are listed but never called.
#[derive(Debug)]
struct Many(Vec<ToolSpec>);

impl ToolSource for Many {
    fn tools(&self) -> Vec<ToolSpec> {
        self.0.clone()
    }

    fn call(&self, _: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(std::future::ready(Dispatch::Settled(Outcome::Unknown)))
    }
}

fn many_tools(count: usize) -> Result<Vec<ToolSpec>> {
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

fn open(ours: &Ours, path: &Path, sources: Vec<Arc<dyn ToolSource>>) -> Result<Setup> {
    let (routes, tools) = Routes::collect(&sources);
    let executor = Executor::new(Arc::new(Catalog::new(tools)?), routes, Scope::default());
    let (pool, location) = (ours.runner.pool.clone(), Location::File(path.to_owned()));
    let code_mode = ours.wait_for(async move {
        let store = Store::open(&location, Keys::ephemeral()?).await?;
        Ok(CodeMode::new(pool, store)?)
    })?;
    Ok(Setup { code_mode, executor, config: config::CodeMode::enabled(Limits::DEFAULT) })
}

fn sequential(tool: &str, calls: usize) -> String {
    format!("let n = 0; for (let i = 0; i < {calls}; i++) n += (await tools.call('{tool}', {{ i: 1 }})).i; return n")
}

fn parallel(tool: &str) -> String {
    format!("return (await Promise.all(Array.from({{ length: 16 }}, (_, i) => tools.call('{tool}', {{ i }})))).length")
}

async fn executed(setup: Setup, source: String, rounds: usize) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let input = ExecInput::javascript(source.clone());
        let from = Instant::now();
        match setup.code_mode.exec(&setup.executor, &setup.config, "bench", input).await {
            CellResult::Completed { .. } => samples.push(us_since(from)),
            other => return Err(format!("`{source}` ended with {other:?}").into()),
        }
    }
    Ok(samples)
}

async fn concurrent(setup: Setup) -> Result<()> {
    let rounds = CONCURRENT_RUNS / CONCURRENT;
    let tasks = (0..CONCURRENT).map(|_| tokio::spawn(executed(setup.clone(), "return 1".to_owned(), rounds)));
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
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
