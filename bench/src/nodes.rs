//! A run suspended on one node and resumed on another, with a megabyte of live data in its cell; the first is gone.
//!
//! Nodes are runtimes of their own, each with a pool and a store. `CELLMATE_TEST_POSTGRES` names a server to do it all
//! on again.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use catalog::Catalog;
use codemode::pool::{Launch, Pool, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::cell::CellResult;
use contract::config;
use contract::limits::Limits;
use contract::scope::Scope;
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{
    AuthorizedCall, CallFuture, CallToken, Dispatch, Executor, Outcome, Parked, Returned, Routes, ToolSource,
};
use figures::machine::load_average;
use figures::{Bar, Claim, Samples};
use serde_json::json;
use store::{Keys, Location, Store};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Result;
use crate::report::Report;
use crate::stats::us_since;

/// What resuming may take, in 99 of 100 cases. After a death a lease of 3 s must run out first: no bar.
const CLAIMS: [Claim; 4] = [
    ("resume_waited_sqlite_p99_ms", Bar::AtMost(150.0)),
    ("resume_left_sqlite_p99_ms", Bar::AtMost(150.0)),
    ("resume_waited_postgres_p99_ms", Bar::AtMost(150.0)),
    ("resume_left_postgres_p99_ms", Bar::AtMost(150.0)),
];

const ROUNDS: usize = 200;
/// Each waits for a lease to run out.
const AFTER_A_DEATH: usize = 20;

const PARKED: &str = "client:bench:pick";
const WORKING: &str = "openclaw:bench:read";

/// A megabyte that does not compress, looked at again after the call.
const CELL: &str = "const kept = new Uint32Array(1 << 18); let x = SEED + 1
    const next = () => { x ^= x << 13; x ^= x >>> 17; x ^= x << 5; return x >>> 0 }
    for (let i = 0; i < kept.length; i++) kept[i] = next()
    const calling = tools.call('TOOL', {}); PAUSE
    const got = await calling
    let sum = 0; for (let i = 0; i < kept.length; i += 1024) sum += kept[i]
    return [got.n, sum > 0]";

/// One tool that a client answers, and one that only reads: it never comes back on the node that is to go.
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
                return Dispatch::Parked(Parked::Client);
            }
            if !self.answers {
                return std::future::pending().await;
            }
            Dispatch::Settled(Outcome::Returned(Returned::json(json!({"n": 7}))))
        })
    }
}

struct Node {
    runtime: Runtime,
    road: Road,
}

#[derive(Clone)]
struct Road {
    code_mode: CodeMode,
    executor: Executor,
    config: config::CodeMode,
}

impl Node {
    fn start(location: &Location, answers: bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (routes, tools) = Routes::of(&[Arc::new(Tools { answers }) as Arc<dyn ToolSource>]);
        let executor = Executor::new(Arc::new(Catalog::new(tools)?), routes, Scope::default());
        let code_mode = runtime.block_on(async {
            let store = Store::open(location, Keys::new(1, [7; 32])).await?;
            let pool = Pool::start(PoolOptions::new(Launch::ThisProgram)).await?;
            Ok::<_, crate::BoxError>(CodeMode::new(pool, store)?)
        })?;
        Ok(Self { runtime, road: Road { code_mode, executor, config: config::CodeMode::enabled(Limits::DEFAULT) } })
    }

