//! The answers of the tools of Tool Search.

use catalog::Catalog;
use contract::cell::{CellResult, OutputItem};
use contract::config::{self, ToolSearchMode};
use contract::error::ErrorCode;
use contract::frame::Failure;
use serde_json::{Value, json};

use super::telemetry::Telemetry;

/// Returns the answer of `tool_search_code` for a cell's result.
pub(crate) fn answer(config: &config::ToolSearch, catalog: &Catalog, result: &CellResult) -> Value {
    let telemetry = Telemetry::new(ToolSearchMode::Code, config, catalog);
    match result {
        CellResult::Completed { value, output, telemetry: cell } => {
            let value: Value = contract::json::read(value.get()).unwrap_or(Value::Null);
            json!({"ok": true, "value": value, "logs": logs(output), "telemetry": telemetry.of_cell(cell)})
        }
        CellResult::Failed { error, code, output, telemetry: cell } => {
            failure(error, *code, logs(output), &telemetry.of_cell(cell))
        }
        // Cells of Tool Search never wait: they could not be resumed.
        CellResult::Waiting { output, telemetry: cell, .. } => {
            let error = "the cell stopped before it finished";
            failure(error, Some(ErrorCode::InternalError), logs(output), &telemetry.of_cell(cell))
        }
    }
}

/// Returns the answer of a structured tool that failed. It has no logs.
pub(super) fn failed(failed: &Failure, telemetry: &Telemetry) -> Value {
    failure(&failed.message, failed.code, Vec::new(), telemetry)
}

fn failure(error: &str, code: Option<ErrorCode>, logs: Vec<String>, telemetry: &Telemetry) -> Value {
    let mut answer = json!({"ok": false, "error": error, "logs": logs, "telemetry": telemetry});
    if let (Some(code), Some(fields)) = (code, answer.as_object_mut()) {
        fields.insert("code".to_owned(), json!(code));
    }
    answer
}

/// Returns whether an answer of any of the four tools is a failure.
pub fn is_failure(answer: &Value) -> bool {
    answer.get("ok") == Some(&Value::Bool(false))
}

fn logs(output: &[OutputItem]) -> Vec<String> {
    let line = |item: &OutputItem| match item {
        OutputItem::Text { text } => text.clone(),
        OutputItem::Json { value } => value.get().to_owned(),
    };
    output.iter().map(line).collect()
}
