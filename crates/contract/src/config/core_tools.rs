//! `tools.fs`, `tools.exec` and `tools.web`: the core tools, which read and change files, run commands and fetch pages.
//!
//! Each is off unless `enabled` is `true`. All agents share them; an agent's policy can deny them.

use serde_json::Value;

use super::error::{ConfigError, Path};
use super::reader::{self, Reader};
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
    /// The folders that the file tools and the shell may use.
    pub roots: Vec<FileRoot>,
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
    /// Whether confined commands may use the network.
    pub network: bool,
    /// Folders and files outside the roots that confined commands may read.
    pub readable: Vec<String>,
}

/// `tools.web.fetch`: the tool that fetches pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebFetch {
    pub enabled: bool,
    /// Hosts that may be fetched although they are on this machine or in a private network.
    pub allow_private: Vec<String>,
}

impl CoreTools {
    /// Reads `fs`, `exec` and `web` of the global `tools`.
    pub(super) fn read(reader: &mut Reader<'_, '_>) -> Self {
        let files = reader.object("fs", |reader| FileTools {
            enabled: reader.flag("enabled").unwrap_or(false),
            roots: reader.field("roots").map(|(value, path, errors)| roots(value, &path, errors)).unwrap_or_default(),
        });
        let shell = reader.object("exec", |reader| ShellTool {
            enabled: reader.flag("enabled").unwrap_or(false),
            unconfined: reader.flag("unconfined").unwrap_or(false),
            network: reader.flag("network").unwrap_or(false),
            readable: limited(reader, "readable", MAX_SHELL_READABLE, folder),
        });
        let web_fetch = reader.object("web", |reader| {
            reader.object("fetch", |reader| WebFetch {
                enabled: reader.flag("enabled").unwrap_or(false),
                allow_private: limited(reader, "allowPrivate", MAX_PRIVATE_HOSTS, host),
            })
        });
        Self {
            files: files.unwrap_or_default(),
            shell: shell.unwrap_or_default(),
            web_fetch: web_fetch.flatten().unwrap_or_default(),
        }
    }
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
                Some((None, _)) | None => Err(ConfigError::value(path, value, "an object with `path`")),
            }
        }
        other => folder(other, path).map(|path| FileRoot { path, access: RootAccess::default() }),
    });
    errors.append(&mut nested);
    roots.unwrap_or_default()
}

fn folder(value: &Value, path: &Path) -> Result<String, ConfigError> {
    let text = value.as_str().filter(|text| !text.trim().is_empty());
    text.map(str::to_owned).ok_or_else(|| ConfigError::value(path, value, "a folder"))
}

/// Reads a list of limited length.
fn limited(
    reader: &mut Reader<'_, '_>,
    key: &'static str,
    most: usize,
    item: impl FnMut(&Value, &Path) -> Result<String, ConfigError>,
) -> Vec<String> {
    let Some((value, path, errors)) = reader.field(key) else { return Vec::new() };
    if value.as_array().is_some_and(|items| items.len() > most) {
        errors.push(ConfigError::value(&path, &Value::from("a longer list"), &format!("a list of at most {most}")));
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
    host.ok_or_else(|| ConfigError::value(path, value, "a host name or an address, without scheme and port"))
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