    fn wait_for<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.runtime.block_on(async { tokio::spawn(work).await? })
    }

    /// As a program that is told to end.
    fn leave(self) -> Result<()> {
        let code_mode = self.road.code_mode.clone();
        self.wait_for(async move { Ok(code_mode.leave().await?) })?;
        self.die();
        Ok(())
    }

    /// As a program that is killed: nobody says goodbye to the store.
    fn die(self) {
        drop(self.road);
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

/// Names a Postgres server.
const SERVER: &str = "CELLMATE_TEST_POSTGRES";

fn measure(report: &mut Report, folder: &Path, rounds: usize) -> Result<()> {
    let mut stores = vec![("sqlite", Location::File(folder.join("runs.db")))];
    if let Ok(server) = std::env::var(SERVER) {
        stores.push(("postgres", Location::Postgres(server)));
    }
    for (name, location) in stores {
        report.heading(&format!("a run with 1 MB of live data, resumed on another node | {name}"));
        let waited = waited(&location, rounds)?;
        report.show("it waited for a client; its node was killed", &waited);
        let left = left(&location, rounds)?;
        report.show("a tool worked for it; its node left", &left);
        let died = died(&location)?;
        report.show("a tool worked for it; its node was killed (a lease of 3 s)", &died);
        for (what, samples) in [("waited", &waited), ("left", &left), ("killed", &died)] {
            report.fact(&format!("resume_{what}_{name}_p50_ms"), samples.p50() / 1e3);
            report.fact(&format!("resume_{what}_{name}_p99_ms"), samples.p99() / 1e3);
        }
    }
    Ok(())
}

/// Runs that wait for a client. Nobody holds them, so that it is all the same how their node went.
fn waited(location: &Location, rounds: usize) -> Result<Samples> {
    let (first, second) = (Node::start(location, false)?, Node::start(location, true)?);
    warm_up(&second)?;
    let runs = first.wait_for(suspended(first.road.clone(), PARKED, rounds))?;
    first.die();
    let road = second.road.clone();
    second.wait_for(async move {
        let mut samples = Samples::default();
        for run in runs {
            let from = Instant::now();
            let outcome = Outcome::Returned(Returned::json(json!({"n": 7})));
            road.code_mode.settle(&CallToken { run: run.clone(), call: 1 }, &outcome).await?;
            finished(&road, &run).await?;
            samples.push(us_since(from));
        }
        Ok(samples)
    })
}

/// Runs for which a tool works that may be called again: their node holds them until it goes.
fn left(location: &Location, rounds: usize) -> Result<Samples> {
    let (first, second) = (Node::start(location, false)?, Node::start(location, true)?);
    warm_up(&second)?;
    let runs = first.wait_for(suspended(first.road.clone(), WORKING, rounds))?;
    first.leave()?;
    let road = second.road.clone();
    second.wait_for(async move {
        let mut samples = Samples::default();
        for run in runs {
            let from = Instant::now();
            finished(&road, &run).await?;
            samples.push(us_since(from));
        }
        Ok(samples)
    })
}

/// The same, all asked for in the moment of its death: what they wait for is the end of its leases.
fn died(location: &Location) -> Result<Samples> {
    let (first, second) = (Node::start(location, false)?, Node::start(location, true)?);
    warm_up(&second)?;
    let runs = first.wait_for(suspended(first.road.clone(), WORKING, AFTER_A_DEATH))?;
    first.die();
    let (road, from) = (second.road.clone(), Instant::now());
    second.wait_for(async move {
        let mut waits = JoinSet::new();
        for run in runs {
            let road = road.clone();
            waits.spawn(async move { finished(&road, &run).await.map(|()| us_since(from)) });
        }
        let mut samples = Samples::default();
        while let Some(waited) = waits.join_next().await {
            samples.push(waited??);
        }
        Ok(samples)
    })
}

/// The first cell of a node pays for what all have in common.
fn warm_up(node: &Node) -> Result<()> {
    let road = node.road.clone();
    node.wait_for(async move {
        let input = ExecInput::javascript("return 1".to_owned());
        match road.code_mode.exec(&road.executor, &road.config, "bench", input).await {
            CellResult::Completed { .. } => Ok(()),
            other => Err(format!("a trivial cell ended with {other:?}").into()),
        }
    })
}

async fn suspended(road: Road, tool: &'static str, count: usize) -> Result<Vec<String>> {
    let mut runs = Vec::new();
    for number in 0..count {
        let source = CELL.replace("SEED", &number.to_string()).replace("TOOL", tool);
        // A cell that yields is suspended at once, whatever works for it.
        let source = source.replace("PAUSE", if tool == WORKING { "await yield_control()" } else { "" });
        match road.code_mode.exec(&road.executor, &road.config, "bench", ExecInput::javascript(source)).await {
            CellResult::Waiting { run_id, .. } => runs.push(run_id),
            other => return Err(format!("a cell that waits ended with {other:?}").into()),
        }
    }
    Ok(runs)
}

async fn finished(road: &Road, run: &str) -> Result<()> {
    match road.code_mode.wait(&road.executor, &road.config, "bench", run).await {
        CellResult::Completed { value, .. } if value.get() == "[7,true]" => Ok(()),
        other => Err(format!("a resumed run ended with {other:?}").into()),
    }
}
