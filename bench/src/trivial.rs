//! Measures the smallest cell in the sandbox alone, through a worker, and through `CodeMode::exec`.

use std::sync::Arc;
use std::time::Instant;

use codemode::{CodeMode, ExecInput};
use contract::cell::CellResult;
use contract::config;
use contract::limits::Limits;
use contract::scope::Scope;
use executor::{CannedTools, Executor, Routes, ToolSource};
use figures::Samples;
use serde_json::json;
use store::{Keys, Location, Store};

use crate::cells::CellText;
use crate::ours::{BareSandbox, Runner};
use crate::peer::request;
use crate::stats::us_since;
use crate::{Bench, Result, catalogs};

const ROUNDS: usize = 20;
const OURS: usize = 100;
const PEER: usize = 30;
/// Few samples, because a thread per cell costs the peer tens of milliseconds.
const PEER_THREADS: usize = 2;

#[derive(Default)]
struct Measurements {
    alone: Samples,
    worker: Samples,
    worker_500: Samples,
    reads_500: Samples,
    whole: Samples,
    peer_warm: Samples,
    peer_inprocess: Samples,
    peer_worker: Samples,
}

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    let mut measurements = Measurements::default();
    let alone = BareSandbox::new(&bench.ours.runner.catalog)?;
    let large = Runner { catalog: Arc::new(catalogs::large()?), ..bench.ours.runner.clone() };
    let (code_mode, toolbox) = open_code_mode(bench)?;
    // The first round only warms up, like the peer's unmeasured runs.
    for round in 0..=bench.rounds(ROUNDS) {
        let mut now = Measurements { alone: through_sandbox(&alone, bench)?, ..Measurements::default() };
        let runners = [bench.ours.runner.clone(), large.clone()];
        let texts = [bench.cells.texts("trivial", OURS)?, bench.cells.texts("trivial", OURS)?];
        [now.worker, now.worker_500] = bench.ours.wait_for(alternate(runners, texts))?;
        let texts = reading(bench, OURS / 10)?;
        now.reads_500 = bench.ours.wait_for(through_worker(large.clone(), texts))?;
        let texts = bench.cells.texts("trivial", OURS)?;
        now.whole = bench.ours.wait_for(through_code_mode(code_mode.clone(), toolbox.clone(), texts))?;
        for (mode, count, samples) in [
            ("warm", PEER, &mut now.peer_warm),
            ("inprocess", PEER, &mut now.peer_inprocess),
            ("worker", PEER_THREADS, &mut now.peer_worker),
        ] {
            let seed = bench.cells.reserve_numbers(count);
            *samples = bench.peer.samples(&request("trivial", mode, count, seed), "samples_us")?;
        }
        if round > 0 {
            measurements.add(now);
        }
    }
    measurements.print(bench);
    Ok(())
}

fn through_sandbox(alone: &BareSandbox, bench: &mut Bench) -> Result<Samples> {
    let mut samples = Samples::default();
    for text in bench.cells.texts("trivial", OURS)? {
        let number = bench.cells.reserve_numbers(1);
        let from = Instant::now();
        alone.complete(number, &text)?;
        samples.push(us_since(from));
    }
    Ok(samples)
}

/// Runs a cell on each runner in turn, so that a slow phase of the machine affects both.
async fn alternate(runners: [Runner; 2], texts: [Vec<CellText>; 2]) -> Result<[Samples; 2]> {
    let mut samples = [Samples::default(), Samples::default()];
    let [small, large] = texts;
    for pair in small.into_iter().zip(large) {
        for ((runner, samples), text) in runners.iter().zip(&mut samples).zip([pair.0, pair.1]) {
            let from = Instant::now();
            runner.complete(&text).await?;
            samples.push(us_since(from));
        }
    }
    Ok(samples)
}

