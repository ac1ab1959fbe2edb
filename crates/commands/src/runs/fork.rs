//! `cellmate runs fork`: starts a new run from a recorded step, with the tools and policy of the run's agent.

use std::process::ExitCode;

use client_config::{Places, load};
use codemode::pool::Pool;
use contract::cell::CellResult;
use contract::ids::RunId;
use mcp::server::Principal;
use serde_json::{Value, json};

use super::arguments::ForkArguments;
use super::{RunsError, name, record};
use crate::engine::{Engine, code_mode_config};
use crate::local_tools::local_tools;
use crate::policy::read;
use crate::render::OutputFormat;
use crate::state::StoreSettings;
use crate::{cell_result, render};

/// The command, as it is recorded with the new run and with decisions.
const COMMAND: &str = "runs-fork";

/// The id of the outer tool call, which a model would otherwise supply.
const TOOL_CALL: &str = "cellmate-runs-fork";

pub(super) async fn run(
    store_settings: &StoreSettings,
    places: &Places,
    arguments: &ForkArguments,
    format: OutputFormat,
) -> Result<ExitCode, RunsError> {
    let setup = |error: &dyn std::fmt::Display| RunsError::Setup(error.to_string());
    let store = store_settings.open().await?;
    let original = record(&store, &arguments.run).await?.run;
    let (scope, run) = (original.scope, original.run_id);
    Principal::named(&scope.agent_id).map_err(|_| RunsError::UnknownAgent(name(&scope.agent_id)))?;
    let loaded = load(places).map_err(|error| setup(&error))?;
    let policy = read(&loaded.settings).map_err(|error| setup(&error))?.with(&arguments.policy);
    let pool = Pool::start(arguments.jail.pool(policy.config.largest_memory_limit())).await?;
    let local = local_tools(&policy, &loaded.settings, places, Some(store_settings.state.folder()))
        .map_err(RunsError::Setup)?;
    let engine =
        Engine::new(pool, store, &loaded, local, &store_settings.state, None).map_err(|error| setup(&error))?;
    let config = code_mode_config(&policy, &scope.agent_id);
    let forked = engine.code_mode.fork(&scope, &config, TOOL_CALL, &run, arguments.at).await;
    let run_id = forked.map_err(|why| RunsError::Fork { run: name(&run), why })?;
    eprintln!("cellmate: run {run_id} continues from step {} of {}", arguments.at, name(&run));
    if arguments.no_wait {
        if format == OutputFormat::Json {
            render::print_json(&json!({"runId": run_id}))
        } else {
            render::print(&format!("{run_id}\n"))
        }
        return Ok(ExitCode::SUCCESS);
    }
    loaded.problems.iter().for_each(|problem| render::note(&format!("cellmate: {problem}")));
    let done = async {
        let executor = engine.executor(&policy, scope, None).await.map_err(|error| setup(&error))?;
        let turns = engine.turns(&executor, &config, COMMAND);
        let result = turns.wait(&run_id).await?;
        let advice = cell_result::advice(&engine.code_mode, &result).await?;
        Ok(report(&run_id, &result, advice, format.for_cell_result()))
    };
    let done = done.await;
    engine.shut_down().await;
    done
}

fn report(run_id: &RunId, result: &CellResult, advice: Option<String>, format: OutputFormat) -> ExitCode {
    if format == OutputFormat::Text {
        return cell_result::print(result, Some(run_id), advice.as_deref(), OutputFormat::Text);
    }
    let mut value = json!({"runId": run_id, "result": result});
    if let (Some(advice), Some(fields)) = (&advice, value.as_object_mut()) {
        fields.insert("message".to_owned(), Value::from(advice.as_str()));
    }
    render::print_json(&value);
    advice.iter().for_each(|advice| render::note(&format!("cellmate: {advice}")));
    render::exit_code(result)
}
