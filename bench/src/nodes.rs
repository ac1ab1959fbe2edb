//! Measures a run with a megabyte of live data that is suspended on one node and resumed on another after the first has
//! ended.
//!
//! Each node is a separate runtime with a pool and a store. If `CELLMATE_TEST_POSTGRES` names a server, everything is
//! measured on it, too.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use catalog::Catalog;
use codemode::pool::{Launch, Pool, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::cell::CellResult;
use contract::config;
use contract::ids::{CallId, RunId};
use contract::limits::Limits;
use contract::scope::Scope;
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{
    AuthorizedCall, CallFuture, CallToken, Dispatch, Executor, Outcome, ParkedOn, Routes, ToolResult, ToolSource,
};
use figures::machine::load_average;
use figures::{Bar, Claim, Samples};
use serde_json::json;
use store::{Keys, Location, Store};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

use crate::Result;
use crate::codemode_runs::Setup;
use crate::report::Report;
use crate::stats::us_since;

/// Bars for the p99 of resuming. Resuming after a kill has no bar, because a lease of 3 s must expire first.
const CLAIMS: [Claim; 4] = [
    ("resume_waited_sqlite_p99_ms", Bar::AtMost(150.0)),
    ("resume_left_sqlite_p99_ms", Bar::AtMost(150.0)),
    ("resume_waited_postgres_p99_ms", Bar::AtMost(150.0)),
    ("resume_left_postgres_p99_ms", Bar::AtMost(150.0)),
];

const ROUNDS: usize = 200;
/// Runs resumed after a kill. Few, because they wait for a lease to expire.
const KILLED_RUNS: usize = 20;

const PARKED: &str = "client:bench:pick";
const WORKING: &str = "openclaw:bench:read";

/// Fills a megabyte with data that does not compress, and reads it again after the call.
const CELL: &str = "const kept = new Uint32Array(1 << 18); let x = SEED + 1
    const next = () => { x ^= x << 13; x ^= x >>> 17; x ^= x << 5; return x >>> 0 }
    for (let i = 0; i < kept.length; i++) kept[i] = next()
    const calling = tools.call('TOOL', {}); PAUSE
    const got = await calling
    let sum = 0; for (let i = 0; i < kept.length; i += 1024) sum += kept[i]
    return [got.n, sum > 0]";

/// One tool that a client answers, and one that only reads. On the node that is ended, `answers` is false and the
/// latter never returns.
#[derive(Debug)]
struct Tools {
    answers: bool,
}

impl ToolSource for Tools {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |id: &str, repeat| {
            let id = ToolId::parse(id).ok()?;
            Some(ToolSpec { repeat, ..ToolSpec::new(id, "Gives a number.", json!({"type": "object"})) })
        };
        [tool(PARKED, Repeat::Never), tool(WORKING, Repeat::Always)].into_iter().flatten().collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            if call.id().as_str() == PARKED {
                return Dispatch::Parked(ParkedOn::Client);
            }
            if !self.answers {
                return std::future::pending().await;
            }
            Dispatch::Settled(Outcome::Returned(ToolResult::json(json!({"n": 7}))))
        })
    }
}

pub(crate) struct Node {
    runtime: Runtime,
    pub(crate) setup: Setup,
}

impl Node {
    pub(crate) fn start(location: &Location, answers: bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (routes, tools) = Routes::collect(&[Arc::new(Tools { answers }) as Arc<dyn ToolSource>]);
        let executor = Executor::new(Arc::new(Catalog::new(tools)?), routes, Scope::default());
        let code_mode = runtime.block_on(async {
            let store = Store::open(location, Keys::new(1, [7; 32])).await?;
            let pool = Pool::start(PoolOptions::new(Launch::ThisProgram)).await?;
            Ok::<_, crate::BoxError>(CodeMode::new(pool, store)?)
        })?;
        Ok(Self { runtime, setup: Setup { code_mode, executor, config: config::CodeMode::enabled(Limits::DEFAULT) } })
    }

    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.runtime.block_on(async { tokio::spawn(work).await? })
    }

    /// Starts `work` on the node's own threads.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> JoinHandle<Result<T>> {
        self.runtime.spawn(work)
    }

    /// Ends the node in an orderly way.
    pub(crate) fn shut_down(self) -> Result<()> {
        let code_mode = self.setup.code_mode.clone();
        self.wait_for(async move { Ok(code_mode.shut_down().await?) })?;
        self.kill();
        Ok(())
    }

    /// Ends the node as if it were killed, without releasing its runs.
    fn kill(self) {
        drop(self.setup);
        self.runtime.shutdown_background();
    }
}

