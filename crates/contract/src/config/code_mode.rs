//! `tools.codeMode`: whether the model calls tools through `exec` and `wait`, and what its cells may use.

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::numbers::{Numbers, SearchLimits};
use super::reader::{self, ConfigReader};
use crate::cell::Language;
use crate::limits::{self, Bound, Limits};

/// The resolved configuration. `runtime` and `mode` have only one valid value each, so they are checked but not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMode {
    pub enabled: bool,
    /// What the configuration says about `enabled`, as `true` and `false` or in an object; `None` if it says nothing.
    /// `cellmate mcp` distinguishes that from `false`.
    pub switch: Option<bool>,
    pub languages: Languages,
    pub limits: Limits,
    /// Whether `timeoutMs` comes from the configuration. A host may then not hold an `exec` open for longer.
    pub has_own_timeout: bool,
    pub search: SearchLimits,
    pub snapshot_ttl_seconds: u64,
    /// The most live runs in the whole store; the same for every agent.
    pub max_live_runs: u64,
}

impl CodeMode {
    /// Returns an enabled code mode with these limits and default settings otherwise.
    pub fn enabled(limits: Limits) -> Self {
        let defaults = PartialConfig::default().resolve();
        Self { enabled: true, switch: Some(true), limits: limits.clamped(), has_own_timeout: true, ..defaults }
    }
}

/// The languages that a cell may be written in; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Languages {
    javascript: bool,
    typescript: bool,
}

impl Languages {
    pub const ALL: Self = Self { javascript: true, typescript: true };

    /// Allows only these languages. Returns `None` for an empty list, because at least one must be allowed.
    pub fn of(languages: &[Language]) -> Option<Self> {
        let has = |language: Language| languages.contains(&language);
        let these = Self { javascript: has(Language::JavaScript), typescript: has(Language::TypeScript) };
        (!languages.is_empty()).then_some(these)
    }

    pub fn allow(self, language: Language) -> bool {
        match language {
            Language::JavaScript => self.javascript,
            Language::TypeScript => self.typescript,
        }
    }
}

/// The settings that one scope gives. The others come from a broader scope or are the defaults.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialConfig {
    enabled: Option<bool>,
    languages: Option<Languages>,
    numbers: Numbers,
}

pub(super) const NUMBERS: [&Bound; 13] = [
    &limits::TIMEOUT_MS,
    &limits::MAX_WAIT_MS,
    &limits::MEMORY_LIMIT_BYTES,
    &limits::MAX_OUTPUT_BYTES,
    &limits::MAX_STORED_OUTPUT_BYTES,
    &limits::MAX_MEDIA_BLOCKS,
    &limits::MAX_MEDIA_BYTES,
    &limits::MAX_SNAPSHOT_BYTES,
    &limits::MAX_PENDING_TOOL_CALLS,
    &limits::SNAPSHOT_TTL_SECONDS,
    &limits::SEARCH_DEFAULT_LIMIT,
    &limits::MAX_SEARCH_LIMIT,
    &limits::MAX_LIVE_RUNS,
];

impl PartialConfig {
    pub(super) fn read(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Self {
        let switch = |enabled| Self { enabled: Some(enabled), ..Self::default() };
        reader::switch_or_object(value, path, errors, switch, Self::read_object)
    }

    fn read_object(reader: &mut ConfigReader<'_, '_>) -> Self {
        let enabled = reader.flag("enabled");
        // These have only one valid value each, so there is nothing to keep.
        let _runtime = reader.choice("runtime", &[("quickjs-wasi", ())]);
        let _mode = reader.choice("mode", &[("only", ())]);
        Self { enabled, languages: read_languages(reader), numbers: Numbers::read(reader, &NUMBERS) }
    }

    /// Returns `maxLiveRuns` if it is given here. An agent must not set it, because it applies to the whole store.
    pub(super) fn given_max_live_runs(&self) -> Option<u64> {
        self.numbers.given(&limits::MAX_LIVE_RUNS)
    }

    pub(super) fn merged_over(&self, base: &Self) -> Self {
        Self {
            enabled: self.enabled.or(base.enabled),
            languages: self.languages.or(base.languages),
            numbers: self.numbers.merged_over(&base.numbers),
        }
    }

    /// Fills in the defaults. Only `enabled: true` enables code mode, whatever else is given.
    pub(super) fn resolve(&self) -> CodeMode {
        let number = |bound| self.numbers.get(bound);
        CodeMode {
            enabled: self.enabled.unwrap_or(false),
            switch: self.enabled,
            languages: self.languages.unwrap_or(Languages::ALL),
            limits: Limits {
                timeout_ms: number(&limits::TIMEOUT_MS),
                max_wait_ms: number(&limits::MAX_WAIT_MS),
                memory_bytes: number(&limits::MEMORY_LIMIT_BYTES),
                output_bytes: number(&limits::MAX_OUTPUT_BYTES),
                snapshot_bytes: number(&limits::MAX_SNAPSHOT_BYTES),
                pending_calls: number(&limits::MAX_PENDING_TOOL_CALLS),
                stored_output_bytes: number(&limits::MAX_STORED_OUTPUT_BYTES),
                media_blocks: number(&limits::MAX_MEDIA_BLOCKS),
                media_bytes: number(&limits::MAX_MEDIA_BYTES),
            },
            has_own_timeout: self.numbers.given(&limits::TIMEOUT_MS).is_some(),
            search: SearchLimits::of(&self.numbers, &limits::MAX_SEARCH_LIMIT),
            snapshot_ttl_seconds: number(&limits::SNAPSHOT_TTL_SECONDS),
            max_live_runs: number(&limits::MAX_LIVE_RUNS),
        }
    }
}

fn read_languages(reader: &mut ConfigReader<'_, '_>) -> Option<Languages> {
    let words = [Language::JavaScript, Language::TypeScript].map(|language| (language.as_str(), language));
    let (value, path, errors) = reader.field("languages")?;
    let before = errors.len();
    let listed = reader::list(value, &path, errors, |item, path| reader::choose(item, path, &words))?;
    if listed.is_empty() && errors.len() == before {
        errors.push(ConfigError::wrong_value(&path, value, "at least one of `javascript`, `typescript`"));
    }
    Some(Languages {
        javascript: listed.contains(&Language::JavaScript),
        typescript: listed.contains(&Language::TypeScript),
    })
}

#[cfg(test)]
mod tests;
