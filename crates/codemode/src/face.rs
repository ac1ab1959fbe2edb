//! The mode of a run: code mode, where the model can `wait` for the cell, or Tool Search, where the cell must end
//! within one turn.

use catalog::{Catalog, View};
use contract::cell::CellResult;
use contract::config;
use serde_json::{Value, json};

use crate::definition::Definition;
use crate::recorded;
use crate::tool_search;

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

    /// Returns the result in the form that the model receives.
    pub(crate) fn answer(&self, catalog: &Catalog, result: &CellResult) -> Value {
        match self {
            Self::CodeMode => recorded::to_value(result),
            Self::ToolSearch(config) => tool_search::answer(config, catalog, result),
        }
    }
}
