//! Arguments that several commands share: `--config`, `--scope`, `--provider`, `--surface`, `--jail`, `--language` and
//! the limits of a cell.

use std::path::PathBuf;

use catalog::SurfaceChoice;
use catalog::policy::Provider;
use clap::{Args, ValueEnum};
use client_config::{Places, Scope};
use codemode::pool::{JailPolicy, Launch, PoolOptions};
use contract::cell::Language;
use contract::config::{CodeMode, Languages};
use contract::limits::{self, Bound, Limits};

use crate::render;
use crate::state::places_here;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArguments {
    /// Use this configuration file instead of the default ones; other clients' files work. May be repeated.
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

impl ConfigArguments {
    pub(crate) fn places(&self) -> Places {
        places_here(&self.files)
    }
}

/// Which of the policy's rules apply to a run, besides its agent's.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PolicyArguments {
    /// Apply the rules of `tools.byProvider` for this model; without it, the rules of all providers apply together.
    #[arg(long, value_name = "NAME[/MODEL]", value_parser = Provider::parse)]
    provider: Option<Provider>,
    /// Apply the rules of `tools.sandbox.tools`, for an agent whose own tools run in a sandbox.
    #[arg(long)]
    pub(crate) sandboxed: bool,
}

impl PolicyArguments {
    pub(crate) fn is_given(&self) -> bool {
        self.provider.is_some() || self.sandboxed
    }

    pub(crate) fn provider(&self) -> Provider {
        self.provider.clone().unwrap_or_default()
    }
}

/// The value of `--surface`: how tools are shown to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SurfaceArgument {
    /// `exec` and `wait`: the model writes cells that call the tools.
    Code,
    /// The controls of Tool Search, in the mode of `tools.toolSearch`.
    Search,
    /// The tools themselves.
    Direct,
    /// The tools themselves if they are few and small, else code.
    Auto,
}

impl From<SurfaceArgument> for SurfaceChoice {
    fn from(argument: SurfaceArgument) -> Self {
        match argument {
            SurfaceArgument::Code => Self::Code,
            SurfaceArgument::Search => Self::Search,
            SurfaceArgument::Direct => Self::Direct,
            SurfaceArgument::Auto => Self::Auto,
        }
    }
}

/// The value of `--scope`: whose configuration a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArgument {
    User,
    #[value(alias = "local")]
    Project,
}

