//! Telemetry of Tool Search: what it did and cost, and what showing every tool would have cost. It contains ids and
//! numbers, never inputs.

use catalog::{Catalog, VisibleTool, tool_search_tools};
use contract::cell::{self, Durations, Sources};
use contract::config::{self, ToolSearchMode};
use contract::tool::{Source, ToolId};
use serde::Serialize;

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
    pub selected_tools: Vec<Selected>,
    pub duration_ms: Durations,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Selected {
    pub id: String,
    pub source: Source,
}

impl Telemetry {
    /// Creates telemetry without any searches, descriptions or calls.
    pub(super) fn new(mode: ToolSearchMode, config: &config::ToolSearch, catalog: &Catalog) -> Self {
        let visible = tool_search_tools(mode, config, catalog);
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

    pub(super) fn of_cell(self, cell: &cell::Telemetry) -> Self {
        Self {
            search_count: cell.search_count,
            describe_count: cell.describe_count,
            call_count: cell.call_count,
            selected_tools: cell.nested_tool_ids.iter().filter_map(|id| Selected::parse(id)).collect(),
            duration_ms: cell.duration_ms,
            ..self
        }
    }
}

impl Selected {
    pub(super) fn parse(id: &str) -> Option<Self> {
        let parsed = ToolId::parse(id).ok()?;
        Some(Self { id: id.to_owned(), source: parsed.source() })
    }
}
