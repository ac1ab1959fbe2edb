//! Tool Search: gives the model one tool that takes code, or three that take arguments, instead of the whole catalog.
//!
//! `tool_search_code` runs a cell to its end within one tool call; the structured tools need no worker. Both make their
//! calls through the executor.

mod input;
mod structured;

use std::time::Duration;

use contract::cell::{CellResult, OutputItem};
use contract::config;
use contract::error::ErrorCode;
use contract::ids::RunId;
use contract::limits::Limits;
use executor::Executor;
use executor::clock::now_ms;
use serde_json::{Value, json};
use telemetry::LogIgnored;
use tokio::sync::oneshot;

use crate::code_mode::CodeMode;
use crate::failure::{failed, failed_with, stopped_unreported};
use crate::input::ExecInput;
use crate::mode::{RunMode, tool_search_answer};

pub use crate::mode::{SelectedTool, Telemetry, is_failure};
pub use structured::{ControlRequest, MadeCall};

/// How long after its timeout a cell may still wait for a worker, or for its worker to stop it.
const GRACE: Duration = Duration::from_secs(2);

/// The answer of a Tool Search tool, and what its use did and cost.
///
/// For cells and failures, `value` also has the telemetry, under the key `telemetry`.
#[derive(Clone, Debug)]
pub struct ToolSearchAnswer {
    pub value: Value,
    pub telemetry: Value,
    /// Images and sounds that a cell shows. The value describes them without their data.
    pub media: Vec<OutputItem>,
}

/// The tools of Tool Search. They answer any input with JSON.
#[derive(Clone, Debug)]
pub struct ToolSearch {
    code_mode: CodeMode,
}

impl ToolSearch {
    pub fn new(code_mode: CodeMode) -> Self {
        Self { code_mode }
    }

    /// Runs `tool_search_code { code }` → `{ ok, value | error, code?, logs, telemetry }`.
    pub async fn run_code(
        &self,
        executor: &Executor,
        config: &config::ToolSearch,
        tool_call_id: &str,
        input: &Value,
    ) -> Value {
        self.run_code_with(executor, config, tool_call_id, input, |_| {}).await.value
    }

    /// Runs `tool_search_code`, and calls `on_start` with the run's id as soon as there is one: a caller that may have to
    /// abort the run needs it before the answer.
    pub async fn run_code_with(
        &self,
        executor: &Executor,
        config: &config::ToolSearch,
        tool_call_id: &str,
        input: &Value,
        on_start: impl FnOnce(&RunId) + Send,
    ) -> ToolSearchAnswer {
        let source = json!({"code": input.get("code")});
        let begun = match ExecInput::parse(&source) {
            Ok(cell) => {
                let mode = RunMode::ToolSearch(config.clone());
                self.code_mode.start(executor, &cell_config(config), mode, tool_call_id, cell).await
            }
            Err(failure) => Err(failure),
        };
        let result = match begun {
            Ok((run_id, reported)) => {
                on_start(&run_id);
                self.wait_for_result(config, &run_id, reported).await
            }
            Err(failure) => failed_with(&failure),
        };
        let value = tool_search_answer(config, executor.catalog(), &result);
        let telemetry = value.get("telemetry").cloned().unwrap_or_default();
        let media = result.output().iter().filter(|item| matches!(item, OutputItem::Image(_) | OutputItem::Audio(_)));
        ToolSearchAnswer { value, telemetry, media: media.cloned().collect() }
    }

    /// Waits for the result of a cell, and aborts the run if there is none until [`GRACE`] after its timeout.
    async fn wait_for_result(
        &self,
        config: &config::ToolSearch,
        run_id: &RunId,
        reported: oneshot::Receiver<CellResult>,
    ) -> CellResult {
        let deadline = Duration::from_millis(config.code_timeout_ms) + GRACE;
        let result = match tokio::time::timeout(deadline, reported).await {
            Ok(result) => result.unwrap_or_else(|_| stopped_unreported()),
            Err(_) => {
                self.code_mode.abort(run_id).await;
                failed(ErrorCode::Timeout, &format!("timed out after {} ms", config.code_timeout_ms))
            }
        };
        if matches!(&result, CellResult::Failed { code: Some(ErrorCode::Timeout), .. }) {
            // Voids approval requests for calls that will not be made.
            self.code_mode.store().expire(now_ms()).await.log_ignored("void approval requests");
        }
        result
    }
}

/// Returns the configuration of a cell of Tool Search: code mode's default limits, with Tool Search's own timeout.
fn cell_config(config: &config::ToolSearch) -> config::CodeMode {
    let limits = Limits { timeout_ms: config.code_timeout_ms, ..Limits::DEFAULT };
    config::CodeMode { search: config.search, ..config::CodeMode::enabled(limits) }
}