async fn through_worker(runner: Runner, texts: Vec<CellText>) -> Result<Samples> {
    let mut samples = Samples::default();
    for text in texts {
        let from = Instant::now();
        runner.complete(&text).await?;
        samples.push(us_since(from));
    }
    Ok(samples)
}

/// Cells that read the whole catalog, which trivial ones do not.
fn reading(bench: &mut Bench, count: usize) -> Result<Vec<CellText>> {
    let mut texts = bench.cells.texts("trivial", count)?;
    for text in &mut texts {
        text.source = text.source.replacen("return ", "return ALL_TOOLS.length-250+", 1);
    }
    Ok(texts)
}

fn open_code_mode(bench: &Bench) -> Result<(CodeMode, Executor)> {
    let canned: Arc<dyn ToolSource> =
        Arc::new(CannedTools::parse(&json!({"tools": [{"id": catalogs::ECHO}]}).to_string())?);
    let (routes, _) = Routes::collect(&[canned]);
    let executor = Executor::new(Arc::clone(&bench.ours.runner.catalog), routes, Scope::default());
    let pool = bench.ours.runner.pool.clone();
    let code_mode = bench.ours.wait_for(async move {
        let store = Store::open(&Location::Memory, Keys::ephemeral()?).await?;
        Ok(CodeMode::new(pool, store)?)
    })?;
    Ok((code_mode, executor))
}

async fn through_code_mode(code_mode: CodeMode, toolbox: Executor, texts: Vec<CellText>) -> Result<Samples> {
    let mut samples = Samples::default();
    let config = config::CodeMode::enabled(Limits::DEFAULT);
    for text in texts {
        let input = ExecInput::javascript(text.source.clone());
        let from = Instant::now();
        match code_mode.exec(&toolbox, &config, "bench", input).await {
            CellResult::Completed { value, .. } => text.check(value.get())?,
            other => return Err(format!("`{}` ended with {other:?}", text.source).into()),
        }
        samples.push(us_since(from));
    }
    Ok(samples)
}

impl Measurements {
    fn add(&mut self, now: Self) {
        self.alone.add(now.alone);
        self.worker.add(now.worker);
        self.worker_500.add(now.worker_500);
        self.reads_500.add(now.reads_500);
        self.whole.add(now.whole);
        self.peer_warm.add(now.peer_warm);
        self.peer_inprocess.add(now.peer_inprocess);
        self.peer_worker.add(now.peer_worker);
    }

    fn print(&self, bench: &mut Bench) {
        let report = &mut bench.report;
        report.heading("trivial cell, from source to result");
        let sandbox = report.compare("in the sandbox alone | one warm worker thread", &self.alone, &self.peer_warm);
        report.compare("in the sandbox alone | in process", &self.alone, &self.peer_inprocess);
        let worker =
            report.compare("through the worker process | one warm worker thread", &self.worker, &self.peer_warm);
        report.compare("through the worker process | in process", &self.worker, &self.peer_inprocess);
        report.compare("through the worker process | a worker thread per cell", &self.worker, &self.peer_worker);
        report.compare("end to end (CodeMode::exec) | one warm worker thread", &self.whole, &self.peer_warm);
        report.show("through the worker process, catalog of 500 tools", &self.worker_500);
        report.show("through the worker process, the cell reads ALL_TOOLS", &self.reads_500);
        let overhead = (self.worker_500.p50() / self.worker.p50() - 1.0) * 100.0;
        println!("overhead of 500 tools for a cell that does not use them: {overhead:.1} %");
        report.fact("peer_trivial_ms", self.peer_warm.p50() / 1e3);
        report.fact("trivial_sandbox_us", self.alone.p50());
        report.fact("trivial_worker_us", self.worker.p50());
        report.fact("trivial_whole_road_us", self.whole.p50());
        report.fact("trivial_worker_ratio", worker);
        report.fact("trivial_sandbox_ratio", sandbox);
        report.fact("catalog_500_overhead_percent", overhead);
    }
}