/// Whether every bar was met.
pub(crate) fn run(quick: bool) -> Result<bool> {
    let load = load_average()?;
    println!("load average before: {load:.2}");
    let mut report = Report::new();
    report.fact("load_average", load);
    let folder = std::env::temp_dir().join(format!("cellmate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(&mut report, &folder, if quick { ROUNDS / 10 } else { ROUNDS });
    std::fs::remove_dir_all(&folder)?;
    measured?;
    println!("\nload average after: {:.2}", load_average()?);
    let measured = if std::env::var(SERVER).is_ok() { CLAIMS.len() } else { CLAIMS.len() / 2 };
    report.verdict(CLAIMS.get(..measured).unwrap_or(&CLAIMS))
}

/// The environment variable that names a Postgres server.
pub(crate) const SERVER: &str = "CELLMATE_TEST_POSTGRES";

fn measure(report: &mut Report, folder: &Path, rounds: usize) -> Result<()> {
    let mut stores = vec![("sqlite", Location::File(folder.join("runs.db")))];
    if let Ok(server) = std::env::var(SERVER) {
        stores.push(("postgres", Location::Postgres(server)));
    }
    for (name, location) in stores {
        report.heading(&format!("a run with 1 MB of live data, resumed on another node | {name}"));
        let waited = resume_waiting(&location, rounds)?;
        report.show("waiting for a client; its node was killed", &waited);
        let left = resume_after_shutdown(&location, rounds)?;
        report.show("with a running tool; its node shut down", &left);
        let killed = resume_after_kill(&location)?;
        report.show("with a running tool; its node was killed (a lease of 3 s)", &killed);
        for (what, samples) in [("waited", &waited), ("left", &left), ("killed", &killed)] {
            report.fact(&format!("resume_{what}_{name}_p50_ms"), samples.p50() / 1e3);
            report.fact(&format!("resume_{what}_{name}_p99_ms"), samples.p99() / 1e3);
        }
    }
    Ok(())
}

/// Resumes runs that wait for a client. No node holds them, so it does not matter how their node ended.
fn resume_waiting(location: &Location, rounds: usize) -> Result<Samples> {
    let (first, second) = (Node::start(location, false)?, Node::start(location, true)?);
    warm_up(&second)?;
    let runs = first.wait_for(suspended(first.setup.clone(), PARKED, rounds))?;
    first.kill();
    let setup = second.setup.clone();
    second.wait_for(async move {
        let mut samples = Samples::default();
        for run in runs {
            let from = Instant::now();
            let outcome = Outcome::Returned(ToolResult::json(json!({"n": 7})));
            setup.code_mode.settle(&CallToken { run: run.clone(), call: CallId(1) }, &outcome).await?;
            finished(&setup, &run).await?;
            samples.push(us_since(from));
        }
        Ok(samples)
    })
}

/// Resumes runs with a running tool that may be repeated. Their node holds them until it shuts down.
fn resume_after_shutdown(location: &Location, rounds: usize) -> Result<Samples> {
    let (first, second) = (Node::start(location, false)?, Node::start(location, true)?);
    warm_up(&second)?;
    let runs = first.wait_for(suspended(first.setup.clone(), WORKING, rounds))?;
    first.shut_down()?;
    let setup = second.setup.clone();
    second.wait_for(async move {
        let mut samples = Samples::default();
        for run in runs {
            let from = Instant::now();
            finished(&setup, &run).await?;
            samples.push(us_since(from));
        }
        Ok(samples)
    })
}

/// Resumes runs with a running tool right after their node was killed. All are requested at once and wait until the
/// leases of that node expire.
fn resume_after_kill(location: &Location) -> Result<Samples> {
    let (first, second) = (Node::start(location, false)?, Node::start(location, true)?);
    warm_up(&second)?;
    let runs = first.wait_for(suspended(first.setup.clone(), WORKING, KILLED_RUNS))?;
    first.kill();
    let (setup, from) = (second.setup.clone(), Instant::now());
    second.wait_for(async move {
        let mut waits = JoinSet::new();
        for run in runs {
            let setup = setup.clone();
            waits.spawn(async move { finished(&setup, &run).await.map(|()| us_since(from)) });
        }
        let mut samples = Samples::default();
        while let Some(took) = waits.join_next().await {
            samples.push(took??);
        }
        Ok(samples)
    })
}

/// Runs a trivial cell, so that the one-time costs of a node are not measured.
pub(crate) fn warm_up(node: &Node) -> Result<()> {
    let setup = node.setup.clone();
    node.wait_for(async move {
        let input = ExecInput::javascript("return 1".to_owned());
        match setup.code_mode.exec(&setup.executor, &setup.config, "bench", input).await {
            CellResult::Completed { .. } => Ok(()),
            other => Err(format!("a trivial cell ended with {other:?}").into()),
        }
    })
}

async fn suspended(setup: Setup, tool: &'static str, count: usize) -> Result<Vec<RunId>> {
    let mut runs = Vec::new();
    for number in 0..count {
        let source = CELL.replace("SEED", &number.to_string()).replace("TOOL", tool);
        // A cell that yields is suspended immediately, even if a tool is running.
        let source = source.replace("PAUSE", if tool == WORKING { "await yield_control()" } else { "" });
        match setup.code_mode.exec(&setup.executor, &setup.config, "bench", ExecInput::javascript(source)).await {
            CellResult::Waiting { run_id, .. } => runs.push(run_id),
            other => return Err(format!("a cell that waits ended with {other:?}").into()),
        }
    }
    Ok(runs)
}

async fn finished(setup: &Setup, run: &RunId) -> Result<()> {
    match setup.code_mode.wait(&setup.executor, &setup.config, "bench", run).await {
        CellResult::Completed { value, .. } if value.get() == "[7,true]" => Ok(()),
        other => Err(format!("a resumed run ended with {other:?}").into()),
    }
}
