//! `cellmate runs fork`: starts a new run from a recorded step, with the tools and policy of the run's agent.

use std::process::ExitCode;

use client_config::{Places, load};
use codemode::CodeMode;
use codemode::pool::Pool;
use contract::cell::{CellResult, OutputItem, PendingState};
use contract::ids::RunId;
use mcp::server::{McpService, OfferedSources, Principal, Settings, ToolPrefix};
use serde_json::json;
use tokio::sync::watch;

use super::arguments::ForkArguments;
use super::{RunsError, name, record};
use crate::policy::read;
use crate::render;
use crate::serve::Servers;
use crate::state::StoreSettings;

/// The id of the outer tool call, which a model would otherwise supply.
const TOOL_CALL: &str = "cellmate-runs-fork";

pub(super) async fn run(
    kept: &StoreSettings,
    places: &Places,
    arguments: &ForkArguments,
    as_json: bool,
) -> Result<ExitCode, RunsError> {
    let setup = |error: &dyn std::fmt::Display| RunsError::Setup(error.to_string());
    let (key, store) = (kept.key()?, kept.open().await?);
    let scope = record(&store, &arguments.run).await?.run.scope;
    let principal = Principal::named(&scope.agent_id).map_err(|_| RunsError::UnknownAgent(name(&scope.agent_id)))?;
    let loaded = load(places).map_err(|error| setup(&error))?;
    let served = read(&loaded.settings).map_err(|error| setup(&error))?;
    let memory_limit = served.config.largest_memory_limit();
    let code_mode =
        CodeMode::new(Pool::start(arguments.jail.pool(memory_limit)).await?, store).map_err(|error| setup(&error))?;
    let config = served.config.tools(&scope.agent_id).code_mode.clone();
    let forked = code_mode.fork(&scope, &config, TOOL_CALL, &arguments.run, arguments.at).await;
    let run_id = forked.map_err(|why| RunsError::Fork { run: name(&arguments.run), why })?;
    eprintln!("cellmate: run {run_id} continues from step {} of {}", arguments.at, name(&arguments.run));
    if arguments.no_wait {
        if as_json {
            render::print_json(&json!({"runId": run_id}))
        } else {
            render::print(&format!("{run_id}\n"))
        }
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &loaded.problems {
        render::note(&format!("cellmate: {problem}"));
    }
    let (offer, offered) = watch::channel(OfferedSources::default());
    let settings = Settings {
        config: served.config,
        approval_policy: served.asking,
        exempt: served.pass,
        tool_prefix: ToolPrefix::parse("").map_err(|error| setup(&error))?,
        seal: key,
    };
    let frontend = McpService::new(code_mode.clone(), settings, offered);
    let servers = Servers::new(&loaded.servers, kept.state.path("servers"), None);
    tokio::spawn(servers.clone().offer(offer));
    let result = wait_for_stop(&code_mode, &frontend, &principal, &run_id).await;
    if let Err(error) = code_mode.shut_down().await {
        render::note(&format!(
            "cellmate: cannot release the run, so its lease expires in a few seconds instead: {error}"
        ));
    }
    servers.stop().await;
    Ok(report(&run_id, &result.map_err(RunsError::Setup)?, as_json))
}

/// Waits as a model would until the cell ends, or all its pending calls wait for an approval or the client.
///
/// Collects the output of every wait.
async fn wait_for_stop(
    code_mode: &CodeMode,
    frontend: &McpService,
    principal: &Principal,
    run_id: &RunId,
) -> Result<CellResult, String> {
    let (executor, config) = frontend.executor_for(principal).await.map_err(|error| error.to_string())?;
    let mut shown: Vec<OutputItem> = Vec::new();
    loop {
        let mut result = code_mode.wait(&executor, &config, TOOL_CALL, run_id).await;
        let keeps_waiting = match &result {
            CellResult::Waiting { pending_tool_calls, .. } => pending_tool_calls
                .iter()
                .any(|call| !matches!(call.state, PendingState::Approval | PendingState::Client)),
            CellResult::Completed { .. } | CellResult::Failed { .. } => false,
        };
        match &mut result {
            CellResult::Completed { output, .. }
            | CellResult::Waiting { output, .. }
            | CellResult::Failed { output, .. } => {
                shown.append(output);
                if !keeps_waiting {
                    *output = shown;
                    return Ok(result);
                }
            }
        }
    }
}

fn report(run_id: &RunId, result: &CellResult, as_json: bool) -> ExitCode {
    if as_json {
        render::print_json(&json!({"runId": run_id, "result": result}));
        return render::exit_code(result);
    }
    let code = render::readable(result);
    if matches!(result, CellResult::Waiting { .. }) {
        eprintln!(
            "cellmate: the run waits for a decision; review it with `cellmate approvals`, then call `wait` from its \
             client"
        );
    }
    code
}
