//! A host that is told what to do line by line and can be killed at any moment: `ledger-host STORE LEDGER`.
//!
//! A line is `{"op": "exec" | "wait" | "settle" | "approvals" | "decide" | "transcript" | "abort", …}`; the answer
//! is one line of JSON.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use catalog::Catalog;
use codemode::pool::{Launch, Pool, PoolOptions};
use codemode::{CodeMode, ExecInput};
use contract::config;
use contract::config::pattern::Pattern;
use contract::limits::Limits;
use contract::scope::Scope;
use executor::{CallToken, Executor, Outcome, Returned, Routes, ToolSource};
use serde_json::{Value, json};
use store::{Decision, Keys, Location, Reach, Store};
use testkit::ledger::{ASK, Ledger};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    sandbox::worker_main();
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(store), Some(ledger)) = (arguments.next(), arguments.next()) else {
        return Err("ledger-host STORE LEDGER".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(store, ledger))
}

struct Host {
    code_mode: CodeMode,
    executor: Executor,
    config: config::CodeMode,
}

async fn serve(store: PathBuf, ledger: PathBuf) -> Result<()> {
    // A fixed key: what one process seals the next one opens.
    let store = Store::open(&Location::File(store), Keys::new(1, [7; 32])).await?;
    let options = PoolOptions { workers: 1, ..PoolOptions::new(Launch::ThisProgram) };
    let source: Arc<dyn ToolSource> = Arc::new(Ledger::open(&ledger)?);
    let (routes, tools) = Routes::of(&[source]);
    let scope = Scope {
        agent_id: "main".to_owned(),
        session_id: "session".to_owned(),
        agent_run_id: "run".to_owned(),
        ..Scope::default()
    };
    let ask = Pattern::parse(ASK).map_err(|error| format!("{error:?}"))?;
    let host = Host {
        code_mode: CodeMode::new(Pool::start(options).await?, store)?,
        executor: Executor::new(Arc::new(Catalog::new(tools)?), routes, scope).asking_for(vec![ask]),
        config: config::CodeMode::enabled(Limits { timeout_ms: 1500, max_wait_ms: 1500, ..Limits::DEFAULT }),
    };
    for line in std::io::stdin().lock().lines() {
        let answer = host.answer(&serde_json::from_str(&line?)?).await?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

impl Host {
    async fn answer(&self, line: &Value) -> Result<Value> {
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let call = line.get("call").and_then(Value::as_u64).and_then(|call| u32::try_from(call).ok()).unwrap_or(0);
        Ok(match text("op").as_str() {
            "exec" => {
                let input = ExecInput::javascript(text("code"));
                json!(self.code_mode.exec(&self.executor, &self.config, "exec-1", input).await)
            }
            "wait" => json!(self.code_mode.wait(&self.executor, &self.config, "wait-1", &text("runId")).await),
            "settle" => {
                let token = CallToken { run: text("runId"), call };
                let value = line.get("value").cloned().unwrap_or(Value::Null);
                let settled = self.code_mode.settle(&token, &Outcome::Returned(Returned::json(value))).await;
                json!({"settled": format!("{settled:?}")})
            }
            "approvals" => json!(self.code_mode.store().pending_approvals().await?),
            "decide" => {
                let decision = Decision::Approve { edited_input: line.get("edited").cloned(), reach: Reach::Once };
                let decided = self.code_mode.decide(&text("approvalId"), &decision, "a person").await;
                json!({"decided": decided.is_ok()})
            }
            "runs" => json!(self.code_mode.store().runs_of_session("session").await?),
            "abort" => json!({"aborted": self.code_mode.abort(&text("runId")).await}),
            "transcript" => json!(self.code_mode.store().transcript("session").await?),
            other => return Err(format!("unknown op `{other}`").into()),
        })
    }
}
