//! `tools.fs`, `tools.exec` and `tools.web`: the core tools, which read and change files, run commands and fetch pages.
//!
//! Each is off unless `enabled` is `true`. All agents share them; an agent's settings and policy can only deny them.
//! The objects also have keys of OpenClaw: those with the same meaning are applied, the others are accepted and reported
//! by [`super::openclaw::unused`].

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::openclaw::keys;
use super::pattern::Pattern;
use super::reader::{self, ConfigReader};
use crate::limits::{MAX_PRIVATE_HOSTS, MAX_SHELL_READABLE};

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
    /// The folders that the file tools and the shell may use. An agent's workspace can replace them:
    /// [`super::AgentsConfig::file_roots`].
    pub roots: Vec<FileRoot>,
    /// OpenClaw's `workspaceOnly`: an agent's workspace is its only root.
    pub workspace_only: bool,
}

/// An entry of `tools.fs.roots`: a path, or an object with `path` and `access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRoot {
    /// The path as it is written in the configuration.
    pub path: String,
    pub access: RootAccess,
}

/// What tools may do in a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootAccess {
    Read,
    #[default]
    Write,
}

impl RootAccess {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("read", Self::Read), ("write", Self::Write)];
}

/// `tools.exec`: the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellTool {
    pub enabled: bool,
    /// Whether commands may run without Landlock on a system that does not have it.
    pub unconfined: bool,
    /// OpenClaw's `timeoutSec` or `timeoutSeconds`: how long a command may run if the call does not say.
    pub timeout_seconds: Option<u64>,
    /// Whether confined commands may use the network.
    pub network: bool,
    /// Folders and files outside the roots that confined commands may read.
    pub readable: Vec<String>,
}

/// `tools.web.fetch`: the tool that fetches pages. The limits are OpenClaw's; those that are not given have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebFetch {
    pub enabled: bool,
    /// The most characters of a page that are returned: the lower of `maxChars` and `maxCharsCap`.
    pub max_chars: Option<u64>,
    /// The most bytes of a response that are read.
    pub max_response_bytes: Option<u64>,
    pub timeout_seconds: Option<u64>,
    pub max_redirects: Option<u64>,
    /// Hosts that may be fetched although they are on this machine or in a private network.
    pub allow_private: Vec<String>,
}

/// The names of the file tools, all of the source and owner `openclaw:core`.
const FILE_TOOLS: [&str; 7] = ["read", "write", "edit", "apply_patch", "ls", "find", "grep"];

/// The file tools that change files.
const WRITING_TOOLS: [&str; 3] = ["write", "edit", "apply_patch"];

const APPLY_PATCH: [&str; 1] = ["apply_patch"];
const SHELL_TOOLS: [&str; 2] = ["exec", "process"];
const FETCH_TOOLS: [&str; 1] = ["web_fetch"];
const SEARCH_TOOLS: [&str; 1] = ["web_search"];

impl CoreTools {
    /// Reads `fs`, `exec` and `web` of the global `tools`. Also returns patterns of core tools that are denied.
    pub(super) fn read(reader: &mut ConfigReader<'_, '_>) -> (Self, Vec<Pattern>) {
        let mut denied = Vec::new();
        let files = reader.object("fs", |reader| FileTools {
            enabled: reader.flag("enabled").unwrap_or(false),
            roots: reader.field("roots").map(|(value, path, errors)| roots(value, &path, errors)).unwrap_or_default(),
            workspace_only: reader.flag("workspaceOnly").unwrap_or(false),
        });
        let shell = reader.object("exec", |reader| {
            let enabled = reader.flag("enabled").unwrap_or(false);
            let unconfined = reader.flag("unconfined").unwrap_or(false);
            let network = reader.flag("network").unwrap_or(false);
            let readable = limited(reader, "readable", MAX_SHELL_READABLE, folder);
            let timeout_seconds = timeout(reader);
            let is_denied = denied_by_openclaw(reader, &mut denied);
            ShellTool { enabled: enabled && !is_denied, unconfined, timeout_seconds, network, readable }
        });
        let web_fetch = reader.object("web", |reader| {
            reader.accept_table(keys::WEB);
            reader.object("fetch", |reader| {
                reader.accept_table(keys::FETCH);
                let (chars, cap) = (reader.whole("maxChars", 1), reader.whole("maxCharsCap", 1));
                WebFetch {
                    enabled: reader.flag("enabled").unwrap_or(false),
                    max_chars: chars.into_iter().chain(cap).min(),
                    max_response_bytes: reader.whole("maxResponseBytes", 1),
                    timeout_seconds: reader.whole("timeoutSeconds", 1),
                    max_redirects: reader.whole("maxRedirects", 0),
                    allow_private: limited(reader, "allowPrivate", MAX_PRIVATE_HOSTS, host),
                }
            })
        });
        let tools = Self {
            files: files.unwrap_or_default(),
            shell: shell.unwrap_or_default(),
            web_fetch: web_fetch.flatten().unwrap_or_default(),
        };
        (tools, denied)
    }
}

