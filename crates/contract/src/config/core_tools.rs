//! `tools.fs`, `tools.exec` and `tools.web`: the core tools, which read and change files, run commands and fetch pages.
//!
//! Each is off unless `enabled` is `true`. All agents share them; an agent's policy can deny them.

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::reader::Reader;

/// The resolved settings of all core tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreTools {
    pub files: FileTools,
    pub shell: ShellTool,
    pub web_fetch: WebFetch,
}

/// `tools.fs`: the file tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTools {
    pub enabled: bool,
    /// The folders that the file tools and the shell may use, as they are written in the configuration.
    pub roots: Vec<String>,
}

/// `tools.exec`: the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellTool {
    pub enabled: bool,
    /// Whether commands may run without Landlock on a system that does not have it.
    pub unconfined: bool,
}

/// `tools.web.fetch`: the tool that fetches pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebFetch {
    pub enabled: bool,
}

impl CoreTools {
    /// Reads `fs`, `exec` and `web` of the global `tools`.
    pub(super) fn read(reader: &mut Reader<'_, '_>) -> Self {
        let files = reader.object("fs", |reader| FileTools {
            enabled: reader.flag("enabled").unwrap_or(false),
            roots: reader.list("roots", root).unwrap_or_default(),
        });
        let shell = reader.object("exec", |reader| ShellTool {
            enabled: reader.flag("enabled").unwrap_or(false),
            unconfined: reader.flag("unconfined").unwrap_or(false),
        });
        let web_fetch = reader.object("web", |reader| {
            reader.object("fetch", |reader| WebFetch { enabled: reader.flag("enabled").unwrap_or(false) })
        });
        Self {
            files: files.unwrap_or_default(),
            shell: shell.unwrap_or_default(),
            web_fetch: web_fetch.flatten().unwrap_or_default(),
        }
    }
}

fn root(value: &Value, path: &Path) -> Result<String, ConfigError> {
    let text = value.as_str().filter(|text| !text.trim().is_empty());
    text.map(str::to_owned).ok_or_else(|| ConfigError::value(path, value, "a folder"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::CoreTools;
    use crate::config::AgentsConfig;

    #[test]
    fn core_tools_are_off_unless_enabled_is_true() {
        let read = |tools| AgentsConfig::resolve(&tools, &json!(null)).unwrap().core_tools().clone();
        assert_eq!(read(json!({})), CoreTools::default());
        let configured = json!({"fs": {"roots": ["~/project"]}, "exec": {"unconfined": true}, "web": {"fetch": {}}});
        let configured = read(configured);
        assert!(!configured.files.enabled && !configured.shell.enabled && !configured.web_fetch.enabled);
        let enabled = json!({"fs": {"enabled": true}, "exec": {"enabled": true}, "web": {"fetch": {"enabled": true}}});
        let enabled = read(enabled);
        assert!(enabled.files.enabled && enabled.shell.enabled && enabled.web_fetch.enabled);
        assert!(AgentsConfig::resolve(&json!({"exec": {"enabled": "yes"}}), &json!(null)).is_err());
    }
}
