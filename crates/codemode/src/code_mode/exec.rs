//! `exec`: starts a run, and waits for the result of its first turn.

use std::sync::Arc;
use std::time::Duration;

use contract::cell::CellResult;
use contract::config;
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::RunId;
use executor::clock::now_ms;
use executor::{Executor, Journal, JudgedCell, internal_message, run_name};
use serde_json::Value;
use tokio::sync::oneshot;

use super::wait::wait;
use crate::definition::Definition;
use crate::driver::{Driver, Run};
use crate::failure::{failed, failed_with, failure};
use crate::input::{ExecInput, fill_both_names, language, sync_names};
use crate::mode::RunMode;
use crate::registry::{RunRegistry, random_seed};
use crate::run_telemetry::without_run;
use crate::stored_result;

/// A function that is called with the id of a run as soon as there is one.
type OnStart<'a> = Box<dyn FnOnce(&RunId) + Send + 'a>;

/// What `exec` runs: a cell, or the JSON input of a model.
pub struct ExecRequest<'a> {
    input: Input<'a>,
    on_start: OnStart<'a>,
    hold: Option<Duration>,
}

enum Input<'a> {
    /// A cell that the host program runs. Hooks do not see it.
    Cell(ExecInput),
    /// The input of a model's `exec`. Hooks see the source as both `code` and `command`; rewriting one rewrites both.
    Json(&'a Value),
}

impl<'a> ExecRequest<'a> {
    fn new(input: Input<'a>) -> Self {
        Self { input, on_start: Box::new(|_| {}), hold: None }
    }

    /// Waits this long for pending calls, instead of `timeoutMs`, before the result is `waiting`. `timeoutMs` then
    /// limits the time of the cell's own code, as it does in `wait`.
    #[must_use]
    pub fn hold_for(self, hold: Duration) -> Self {
        Self { hold: Some(hold), ..self }
    }

    /// Calls `on_start` with the run's id as soon as there is one. A caller that may have to abort the run needs the id
    /// before the result.
    #[must_use]
    pub fn on_start(self, on_start: impl FnOnce(&RunId) + Send + 'a) -> Self {
        Self { on_start: Box::new(on_start), ..self }
    }
}

impl From<ExecInput> for ExecRequest<'_> {
    fn from(cell: ExecInput) -> Self {
        Self::new(Input::Cell(cell))
    }
}

impl<'a> From<&'a Value> for ExecRequest<'a> {
    fn from(json: &'a Value) -> Self {
        Self::new(Input::Json(json))
    }
}

impl std::fmt::Debug for ExecRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecRequest").finish_non_exhaustive()
    }
}

/// Runs a cell until it ends, yields, waits only for people or clients, or its time is over.
pub(super) async fn exec(
    registry: &Arc<RunRegistry>,
    executor: &Executor,
    config: &config::CodeMode,
    tool_call_id: &str,
    ExecRequest { input, on_start, hold }: ExecRequest<'_>,
) -> CellResult {
    let json = match input {
        Input::Cell(cell) => {
            return first_turn(registry, executor, config, tool_call_id, (Ok(cell), hold), on_start).await;
        }
        Input::Json(json) => json,
    };
    if !executor.has_hooks() {
        let cell = ExecInput::parse(json);
        return first_turn(registry, executor, config, tool_call_id, (cell, hold), on_start).await;
    }
    let given = fill_both_names(json);
    let judged = executor.before_cell(tool_call_id, given.clone(), language(&given)).await;
    let JudgedCell { params, mut event, rewriters } = match judged {
        Ok(judged) => judged,
        Err(reason) => return failed(ErrorCode::InvalidInput, &reason).with_telemetry(without_run(executor)),
    };
    // Hooks that run afterwards see the source that was run.
    event.params = sync_names(&given, params);
    event.tool_input_kind = language(&event.params);
    let cell = ExecInput::parse(&event.params).map_err(|failure| match ExecInput::parse(&given) {
        Ok(_) => Failure { message: rewriters.explain("this cell", failure.message), ..failure },
        // The model's own input is invalid.
        Err(_) => failure,
    });
    let result = first_turn(registry, executor, config, tool_call_id, (cell, hold), on_start).await;
    executor.after_cell(&event, stored_result::to_value(&result)).await;
    result
}