impl From<ScopeArgument> for Scope {
    fn from(argument: ScopeArgument) -> Self {
        match argument {
            ScopeArgument::User => Self::User,
            ScopeArgument::Project => Self::Project,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct JailArguments {
    /// Required sandbox level.
    #[arg(long, value_enum, default_value_t = JailArgument::Required)]
    jail: JailArgument,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum JailArgument {
    /// Landlock and seccomp; refuse to run without them.
    Required,
    /// The protections that this machine supports.
    Preferred,
    /// Only the WebAssembly sandbox; for debugging.
    Off,
}

impl JailArguments {
    pub(crate) fn policy(&self) -> JailPolicy {
        match self.jail {
            JailArgument::Required => JailPolicy::Required,
            JailArgument::Preferred => JailPolicy::Preferred,
            JailArgument::Off => JailPolicy::Off,
        }
    }

    /// Returns the options of a pool for one cell: one worker is enough.
    pub(crate) fn pool(&self, memory_limit_bytes: u64) -> PoolOptions {
        let jail = self.policy();
        let options = PoolOptions::new(Launch::ThisProgram);
        PoolOptions { jail, workers: 1, slots: 4, threads: 2, memory_limit_bytes, ..options }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LanguageArgument {
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    #[value(name = "typescript", alias = "ts")]
    TypeScript,
}

impl LanguageArgument {
    pub(crate) fn language(self) -> Language {
        match self {
            Self::JavaScript => Language::JavaScript,
            Self::TypeScript => Language::TypeScript,
        }
    }
}

/// Limits of a cell. Those that are omitted come from the configuration, or are the defaults with `--catalog`.
#[derive(Debug, Args)]
pub(crate) struct LimitArguments {
    /// Time limit of the cell until its first result, and of its code in each later wait [default: configured].
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Longest time that one wait for pending tool calls takes [default: configured].
    #[arg(long, value_name = "MS")]
    max_wait_ms: Option<u64>,
    /// Heap size limit of the cell [default: configured].
    #[arg(long, value_name = "BYTES")]
    memory_limit_bytes: Option<u64>,
    /// Size limit of output and return value in one result; larger ones are stored [default: configured].
    #[arg(long, value_name = "BYTES")]
    max_output_bytes: Option<u64>,
    /// Size limit of the cell's output and return value that are stored [default: configured].
    #[arg(long, value_name = "BYTES")]
    max_stored_output_bytes: Option<u64>,
    /// Size limit of a suspended cell's compressed snapshot [default: configured].
    #[arg(long, value_name = "BYTES")]
    max_snapshot_bytes: Option<u64>,
    /// Tool calls that run at once; further calls queue [default: configured].
    #[arg(long, value_name = "N")]
    max_pending_tool_calls: Option<u64>,
    /// Languages that the cell may be written in [default: configured].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LANGUAGES")]
    languages: Vec<LanguageArgument>,
}

impl LimitArguments {
    /// Returns the configuration with the limits that were given, each clamped to its allowed range. Says so on standard
    /// error if another number is used than the one that was given.
    pub(crate) fn apply_to(&self, configured: CodeMode) -> CodeMode {
        self.moved_numbers().iter().for_each(|message| render::note(&format!("cellmate: {message}")));
        let base = configured.limits;
        let limits = Limits {
            timeout_ms: self.timeout_ms.unwrap_or(base.timeout_ms),
            max_wait_ms: self.max_wait_ms.unwrap_or(base.max_wait_ms),
            memory_bytes: self.memory_limit_bytes.unwrap_or(base.memory_bytes),
            output_bytes: self.max_output_bytes.unwrap_or(base.output_bytes),
            snapshot_bytes: self.max_snapshot_bytes.unwrap_or(base.snapshot_bytes),
            pending_calls: self.max_pending_tool_calls.unwrap_or(base.pending_calls),
            stored_output_bytes: self.max_stored_output_bytes.unwrap_or(base.stored_output_bytes),
            ..base
        };
        let languages: Vec<Language> = self.languages.iter().map(|language| language.language()).collect();
        let languages = Languages::of(&languages).unwrap_or(configured.languages);
        CodeMode { languages, limits: limits.clamped(), ..configured }
    }

    /// Returns a message for each number that was given and is outside of its range.
    fn moved_numbers(&self) -> Vec<String> {
        let given: [(&str, Option<u64>, Bound); 7] = [
            ("--timeout-ms", self.timeout_ms, limits::TIMEOUT_MS),
            ("--max-wait-ms", self.max_wait_ms, limits::MAX_WAIT_MS),
            ("--memory-limit-bytes", self.memory_limit_bytes, limits::MEMORY_LIMIT_BYTES),
            ("--max-output-bytes", self.max_output_bytes, limits::MAX_OUTPUT_BYTES),
            ("--max-stored-output-bytes", self.max_stored_output_bytes, limits::MAX_STORED_OUTPUT_BYTES),
            ("--max-snapshot-bytes", self.max_snapshot_bytes, limits::MAX_SNAPSHOT_BYTES),
            ("--max-pending-tool-calls", self.max_pending_tool_calls, limits::MAX_PENDING_TOOL_CALLS),
        ];
        let moved = given.into_iter().filter_map(|(flag, number, bound)| {
            let number = number.filter(|number| !bound.range.contains(number))?;
            let used = bound.clamp(number);
            Some(render::out_of_range(flag, number, [bound.range.start(), bound.range.end(), &used]))
        });
        moved.collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::LimitArguments;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        limits: LimitArguments,
    }

    #[test]
    fn numbers_outside_of_their_range_are_reported_with_the_number_that_is_used() {
        let line = "x --timeout-ms 5 --max-wait-ms 100 --memory-limit-bytes 10 --max-pending-tool-calls 129";
        let moved = Program::parse_from(line.split(' ')).limits.moved_numbers();
        assert_eq!(
            moved,
            [
                "`--timeout-ms`: 5 is outside of its range, 100 to 60000, so 100 is used",
                "`--memory-limit-bytes`: 10 is outside of its range, 1048576 to 1073741824, so 1048576 is used",
                "`--max-pending-tool-calls`: 129 is outside of its range, 1 to 128, so 128 is used",
            ]
        );
        assert!(Program::parse_from(["x"]).limits.moved_numbers().is_empty());
    }
}
