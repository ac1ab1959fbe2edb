//! A program that embeds Cellmate: a tool, a cell that calls it, and an approval that another process gives.
//!
//! ```text
//! embed start FOLDER            runs the cell until it waits for an approval, and exits
//! embed finish FOLDER RUN       approves the call and resumes the run to its end
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use catalog::{Registry, SurfaceOptions};
use codemode::CodeMode;
use codemode::pool::{Launch, Pool, PoolOptions};
use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use contract::ids::RunId;
use contract::scope::Scope;
use contract::tool::{ToolId, ToolSpec};
use executor::run::{Host, PreparedRun, RunRequest, prepare};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, Returned, ToolSource};
use serde_json::{Value, json};
use store::{ApprovalScope, Decision, Keys, Location, Store};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The cell, which a model would write.
const CELL: &str = r#"
const [hit] = await tools.search("send a letter")
const sent = await tools.call(hit.id, { to: "Ada", text: "The engine works." })
text(`letter ${sent.number} is on its way`)
return sent
"#;

/// The source of this program's tool.
#[derive(Debug)]
struct PostOffice {
    id: ToolId,
}

impl ToolSource for PostOffice {
    fn tools(&self) -> Vec<ToolSpec> {
        let parameters = json!({
            "type": "object",
            "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
            "required": ["to", "text"],
            "additionalProperties": false,
        });
        vec![ToolSpec::new(self.id.clone(), "Sends a letter on paper.", parameters)]
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let to = call.input().get("to").cloned().unwrap_or_default();
            Dispatch::Settled(Outcome::Returned(Returned::json(json!({"number": 1, "to": to}))))
        })
    }
}

fn main() -> Result<()> {
    // Must come first: the sandbox's workers are this program, started again.
    sandbox::worker_main();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.as_slice() {
            ["start", folder] => start(Path::new(folder)).await,
            ["finish", folder, run_id] => finish(Path::new(folder), &RunId::from(*run_id)).await,
            _ => Err("embed start FOLDER | embed finish FOLDER RUN".into()),
        }
    })
}

async fn start(folder: &Path) -> Result<()> {
    let (code_mode, run) = (open(folder).await?, this_run()?);
    println!("the model sees: {}", run.surface.names().join(", "));
    let result = code_mode.exec(&run.executor, &run.config.code_mode, "call-1", &json!({"code": CELL})).await;
    println!("{}", json!(result));
    code_mode.shut_down().await?;
    Ok(())
}

async fn finish(folder: &Path, run_id: &RunId) -> Result<()> {
    let (code_mode, run) = (open(folder).await?, this_run()?);
    for approval in code_mode.store().pending_approvals().await? {
        println!("approving the call of {} with {}", approval.tool_id, approval.input);
        let yes = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
        code_mode.decide(&approval.approval_id, &yes, "the operator").await?;
    }
    let result = code_mode.wait(&run.executor, &run.config.code_mode, "call-2", run_id).await;
    println!("{}", json!(result));
    print!("{}", code_mode.store().export("letters").await?);
    Ok(())
}

/// Starts the workers and opens the store in a file. A real program keeps its key in a file that only it can read.
async fn open(folder: &Path) -> Result<CodeMode> {
    let store = Store::open(&Location::File(folder.join("runs.db")), Keys::new(1, [42; 32])).await?;
    let pool = Pool::start(PoolOptions::new(Launch::ThisProgram)).await?;
    Ok(CodeMode::new(pool, store)?)
}

/// Prepares the run from configuration, tools and approval patterns, which are the same in every process.
fn this_run() -> Result<PreparedRun> {
    let config = AgentsConfig::resolve(&json!({"codeMode": true}), &Value::Null);
    let host = Host {
        config: config.map_err(|errors| format!("{errors:?}"))?,
        sources: vec![Arc::new(PostOffice { id: ToolId::parse("plugin:post:send_letter")? })],
        hooks: Vec::new(),
        ask: vec![Pattern::parse("plugin:post:*").map_err(|error| format!("{error:?}"))?],
        namespaces: Registry::default(),
        namespace_config: Value::Null,
        runtime_available: true,
        surface: SurfaceOptions::default(),
    };
    let scope = Scope {
        agent_id: "writer".to_owned(),
        session_id: "letters".to_owned(),
        agent_run_id: "1".to_owned(),
        ..Scope::default()
    };
    Ok(prepare(&host, &RunRequest { scope, ..RunRequest::default() })?)
}