/// The settings of core tools in one agent's `tools`, which can only restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentCoreTools {
    /// Patterns of the core tools that the agent does not have.
    pub(super) denied: Vec<Pattern>,
    pub(super) workspace_only: bool,
}

impl AgentCoreTools {
    pub(super) fn read(reader: &mut ConfigReader<'_, '_>) -> Self {
        let mut tools = Self::default();
        reader.object("fs", |reader| {
            if reader.flag("enabled") == Some(false) {
                tools.deny(&FILE_TOOLS);
            }
            reader.forbid("roots", "no value here (set it under `tools.fs`; an agent's folder is its `workspace`)");
            tools.workspace_only = reader.flag("workspaceOnly").unwrap_or(false);
        });
        reader.object("exec", |reader| {
            let is_off = reader.flag("enabled") == Some(false);
            reader.forbid("unconfined", "no value here (set it under `tools.exec`, because it is about this machine)");
            // It is set for all agents, and only checked here.
            let _timeout = timeout(reader);
            let is_denied = denied_by_openclaw(reader, &mut tools.denied);
            if is_off || is_denied {
                tools.deny(&SHELL_TOOLS);
            }
        });
        reader.object("web", |reader| {
            reader.accept_table(keys::WEB);
            let search = reader.raw("search").and_then(|search| search.get("enabled")).and_then(Value::as_bool);
            if search == Some(false) {
                tools.deny(&SEARCH_TOOLS);
            }
            reader.object("fetch", |reader| {
                reader.accept_table(keys::FETCH);
                if reader.flag("enabled") == Some(false) {
                    tools.deny(&FETCH_TOOLS);
                }
                let keys = ["maxChars", "maxCharsCap", "maxResponseBytes", "timeoutSeconds", "maxRedirects"];
                for key in keys {
                    let _checked = reader.whole(key, 0);
                }
            });
        });
        tools
    }

    fn deny(&mut self, names: &[&str]) {
        self.denied.extend(patterns(names));
    }
}

/// Returns the core tools that a sandboxed agent does not have because of its `sandbox.workspaceAccess`.
pub(super) fn denied_without_write_access() -> Vec<Pattern> {
    patterns(&WRITING_TOOLS).into_iter().chain(patterns(&SHELL_TOOLS)).collect()
}

/// Returns the core tools that a sandboxed agent without access to its workspace does not have.
pub(super) fn denied_without_access() -> Vec<Pattern> {
    patterns(&FILE_TOOLS).into_iter().chain(patterns(&SHELL_TOOLS)).collect()
}

fn patterns(names: &[&str]) -> Vec<Pattern> {
    names.iter().filter_map(|name| Pattern::parse(&format!("openclaw:core:{name}")).ok()).collect()
}

/// Reads the time limit of commands, under the names of older and newer versions of OpenClaw.
fn timeout(reader: &mut ConfigReader<'_, '_>) -> Option<u64> {
    let (older, newer) = (reader.whole("timeoutSec", 1), reader.whole("timeoutSeconds", 1));
    newer.or(older)
}

/// Reads OpenClaw's own keys of `exec`. Returns whether they switch the shell off, and adds `apply_patch` to `denied` if
/// they switch it off.
fn denied_by_openclaw(reader: &mut ConfigReader<'_, '_>, denied: &mut Vec<Pattern>) -> bool {
    reader.accept_table(keys::EXEC);
    let is_patch_off = reader.object("applyPatch", |reader| {
        reader.accept_table(keys::APPLY_PATCH);
        reader.flag("enabled") == Some(false)
    });
    if is_patch_off == Some(true) {
        denied.extend(patterns(&APPLY_PATCH));
    }
    ["security", "mode"].iter().any(|key| reader.raw(key).and_then(Value::as_str) == Some("deny"))
}

fn roots(value: &Value, path: &Path, errors: &mut Vec<ConfigError>) -> Vec<FileRoot> {
    let mut nested = Vec::new();
    let roots = reader::list(value, path, errors, |value, path| match value {
        Value::Object(_) => {
            let read = reader::object(value, path, &mut nested, |reader| {
                let folder = reader.field("path").map(|(value, path, errors)| match folder(value, &path) {
                    Ok(folder) => Some(folder),
                    Err(error) => {
                        errors.push(error);
                        None
                    }
                });
                (folder.flatten(), reader.choice("access", &RootAccess::WORDS).unwrap_or_default())
            });
            match read {
                Some((Some(path), access)) => Ok(FileRoot { path, access }),
                Some((None, _)) | None => Err(ConfigError::wrong_value(path, value, "an object with `path`")),
            }
        }
        other => folder(other, path).map(|path| FileRoot { path, access: RootAccess::default() }),
    });
    errors.append(&mut nested);
    roots.unwrap_or_default()
}

