//! Cellmate's side: the sandbox alone on this thread, and cells in a pool of jailed workers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::Catalog;
use codemode::pool::{Launch, Lease, Pool, PoolOptions};
use contract::cell::Language;
use contract::config::Languages;
use contract::frame::{Budget, FromWorker, HostCall, Leg, LegEnd, Reply, ReplyValue, Start, ToWorker};
use contract::ids::{CatalogHash, CellId};
use contract::limits::Limits;
use sandbox::Sandbox;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cells::CellText;
use crate::{Result, catalogs};

/// Stack size of a thread that runs cells.
pub(crate) const STACK_BYTES: usize = 160 << 20;

pub(crate) struct Ours {
    runtime: Runtime,
    pub(crate) runner: Runner,
}

/// Runs cells in the workers of a pool, with one catalog.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) pool: Pool,
    pub(crate) catalog: Arc<Catalog>,
}

impl Ours {
    /// Starts a pool with the default options, whose workers are this program started again.
    pub(crate) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let pool = runtime.block_on(Pool::start(PoolOptions::new(Launch::ThisProgram)))?;
        Ok(Self { runner: Runner { pool, catalog: Arc::new(catalogs::small()?) }, runtime })
    }

    pub(crate) fn describe(&self) -> String {
        match self.runner.pool.workers().first() {
            Some(hello) => format!("worker process, jail {:?}, page scan {}", hello.jail, hello.page_scan),
            None => "no worker".to_owned(),
        }
    }

    /// Runs `work` on the runtime's threads, like a run's driver, and waits for it.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.runtime.block_on(async { tokio::spawn(work).await? })
    }

    /// Starts a separate pool for one measurement and waits until all its workers are up.
    pub(crate) fn pool(&self, workers: usize, threads: usize) -> Result<Runner> {
        let options = PoolOptions { workers, threads, ..PoolOptions::new(Launch::ThisProgram) };
        let catalog = Arc::clone(&self.runner.catalog);
        self.wait_for(async move {
            let pool = Pool::start(options).await?;
            while pool.workers().len() < workers {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(Runner { pool, catalog })
        })
    }
}

impl Runner {
    pub(crate) async fn start(&self, source: String, budget: Budget) -> Result<(Lease, Leg)> {
        let tables = self.catalog.tables();
        let (language, languages) = (Language::JavaScript, Languages::ALL);
        let start = Start { budget, catalog: tables.hash(), seed: 7, language, languages, source };
        Ok(self.pool.start_cell(tables, start).await?)
    }

    /// Runs a cell to its end and checks its value.
    pub(crate) async fn complete(&self, text: &CellText) -> Result<()> {
        let (mut lease, mut leg) = self.start(text.source.clone(), budget()).await?;
        while let LegEnd::Suspended { calls, .. } = &leg.end {
            leg = lease.deliver(budget(), answer(calls)?).await?;
        }
        check(text, &leg)
    }
}

pub(crate) fn check(text: &CellText, leg: &Leg) -> Result<()> {
    match &leg.end {
        LegEnd::Completed { value } => text.check(value.get()),
        other => Err(format!("`{}` ended with {other:?}", text.source).into()),
    }
}

/// The tool of the host: parses the input of each call and returns it.
pub(crate) fn answer(calls: &[HostCall]) -> Result<Vec<Reply>> {
    let reply = |call: &HostCall| {
        let input: Value = serde_json::from_slice(&call.payload)?;
        Ok(Reply { call: call.id, value: ReplyValue::Resolved(serde_json::to_vec(&input)?) })
    };
    calls.iter().map(reply).collect()
}

/// The default budget of a cell.
pub(crate) fn budget() -> Budget {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Budget {
        run_ms: Limits::DEFAULT.timeout_ms,
        memory_bytes: Limits::DEFAULT.memory_bytes,
        output_bytes: Limits::DEFAULT.output_bytes,
        clock_us: u64::try_from(clock.as_micros()).unwrap_or(u64::MAX),
    }
}

/// The sandbox without process, socket or jail, and the thread that stops cells at their deadline.
#[derive(Clone)]
pub(crate) struct BareSandbox {
    sandbox: Arc<Sandbox>,
    catalog: CatalogHash,
    _ticker: Arc<Ticker>,
}

struct Ticker(Arc<AtomicBool>);

impl BareSandbox {
    pub(crate) fn new(catalog: &Catalog) -> Result<Self> {
        let sandbox = Arc::new(Sandbox::new(64)?);
        let stopped = Arc::new(AtomicBool::new(false));
        let (ticking, stop) = (Arc::clone(&sandbox), Arc::clone(&stopped));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
                ticking.tick();
            }
        });
        let tables = catalog.tables();
        sandbox.handle(ToWorker::Catalog { hash: tables.hash(), tables: tables.bytes().to_vec() })?;
        Ok(Self { sandbox, catalog: tables.hash(), _ticker: Arc::new(Ticker(stopped)) })
    }

    /// Parses, runs and drops one cell that makes no calls. `number` must be unused.
    pub(crate) fn complete(&self, number: u64, text: &CellText) -> Result<()> {
        let source = text.source.clone();
        let (language, languages) = (Language::JavaScript, Languages::ALL);
        let start = Start { budget: budget(), catalog: self.catalog, seed: 7, language, languages, source };
        match self.sandbox.handle(ToWorker::Start(CellId(number), start))?.reply {
            Some(FromWorker::Leg(_, leg)) => check(text, &leg),
            other => Err(format!("the sandbox returned {other:?}").into()),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
