//! `tools.toolSearch`: whether the model finds and calls tools through search controls, and which controls it has.

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::numbers::{Numbers, SearchLimits};
use super::reader::{self, ConfigReader};
use crate::limits::{self, Bound};

/// The resolved configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSearch {
    pub enabled: bool,
    pub mode: ToolSearchMode,
    pub code_timeout_ms: u64,
    pub search: SearchLimits,
}

/// The controls of the model: one tool that takes code, or three tools that take arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSearchMode {
    Code,
    Tools,
}

/// The settings that one scope gives. The others come from a broader scope or are the defaults.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialConfig {
    enabled: Option<bool>,
    mode: Option<ToolSearchMode>,
    numbers: Numbers,
}

pub(super) const NUMBERS: [&Bound; 3] =
    [&limits::TOOL_SEARCH_CODE_TIMEOUT_MS, &limits::SEARCH_DEFAULT_LIMIT, &limits::TOOL_SEARCH_MAX_SEARCH_LIMIT];

impl PartialConfig {
    pub(super) fn read(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Self {
        let switch = |enabled| Self { enabled: Some(enabled), ..Self::default() };
        reader::switch_or_object(value, path, errors, switch, Self::read_object)
    }

    fn read_object(reader: &mut ConfigReader<'_, '_>) -> Self {
        Self {
            enabled: reader.flag("enabled"),
            mode: reader.choice("mode", &[("code", ToolSearchMode::Code), ("tools", ToolSearchMode::Tools)]),
            numbers: Numbers::read(reader, &NUMBERS),
        }
    }

    pub(super) fn merged_over(&self, base: &Self) -> Self {
        Self {
            enabled: self.enabled.or(base.enabled),
            mode: self.mode.or(base.mode),
            numbers: self.numbers.merged_over(&base.numbers),
        }
    }

    /// Fills in the defaults. If `enabled` is not given, any other field enables Tool Search; an empty object does not.
    pub(super) fn resolve(&self) -> ToolSearch {
        ToolSearch {
            enabled: self.enabled.unwrap_or(self.mode.is_some() || !self.numbers.is_empty()),
            mode: self.mode.unwrap_or(ToolSearchMode::Code),
            code_timeout_ms: self.numbers.get(&limits::TOOL_SEARCH_CODE_TIMEOUT_MS),
            search: SearchLimits::of(&self.numbers, &limits::TOOL_SEARCH_MAX_SEARCH_LIMIT),
        }
    }
}

#[cfg(test)]
mod tests;