fn folder(value: &Value, path: &Path) -> Result<String, ConfigError> {
    let text = value.as_str().filter(|text| !text.trim().is_empty());
    text.map(str::to_owned).ok_or_else(|| ConfigError::wrong_value(path, value, "a folder"))
}

/// Reads a list of limited length.
fn limited(
    reader: &mut ConfigReader<'_, '_>,
    key: &'static str,
    most: usize,
    item: impl FnMut(&Value, &Path) -> Result<String, ConfigError>,
) -> Vec<String> {
    let Some((value, path, errors)) = reader.field(key) else { return Vec::new() };
    if value.as_array().is_some_and(|items| items.len() > most) {
        errors.push(ConfigError::wrong_value(
            &path,
            &Value::from("a longer list"),
            &format!("a list of at most {most}"),
        ));
        return Vec::new();
    }
    reader::list(value, &path, errors, item).unwrap_or_default()
}

/// Reads the name or address of a host, without scheme and port.
fn host(value: &Value, path: &Path) -> Result<String, ConfigError> {
    let text = value.as_str().map(|text| text.trim_end_matches('.').to_ascii_lowercase());
    let is_address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
    let is_name = |text: &str| text.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_'));
    let host = text.filter(|text| !text.is_empty() && (is_address(text) || is_name(text)));
    host.ok_or_else(|| ConfigError::wrong_value(path, value, "a host name or an address, without scheme and port"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CoreTools, FileRoot, RootAccess};
    use crate::config::AgentsConfig;
    use crate::limits::{MAX_PRIVATE_HOSTS, MAX_SHELL_READABLE};

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

    #[test]
    fn lists_of_the_shell_and_of_web_fetch_are_read_and_limited() {
        let read = |tools| AgentsConfig::resolve(&tools, &json!(null)).map(|config| config.core_tools().clone());
        let shell = read(json!({"exec": {"network": true, "readable": ["~/.cargo"]}})).unwrap().shell;
        assert!(shell.network && shell.readable == ["~/.cargo"]);
        let hosts = json!({"web": {"fetch": {"allowPrivate": ["Wiki.Corp.", "10.0.0.1", "::1", "localhost"]}}});
        assert_eq!(read(hosts).unwrap().web_fetch.allow_private, ["wiki.corp", "10.0.0.1", "::1", "localhost"]);
        let fetch = |hosts| json!({"web": {"fetch": {"allowPrivate": hosts}}});
        for bad in [json!(["http://a"]), json!(["a:80"]), json!(["*"]), json!([""]), json!([3]), json!("a")] {
            assert!(read(fetch(bad.clone())).is_err(), "{bad}");
        }
        assert!(read(fetch(json!(vec!["a"; MAX_PRIVATE_HOSTS]))).is_ok());
        assert!(read(fetch(json!(vec!["a"; MAX_PRIVATE_HOSTS + 1]))).is_err());
        assert!(read(json!({"exec": {"readable": vec!["a"; MAX_SHELL_READABLE + 1]}})).is_err());
        assert!(read(json!({"exec": {"network": "yes"}})).is_err());
    }

    #[test]
    fn a_root_is_a_path_or_an_object_with_access() {
        let read = |roots| AgentsConfig::resolve(&json!({"fs": {"roots": roots}}), &json!(null));
        let root = |path: &str, access| FileRoot { path: path.to_owned(), access };
        let given = json!(["~/a", {"path": "b"}, {"path": "c", "access": "read"}]);
        let expected = [root("~/a", RootAccess::Write), root("b", RootAccess::Write), root("c", RootAccess::Read)];
        assert_eq!(read(given).unwrap().core_tools().files.roots, expected);
        for (wrong, path) in [
            (json!([7]), "tools.fs.roots[0]"),
            (json!([" "]), "tools.fs.roots[0]"),
            (json!(["a", {"access": "read"}]), "tools.fs.roots[1]"),
            (json!([{"path": "a", "access": "all"}]), "tools.fs.roots[0].access"),
            (json!([{"path": 3}]), "tools.fs.roots[0]"),
            (json!([{"path": "a", "mode": "rw"}]), "tools.fs.roots[0].mode"),
        ] {
            let errors = read(wrong.clone()).unwrap_err();
            assert!(errors.iter().any(|error| error.path == path), "{wrong}: {errors:?}");
        }
    }
}
