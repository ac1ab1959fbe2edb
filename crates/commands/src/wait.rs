//! `cellmate wait`: resumes a run that has not ended, with the tools, policy and approvals of its agent.

use std::process::ExitCode;

use client_config::load;
use codemode::pool::Pool;
use codemode::replay::Record;
use contract::ids::RunId;
use mcp::server::Principal;

use crate::arguments::WaitArguments;
use crate::engine::{Engine, code_mode_config};
use crate::local_tools::local_tools;
use crate::render::OutputFormat;
use crate::runs::{find_run, only_live_run};
use crate::turns::Turns;
use crate::{cell_result, hint, policy, render};

/// The command, as it is recorded with the run and with decisions.
const COMMAND: &str = "wait";

pub(crate) async fn run(arguments: WaitArguments) -> ExitCode {
    match wait(&arguments).await {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

async fn wait(arguments: &WaitArguments) -> Result<ExitCode, String> {
    let (places, format) = (arguments.store.places(), OutputFormat::from_flag(arguments.json).for_cell_result());
    let loaded = load(&places).map_err(text)?;
    let policy = policy::read(&loaded.settings).map_err(text)?.with(&arguments.policy);
    let store_settings = arguments.store.arguments().choose(&loaded.settings, &places).map_err(text)?;
    let store = store_settings.open().await.map_err(text)?;
    let run_id = match &arguments.run {
        Some(typed) => find_run(&store, typed).await.map_err(text)?,
        None => only_live_run(&store).await.map_err(text)?,
    };
    let record = Record::read(&store, &run_id).await.map_err(|why| format!("run `{run_id}`: {why}"))?;
    if record.source().is_none() {
        return Err(format!("run `{run_id}` is a direct tool call, which only the command that made it can wait for"));
    }
    if let Some(result) = record.result() {
        return Ok(cell_result::print(&result, Some(&run_id), None, format));
    }
    let scope = record.run.scope.clone();
    if Principal::named(&scope.agent_id).is_err() {
        let agent = contract::text::line(&scope.agent_id, 100);
        return Err(format!("the run belongs to agent `{agent}`; wait for it in the program that embeds cellmate"));
    }
    let pool = Pool::start(arguments.jail.pool(record.memory_limit_bytes())).await.map_err(text)?;
    let local = local_tools(&policy, &loaded.settings, &places, Some(store_settings.state.folder()))?;
    let engine = Engine::new(pool, store, &loaded, local, &store_settings.state, None).map_err(text)?;
    let done = async {
        let config = code_mode_config(&policy, &scope.agent_id);
        if let Some(note) = policy.provider_note(&scope.agent_id) {
            render::note(&format!("cellmate: {note}"));
        }
        loaded.problems.iter().for_each(|problem| render::note(&format!("cellmate: {problem}")));
        let executor =
            engine.executor(&policy, scope, record.source().map(|(source, _)| source)).await.map_err(text)?;
        let turns = engine.turns(&executor, &config, COMMAND);
        finish(&turns, &run_id, format).await
    };
    let done = done.await;
    engine.shut_down().await;
    done
}

/// Waits for the run and prints its result. If the user interrupts the command, the run stays as it is.
async fn finish(turns: &Turns<'_>, run_id: &RunId, format: OutputFormat) -> Result<ExitCode, String> {
    tokio::select! {
        result = turns.wait(run_id) => {
            let result = result.map_err(text)?;
            let advice = cell_result::advice(turns.code_mode, &result).await.map_err(text)?;
            Ok(cell_result::print(&result, Some(run_id), advice.as_deref(), format))
        }
        Ok(()) = tokio::signal::ctrl_c() => {
            let wait = hint::command(&format!("wait {run_id}"));
            render::note(&format!("cellmate: interrupted; `{wait}` continues the run"));
            Ok(ExitCode::from(render::INTERRUPTED))
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
