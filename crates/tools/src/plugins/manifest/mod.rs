//! The manifest of a plugin, `cellmate.plugin.json`: what the plugin offers. It is read without running the plugin.

mod fields;
mod namespace;
mod read;
mod schema;

use std::path::PathBuf;
use std::time::Duration;

use contract::config::ConfigError;
use contract::config::pattern::Pattern;
use contract::limits::{MAX_MANIFEST_BYTES, MAX_MANIFEST_DEPTH, MAX_MANIFEST_VALUES};
use contract::tool::ToolSpec;
use serde_json::Value;

pub(crate) use fields::is_id as is_plugin_id;
pub(crate) use namespace::read_scope;
pub use namespace::{NamespaceManifest, ScopeManifest};
pub use schema::schema;

/// The name of the manifest in a plugin's folder.
pub const MANIFEST_FILE: &str = "cellmate.plugin.json";

/// The path that errors begin with.
const ROOT: &str = "plugin";

/// A plugin's manifest, within all limits.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The owner in the ids of the plugin's tools.
    pub id: String,
    pub name: String,
    pub version: String,
    pub description: String,
    /// The program and its arguments. A program with a `/` is in the plugin's folder, another one is searched in `PATH`.
    pub command: Vec<String>,
    /// Environment variables that the plugin gets beside those that every child process inherits.
    pub env: Vec<String>,
    pub tools: Vec<PluginTool>,
    pub before_tool_call: Option<HookManifest>,
    pub after_tool_call: Option<HookManifest>,
    pub namespaces: Vec<NamespaceManifest>,
    /// JSON Schema of `plugins.entries.<id>.config`.
    pub config_schema: Option<Value>,
}

/// A tool of a plugin.
#[derive(Clone, Debug)]
pub struct PluginTool {
    pub spec: ToolSpec,
    pub effects: Effects,
    pub timeout: Duration,
}

/// What a tool does, which decides whether it is asked about and whether it may be repeated after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// The tool changes nothing.
    Reads,
    /// The tool changes something, and executes calls with the same idempotency key once.
    Repeatable,
    Changes,
}

impl Effects {
    const WORDS: [(&'static str, Self); 3] =
        [("reads", Self::Reads), ("repeatable", Self::Repeatable), ("changes", Self::Changes)];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Repeatable => "repeatable",
            Self::Changes => "changes",
        }
    }
}

/// Which calls a hook sees.
#[derive(Clone, Debug)]
pub struct HookManifest {
    pub tools: Vec<Pattern>,
    /// Whether it also sees cells, before they run and after.
    pub cells: bool,
    pub timeout: Duration,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("cannot read the manifest `{file}`: {source}")]
    File { file: PathBuf, source: std::io::Error },
    #[error("the manifest `{0}` has more than {MAX_MANIFEST_BYTES} bytes; shorten it")]
    TooLong(PathBuf),
    #[error(
        "the manifest `{0}` has more than {MAX_MANIFEST_VALUES} JSON values or nests deeper than {MAX_MANIFEST_DEPTH} \
         levels; simplify it"
    )]
    TooComplex(PathBuf),
    #[error("the manifest `{file}` is not JSON: {source}")]
    NotJson { file: PathBuf, source: serde_json::Error },
    #[error("the manifest `{file}` is invalid: {}", list(problems))]
    Invalid { file: PathBuf, problems: Vec<ConfigError> },
}

/// How many problems of one manifest are shown.
const MAX_SHOWN_PROBLEMS: usize = 20;

fn list(problems: &[ConfigError]) -> String {
    let shown = problems.iter().take(MAX_SHOWN_PROBLEMS).map(ToString::to_string);
    let rest = problems.len().saturating_sub(MAX_SHOWN_PROBLEMS);
    shown.chain((rest > 0).then(|| format!("and {rest} more"))).collect::<Vec<_>>().join("; ")
}

impl Manifest {
    /// Returns the tool of this name.
    pub fn tool(&self, name: &str) -> Option<&PluginTool> {
        self.tools.iter().find(|tool| tool.spec.id.name() == name)
    }

    /// Returns the hooks that the plugin has, with their names.
    pub fn hooks(&self) -> impl Iterator<Item = (&'static str, &HookManifest)> {
        let before = self.before_tool_call.iter().map(|hook| ("before_tool_call", hook));
        before.chain(self.after_tool_call.iter().map(|hook| ("after_tool_call", hook)))
    }
}

#[cfg(test)]
mod tests;
