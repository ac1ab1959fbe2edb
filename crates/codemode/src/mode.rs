//! The mode of a run, and the form in which its results are shown.
//!
//! In code mode the model can `wait` for the cell. In Tool Search the cell must end within one tool call, and its
//! answers contain telemetry: what it did and cost, and what showing every tool would have cost. Telemetry contains ids
//! and numbers, never inputs.

use std::borrow::Cow;

use catalog::{Catalog, View, VisibleTool, tool_search_tools};
use contract::cell::{self, CellResult, Durations, OutputItem, Sources};
use contract::config::{self, ToolSearchMode};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::tool::{Source, ToolId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::definition::Definition;

/// Code mode or Tool Search.
#[derive(Clone, Debug)]
pub(crate) enum RunMode {
    CodeMode,
    ToolSearch(config::ToolSearch),
}

impl RunMode {
    /// The view of the catalog that the cell has.
    pub(crate) fn view(&self) -> View {
        match self {
            Self::CodeMode => View::CodeMode,
            Self::ToolSearch(_) => View::ToolSearch,
        }
    }

    /// The prefix of run ids, which tells the mode of a run.
    pub(crate) fn run_prefix(&self) -> &'static str {
        match self {
            Self::CodeMode => "cm_",
            Self::ToolSearch(_) => "ts_",
        }
    }

    /// The tools the model sees.
    pub(crate) fn tools(&self) -> &'static [&'static str] {
        match self {
            Self::CodeMode => &["exec", "wait"],
            Self::ToolSearch(_) => &["tool_search_code"],
        }
    }

    /// Returns the control call as the transcript shows it.
    pub(crate) fn call(&self, definition: &Definition) -> Value {
        let code = &definition.source;
        match self {
            Self::CodeMode => {
                json!({"toolName": "exec", "arguments": {"code": code, "language": definition.language.as_str()}})
            }
            Self::ToolSearch(_) => json!({"toolName": "tool_search_code", "arguments": {"code": code}}),
        }
    }

    /// Returns the result in the form that the model receives, as JSON. `stored` is the result in its stored form.
    pub(crate) fn answer<'a>(&self, catalog: &Catalog, result: &CellResult, stored: &'a str) -> Cow<'a, str> {
        match self {
            Self::CodeMode => Cow::Borrowed(stored),
            Self::ToolSearch(config) => Cow::Owned(tool_search_answer(config, catalog, result).to_string()),
        }
    }
}

/// Returns the answer of `tool_search_code` for a cell's result.
pub(crate) fn tool_search_answer(config: &config::ToolSearch, catalog: &Catalog, result: &CellResult) -> Value {
    let telemetry = Telemetry::new(ToolSearchMode::Code, config, catalog);
    match result {
        CellResult::Completed { value, output, telemetry: cell } => {
            let value: Value = contract::json::read(value.get()).unwrap_or(Value::Null);
            json!({"ok": true, "value": value, "logs": logs(output), "telemetry": telemetry.of_cell(cell)})
        }
        CellResult::Failed { error, code, output, effects, telemetry: cell } => {
            let mut answer = failure(error, *code, logs(output), &telemetry.of_cell(cell));
            if let Some(fields) = answer.as_object_mut().filter(|_| !effects.is_empty()) {
                fields.insert("effects".to_owned(), json!(effects));
            }
            answer
        }
        // Cells of Tool Search never wait: they could not be resumed.
        CellResult::Waiting { output, telemetry: cell, .. } => {
            let error = "the cell stopped before it finished";
            failure(error, Some(ErrorCode::InternalError), logs(output), &telemetry.of_cell(cell))
        }
    }
}

/// Returns the answer of a structured tool that failed. It has no logs.
pub(crate) fn tool_search_failure(failed: &Failure, telemetry: &Telemetry) -> Value {
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
        OutputItem::Image(_) | OutputItem::Audio(_) | OutputItem::Stored(_) => {
            serde_json::to_string(item).unwrap_or_default()
        }
    };
    output.iter().map(line).collect()
}

/// What a use of Tool Search did and cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// `code` or `tools`.
    pub mode: &'static str,
    /// The names of the tools that the model saw up front.
    pub visible_tools: Vec<String>,
    /// The size of their names, descriptions and schemas as JSON.
    pub visible_bytes: usize,
    /// The size of names, descriptions and schemas of the whole catalog as JSON.
    pub direct_bytes: usize,
    pub catalog_size: usize,
    pub sources: Sources,
    pub search_count: u64,
    pub describe_count: u64,
    pub call_count: u64,
    /// The tools that were called, each once, in the order of their first calls.
    pub selected_tools: Vec<SelectedTool>,
    pub duration_ms: Durations,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectedTool {
    pub id: String,
    pub source: Source,
}

impl Telemetry {
    /// Creates telemetry without any searches, descriptions or calls.
    pub(crate) fn new(mode: ToolSearchMode, config: &config::ToolSearch, catalog: &Catalog) -> Self {
        let visible = tool_search_tools(mode, config, catalog, "");
        Self {
            mode: match mode {
                ToolSearchMode::Code => "code",
                ToolSearchMode::Tools => "tools",
            },
            visible_bytes: visible.iter().map(VisibleTool::bytes).sum(),
            visible_tools: visible.into_iter().map(|tool| tool.name).collect(),
            direct_bytes: catalog.direct_bytes(),
            catalog_size: catalog.len(),
            sources: catalog.sources(),
            search_count: 0,
            describe_count: 0,
            call_count: 0,
            selected_tools: Vec::new(),
            duration_ms: Durations::default(),
        }
    }

    fn of_cell(self, cell: &cell::Telemetry) -> Self {
        Self {
            search_count: cell.search_count,
            describe_count: cell.describe_count,
            call_count: cell.call_count,
            selected_tools: cell.nested_tool_ids.iter().filter_map(|id| SelectedTool::parse(id)).collect(),
            duration_ms: cell.duration_ms,
            ..self
        }
    }
}

impl SelectedTool {
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let parsed = ToolId::parse(id).ok()?;
        Some(Self { id: id.to_owned(), source: parsed.source() })
    }
}
