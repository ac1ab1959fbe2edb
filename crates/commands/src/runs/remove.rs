//! `cellmate runs cancel` and `cellmate runs rm`: end runs, and delete runs that have ended.

use std::process::ExitCode;

use client_config::{Places, load};
use codemode::CodeMode;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::ids::RunId;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{RunRow, Store};
use telemetry::LogIgnored;

use super::arguments::RemoveArguments;
use super::{RunsError, find_run, name};
use crate::age::span;
use crate::approvals::terminal;
use crate::engine::prepare_run;
use crate::local_tools::local_tools;
use crate::render::OutputFormat;
use crate::state::StoreSettings;
use crate::upstream::Servers;
use crate::{policy, render};

/// Cancels runs, one after another. Fails with exit code 1 if one of them has already ended.
pub(super) async fn cancel(
    store_settings: &StoreSettings,
    places: &Places,
    store: Store,
    typed: &[String],
    format: OutputFormat,
) -> Result<ExitCode, RunsError> {
    let rows = find_all(&store, typed).await?;
    let (ended, live): (Vec<&RunRow>, Vec<&RunRow>) = rows.iter().partition(|row| row.state.is_over());
    let cancelled = cancel_all(store_settings, places, store, &live).await?;
    if format == OutputFormat::Json {
        let ended: Vec<Value> =
            ended.iter().map(|row| json!({"runId": row.run_id, "state": row.state.as_str()})).collect();
        render::print_json(&json!({"cancelled": cancelled, "alreadyEnded": ended}));
    } else {
        cancelled.iter().for_each(|run_id| render::print(&format!("cancelled  {run_id}\n")));
    }
    for row in &ended {
        render::note(&format!("cellmate: run `{}` has already ended ({})", name(&row.run_id), row.state.as_str()));
    }
    let is_done = ended.is_empty() && cancelled.len() == live.len();
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) })
}

/// Deletes runs that have ended. Asks first.
pub(super) async fn remove(
    store_settings: &StoreSettings,
    places: &Places,
    store: Store,
    arguments: &RemoveArguments,
    format: OutputFormat,
) -> Result<ExitCode, RunsError> {
    if let Some(age) = arguments.older_than {
        let then = age.before(now_ms());
        let count = store.ended_before(then).await?;
        if count == 0 && format == OutputFormat::Text {
            eprintln!("no runs ended longer ago than {}", span(age.0));
        }
        if count > 0 && !is_confirmed(&deletion(count), DeletionPrompt::from_flag(arguments.yes)).await? {
            return Ok(kept_them());
        }
        return Ok(report(store.delete_runs_before(then).await?, format));
    }
    let rows = find_all(&store, &arguments.runs).await?;
    let live: Vec<&RunRow> = rows.iter().filter(|row| !row.state.is_over()).collect();
    if let (Some(row), false) = (live.first(), arguments.force) {
        return Err(RunsError::Live { run: name(&row.run_id), state: row.state.as_str() });
    }
    let question = match live.len() {
        0 => deletion(rows.len() as u64),
        live => format!("{}, and first cancel {live} of them", deletion(rows.len() as u64)),
    };
    if !is_confirmed(&question, DeletionPrompt::from_flag(arguments.yes)).await? {
        return Ok(kept_them());
    }
    if !live.is_empty() {
        cancel_all(store_settings, places, store.clone(), &live).await?;
    }
    let ids: Vec<RunId> = rows.iter().map(|row| row.run_id.clone()).collect();
    let deleted = store.delete_runs(&ids).await?;
    if arguments.transcript {
        for row in &rows {
            // A run that could not be cancelled keeps its entries.
            if store.run(&row.run_id).await?.is_none() {
                store.delete_run_transcript(&row.scope.session_id, &row.run_id).await?;
            }
        }
    }
    let code = report(deleted, format);
    let left = (ids.len() as u64).saturating_sub(deleted);
    if left > 0 {
        let runs = if left == 1 { "1 run has".to_owned() } else { format!("{left} runs have") };
        render::note(&format!("cellmate: {runs} not ended and could not be cancelled; try again"));
        return Ok(ExitCode::from(render::FAILED));
    }
    Ok(code)
}

fn deletion(count: u64) -> String {
    if count == 1 { "delete 1 run".to_owned() } else { format!("delete {count} runs") }
}

