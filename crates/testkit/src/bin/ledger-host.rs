//! `ledger-host STORE LEDGER [NAME=VALUE…]`: a host for crash tests. It reads commands from standard input and can be
//! killed at any moment.
//!
//! STORE is a file or `postgres://…`. A line is `{"op": "exec" | "wait" | "settle" | …}`. Lines are handled
//! concurrently; the answer to each is one line of JSON that repeats the line's `id`. `CELLMATE_FAULT` arms a fault.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use cellmate_testkit::ledger::{ASK, Ledger};
use cellmate_testkit::other_image;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::config;
use contract::config::pattern::Pattern;
use contract::ids::CallId;
use contract::limits::{HOST_STACK_BYTES, Limits};
use contract::scope::Scope;
use executor::clock::now_ms;
use executor::{CallToken, Executor, Outcome, Routes, ToolResult, ToolSource};
use serde_json::{Value, json};
use store::{ApprovalScope, Decision, Keys, Location, Store};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The parsed command line.
struct Options {
    store: Location,
    ledger: PathBuf,
    session: String,
    lease: Duration,
    /// Time limit of an `exec` and of the cell it runs.
    exec_ms: u64,
    wait_ms: u64,
    /// Runs cells on threads of this process, which start and die faster than worker processes.
    attached: bool,
    /// Makes those threads report a different guest image.
    other_image: bool,
}

fn main() -> Result<()> {
    sandbox::worker_main();
    let options = options(std::env::args().skip(1)).ok_or("ledger-host STORE LEDGER [NAME=VALUE…]")?;
    if let Ok(text) = std::env::var("CELLMATE_FAULT") {
        fault::arm(&text)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(HOST_STACK_BYTES)
        .enable_all()
        .build()?;
    runtime.block_on(serve(options))
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let (store, ledger) = (arguments.next()?, arguments.next()?);
    let store = if store.starts_with("postgres:") { Location::Postgres(store) } else { Location::File(store.into()) };
    let mut options = Options {
        store,
        ledger: ledger.into(),
        session: "session".to_owned(),
        lease: Duration::from_secs(3),
        exec_ms: 1500,
        wait_ms: 1500,
        attached: false,
        other_image: false,
    };
    for argument in arguments {
        let (name, value) = argument.split_once('=')?;
        match name {
            "session" => options.session = value.to_owned(),
            "lease" => options.lease = Duration::from_millis(value.parse().ok()?),
            "exec" => options.exec_ms = value.parse().ok()?,
            "wait" => options.wait_ms = value.parse().ok()?,
            "attached" => options.attached = value == "yes",
            "image" => options.other_image = value == "other",
            _ => return None,
        }
    }
    Some(options)
}

struct Host {
    code_mode: CodeMode,
    source: Arc<dyn ToolSource>,
    config: config::CodeMode,
    session: String,
}

async fn serve(options: Options) -> Result<()> {
    // A fixed key, so that the next process can open the snapshots of this one.
    let store = Store::open(&options.store, Keys::new(1, [7; 32])).await?;
    let quotas = config::Quotas { waiting_runs: 1_000_000, ..config::Quotas::DEFAULT };
    let store = store.bounded(config::Retention::DEFAULT, quotas);
    let pool = if options.attached || options.other_image {
        let launch = Launch::InProcess(if options.other_image { other_image::serve } else { sandbox::serve_attached });
        PoolOptions { jail: JailPolicy::Off, workers: 1, slots: 16, threads: 2, ..PoolOptions::new(launch) }
    } else {
        PoolOptions { workers: 1, ..PoolOptions::new(Launch::ThisProgram) }
    };
    let source: Arc<dyn ToolSource> = Arc::new(Ledger::open(&options.ledger)?);
    let limits = Limits { timeout_ms: options.exec_ms, max_wait_ms: options.wait_ms, ..Limits::DEFAULT };
    let host = Arc::new(Host {
        code_mode: CodeMode::with_lease(Pool::start(pool).await?, store, options.lease)?,
        source,
        config: config::CodeMode::enabled(limits),
        session: options.session,
    });
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            let answer = host.answer(&line).await.unwrap_or_else(|error| json!({"error": error.to_string()}));
            let answer = match line.get("id") {
                Some(id) => json!({"id": id, "answer": answer}),
                None => answer,
            };
            let mut out = std::io::stdout().lock();
            // A closed standard output cannot be reported anywhere.
            drop(writeln!(out, "{answer}").and_then(|()| out.flush()));
        });
    }
    Ok(())
}

impl Host {
    fn executor(&self, session: &str) -> Result<Executor> {
        let (routes, tools) = Routes::collect(&[Arc::clone(&self.source)]);
        let scope = Scope {
            agent_id: "main".to_owned(),
            session_id: session.to_owned(),
            agent_run_id: "run".to_owned(),
            ..Scope::default()
        };
        let ask = Pattern::parse(ASK).map_err(|error| format!("{error:?}"))?;
        Ok(Executor::new(Arc::new(Catalog::new(tools)?), routes, scope).with_approval_patterns(vec![ask]))
    }

    /// Carries out one line. Its session defaults to the host's.
    async fn answer(&self, line: &Value) -> Result<Value> {
        let session = line.get("session").and_then(Value::as_str).unwrap_or(&self.session);
        let executor = self.executor(session)?;
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |name: &str| line.get(name).and_then(Value::as_i64).unwrap_or(0);
        let store = self.code_mode.store();
        Ok(match text("op").as_str() {
            "exec" => {
                let input = ExecInput::javascript(text("code"));
                json!(self.code_mode.exec(&executor, &self.config, "exec-1", input).await)
            }
            "wait" => json!(self.code_mode.wait(&executor, &self.config, "wait-1", &text("runId").into()).await),
            "settle" => {
                let token = CallToken { run: text("runId").into(), call: CallId(u32::try_from(number("call"))?) };
                let value = line.get("value").cloned().unwrap_or(Value::Null);
                let settled = self.code_mode.settle(&token, &Outcome::Returned(ToolResult::json(value))).await;
                json!({"settled": format!("{settled:?}")})
            }
            "approvals" => {
                let mut pending = store.pending_approvals().await?;
                pending.retain(|approval| approval.session_id == session);
                json!(pending)
            }
            "decide" => {
                let decision =
                    Decision::Approve { edited_input: line.get("edited").cloned(), reach: ApprovalScope::Once };
                let decided = self.code_mode.decide(&text("approvalId").into(), &decision, "a person").await;
                json!({"decided": decided.is_ok()})
            }
            "runs" => json!(store.runs_of_session(session).await?),
            "run" => match store.run(&text("runId").into()).await? {
                Some(row) => json!({"state": row.state.as_str(), "frozen": row.snapshot.is_some()}),
                None => Value::Null,
            },
            "abort" => json!({"aborted": self.code_mode.abort(&text("runId").into()).await}),
            // Sweeps as if `aheadMs` had passed.
            "sweep" => {
                let then = now_ms() + number("aheadMs");
                let expired = store.expire(then).await?;
                json!({"expired": expired, "forgotten": store.delete_runs_before(then).await?})
            }
            "transcript" => json!(store.transcript(session).await?),
            "reached" => json!(fault::reached()),
            other => return Err(format!("unknown op `{other}`").into()),
        })
    }
}