async fn first_turn(
    registry: &Arc<RunRegistry>,
    executor: &Executor,
    config: &config::CodeMode,
    tool_call_id: &str,
    (cell, hold): (Result<ExecInput, Failure>, Option<Duration>),
    on_start: OnStart<'_>,
) -> CellResult {
    let started = match cell {
        Ok(cell) => start(registry, executor, config, RunMode::CodeMode, tool_call_id, (cell, hold)).await,
        Err(failure) => Err(failure),
    };
    match started {
        Ok((run_id, reported)) => {
            on_start(&run_id);
            match reported.await {
                Ok(result) => result,
                // Another process has taken over the run.
                Err(_) => wait(registry, executor, config, tool_call_id, &run_id).await,
            }
        }
        Err(failure) => failed_with(&failure).with_telemetry(without_run(executor)),
    }
}

/// Starts a run. Returns its id, and the channel that receives the result of its first turn, which waits for pending
/// calls for the given time, or for `timeoutMs`.
pub(super) async fn start(
    registry: &Arc<RunRegistry>,
    executor: &Executor,
    config: &config::CodeMode,
    mode: RunMode,
    tool_call_id: &str,
    (cell, hold): (ExecInput, Option<Duration>),
) -> Result<(RunId, oneshot::Receiver<CellResult>), Failure> {
    if !config.languages.allow(cell.language) {
        let message = format!("this run's cells may not be written in {}", cell.language.as_str());
        return Err(failure(ErrorCode::UnsupportedLanguage, message));
    }
    match registry.has_room_for(config.max_live_runs).await {
        Ok(true) => {}
        Ok(false) => {
            let message = format!(
                "too many cells are waiting: at most {} at once; finish some with `wait` before starting more",
                config.max_live_runs
            );
            return Err(failure(ErrorCode::RuntimeUnavailable, message));
        }
        Err(error) => {
            let advice = "the store is unavailable, so the cell was not started; try again later";
            let message = internal_message("count the runs", &error, advice);
            return Err(failure(ErrorCode::RuntimeUnavailable, message));
        }
    }
    fault::point("exec.before_start").map_err(|error| {
        let message = internal_message("start a run", &error, "the cell was not started; try again later");
        failure(ErrorCode::InternalError, message)
    })?;
    let (Ok(name), Ok(seed)) = (run_name(), random_seed()) else {
        return Err(failure(ErrorCode::RuntimeUnavailable, "cannot read system randomness; try again later"));
    };
    let run_id = RunId::new(format!("{}{name}", mode.run_prefix()));
    let definition = Definition::new(cell, seed, config.limits.clamped(), config.snapshot_ttl_seconds);
    let definition = definition.allowing(config.languages).started_by(executor.scope());
    let tables = executor.catalog().tables_for(mode.view());
    let kept = (definition.to_json(), definition.expires_at(now_ms()));
    let held = registry.new_run(run_id.clone(), executor.scope().as_ref().clone(), tool_call_id, &tables, kept);
    let journal = Journal::new(registry.store.clone(), held).with_lease(registry.lease.clone());
    let run = registry.run(run_id.clone(), definition, config.search, executor, tables, journal);
    let (listener, reported) = oneshot::channel();
    let driver = Driver::new(Run { mode, ..run }, tool_call_id.to_owned(), listener);
    let driver = match hold {
        Some(hold) => driver.holding_first_turn(hold),
        None => driver,
    };
    registry.launch(run_id.clone(), driver, None);
    Ok((run_id, reported))
}