fn kept_them() -> ExitCode {
    eprintln!("cellmate: nothing was deleted");
    ExitCode::from(render::FAILED)
}

fn report(deleted: u64, format: OutputFormat) -> ExitCode {
    match (format, deleted) {
        (OutputFormat::Json, _) => render::print_json(&json!({"deleted": deleted})),
        (OutputFormat::Text, 0) => {}
        (OutputFormat::Text, 1) => render::print("deleted 1 run\n"),
        (OutputFormat::Text, _) => render::print(&format!("deleted {deleted} runs\n")),
    }
    ExitCode::SUCCESS
}

/// Whether the user is asked before something is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionPrompt {
    Ask,
    /// The user confirmed on the command line.
    Skip,
}

impl DeletionPrompt {
    /// Returns the setting of a command with the flag `--yes`.
    pub(super) fn from_flag(yes: bool) -> Self {
        if yes { Self::Skip } else { Self::Ask }
    }
}

/// Asks the user to confirm a deletion, unless that is skipped. Fails if there is no terminal to ask on.
pub(super) async fn is_confirmed(question: &str, prompt: DeletionPrompt) -> Result<bool, RunsError> {
    if prompt == DeletionPrompt::Skip {
        return Ok(true);
    }
    if !terminal::is_interactive() {
        return Err(RunsError::Unconfirmed);
    }
    let answer = terminal::ask(&format!("{question}? [y]es, [N]o: ")).await.unwrap_or_default();
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Returns the runs that the user typed, each once.
async fn find_all(store: &Store, typed: &[String]) -> Result<Vec<RunRow>, RunsError> {
    let mut rows: Vec<RunRow> = Vec::new();
    for typed in typed {
        let run_id = find_run(store, typed).await?;
        if rows.iter().all(|row| row.run_id != run_id) {
            rows.extend(store.run(&run_id).await?);
        }
    }
    Ok(rows)
}

/// Cancels runs and the tasks that they left at servers. Returns those that were cancelled.
async fn cancel_all(
    store_settings: &StoreSettings,
    places: &Places,
    store: Store,
    rows: &[&RunRow],
) -> Result<Vec<RunId>, RunsError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    // No cell runs here, so the workers need no jail.
    let options = PoolOptions { jail: JailPolicy::Preferred, workers: 1, ..PoolOptions::new(Launch::ThisProgram) };
    let code_mode =
        CodeMode::new(Pool::start(options).await?, store).map_err(|error| RunsError::Setup(error.to_string()))?;
    let mut cancelled = Vec::new();
    for row in rows {
        if code_mode.abort(&row.run_id).await {
            cancelled.push(row.run_id.clone());
            cancel_tasks(store_settings, places, code_mode.store(), row).await;
        }
    }
    code_mode.shut_down().await.log_ignored("release the cancelled runs");
    Ok(cancelled)
}

/// Asks servers to cancel the tasks of a cancelled run. The run has ended in any case, so failures are only reported.
async fn cancel_tasks(store_settings: &StoreSettings, places: &Places, store: &Store, row: &RunRow) {
    let calls = match store.open_calls(&row.run_id).await {
        Ok(calls) => calls,
        Err(error) => return render::note(&format!("cellmate: cannot read the calls of the run: {error}")),
    };
    if calls.iter().all(|call| call.ticket.is_none()) {
        return;
    }
    let prepared = load(places).map_err(|error| error.to_string()).and_then(|loaded| {
        let policy = policy::read(&loaded.settings).map_err(|error| error.to_string())?;
        let servers = Servers::new(&loaded, store_settings.state.path(client_config::TOOL_LISTS), None);
        let local = local_tools(&policy, &loaded.settings, places, Some(store_settings.state.folder()))?;
        let run = prepare_run(&policy, local.tools, servers.sources(), row.scope.clone())
            .map_err(|error| error.to_string())?
            .0;
        Ok((servers, run.executor))
    });
    match prepared {
        Ok((servers, executor)) => {
            executor.cancel_and_wait(&row.run_id, &calls).await;
            servers.stop().await;
        }
        Err(why) => render::note(&format!("cellmate: the run's tasks at servers are not cancelled: {why}")),
    }
}
