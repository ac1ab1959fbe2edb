//! The paths of configuration and state files, and the environment variables that the files may refer to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::display;
use crate::variables::{Dialect, ExpansionError, SecretSource, SecretUse, Variables};

/// The environment variable with the path of a file that is read instead of the user's and the project's file.
pub(crate) const CONFIG_VARIABLE: &str = "CELLMATE_CONFIG";

/// The path of the user's file, relative to the configuration folder.
pub(crate) const USER_FILE: &str = "cellmate/config.json5";

/// The folder inside the state folder that stores each server's last tool list and last failure.
pub const TOOL_LISTS: &str = "servers";

/// The name of a project's file. It is in the current folder or one of its parents.
pub(crate) const PROJECT_FILE: &str = ".cellmate.json5";

/// The scope of a configuration file: all of the user's projects, or the project in the current folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    User,
    Project,
}

/// The paths of configuration and state files, derived from the environment and the current folder. They need not
/// exist.
#[derive(Clone)]
pub struct Places {
    /// The files given with `--config`. If there are any, they are read instead of the user's and the project's file.
    pub(crate) named: Vec<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or `~/.config`.
    pub(crate) config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or `~/.local/state`.
    pub(crate) state_home: Option<PathBuf>,
    /// The current folder.
    pub(crate) folder: PathBuf,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) secrets: Option<Arc<dyn SecretSource>>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("named", &self.named).field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Places {
    /// Returns the paths for this process's environment and current folder.
    pub fn here(named: &[PathBuf]) -> Self {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        // Variables that are not Unicode are ignored: configuration files are Unicode and cannot refer to them.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::of(named, folder, environment.collect())
    }

    /// Returns the paths for a given environment and current folder.
    pub fn of(named: &[PathBuf], folder: PathBuf, environment: BTreeMap<String, String>) -> Self {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = set("HOME");
        // The XDG specification requires ignoring relative paths.
        let xdg = |name: &str, below: &str| {
            set(name).filter(|path| path.is_absolute()).or_else(|| home.as_ref().map(|home| home.join(below)))
        };
        let (config_home, state_home) = (xdg("XDG_CONFIG_HOME", ".config"), xdg("XDG_STATE_HOME", ".local/state"));
        let named = named.iter().map(|path| folder.join(path)).collect();
        Self { named, home, config_home, state_home, folder, environment, secrets: None }
    }

    /// Replaces the current folder.
    pub fn with_folder(self, folder: PathBuf) -> Self {
        Self { folder, ..self }
    }

    /// Sets the secrets to which `${secret:NAME}` in a server's entry refers. Without them, none is set.
    pub fn with_secrets(self, secrets: Arc<dyn SecretSource>) -> Self {
        Self { secrets: Some(secrets), ..self }
    }

    /// Returns the current folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Expands `${VARIABLE}` and similar references in a setting.
    pub fn expand(&self, text: &str) -> Result<String, ExpansionError> {
        self.variables().expand(text, Dialect::Dollar, SecretUse::Refused)
    }

    /// Expands references in a setting that stays in this process, such as a provider's key. `${secret:NAME}` is possible
    /// there. Every value that a reference stands for is registered with the log's redactor.
    pub fn expand_secret(&self, text: &str) -> Result<String, ExpansionError> {
        self.variables().expand(text, Dialect::Dollar, SecretUse::Allowed)
    }

    pub(crate) fn variables(&self) -> Variables {
        Variables {
            environment: self.environment.clone(),
            home: self.home.clone(),
            folder: self.folder.clone(),
            inputs: BTreeMap::new(),
            secrets: self.secrets.clone(),
        }
    }

    /// Returns a path for people to read: escaped, and with `~` for the home folder.
    pub fn shown(&self, path: &Path) -> String {
        let below = self.home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        match below.filter(|below| !below.as_os_str().is_empty()) {
            Some(below) => display::path(&Path::new("~").join(below)),
            None => display::path(path),
        }
    }

    /// Returns the value of an environment variable, unless it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the files that are read instead of the user's and the project's file: those given with `--config`, or
    /// the one in `CELLMATE_CONFIG`.
    pub fn named_files(&self) -> Vec<PathBuf> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        self.variable(CONFIG_VARIABLE).map(|path| self.folder.join(path)).into_iter().collect()
    }

    /// Returns the user's own file, whether it exists or not.
    pub fn user_file(&self) -> Option<PathBuf> {
        Some(self.config_home.as_ref()?.join(USER_FILE))
    }

    /// Returns the paths of project files from the current folder up to the root of the repository, or only in the
    /// current folder outside a repository. The search stops at the home folder, which is not a project.
    pub(crate) fn project_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for folder in self.folder.ancestors() {
            if self.home.as_deref() == Some(folder) {
                break;
            }
            files.push(folder.join(PROJECT_FILE));
            if folder.join(".git").exists() {
                return files;
            }
        }
        // No repository was found.
        files.truncate(1);
        files
    }

    /// Returns the file that `servers add` writes to.
    pub fn file_to_edit(&self, scope: Scope) -> Option<PathBuf> {
        match self.named_files().into_iter().next() {
            Some(named) => Some(named),
            None => match scope {
                Scope::Project => Some(self.folder.join(PROJECT_FILE)),
                Scope::User => self.user_file(),
            },
        }
    }

    /// Returns the folder for backups of edited files.
    pub(crate) fn backups(&self) -> Option<PathBuf> {
        Some(self.state()?.join("backups"))
    }

    /// Returns the folder for records of connected clients.
    pub(crate) fn connections(&self) -> Option<PathBuf> {
        Some(self.state()?.join("connections"))
    }

    /// Returns the state folder that is used without `--state-dir`.
    pub fn state(&self) -> Option<PathBuf> {
        Some(self.state_home.as_ref()?.join("cellmate"))
    }

    /// Returns the folder for login tokens.
    pub(crate) fn tokens(&self) -> Option<PathBuf> {
        Some(self.state()?.join("tokens"))
    }

    /// Returns the folder that stores each server's last tool list and last failure.
    pub fn tool_lists(&self) -> Option<PathBuf> {
        Some(self.state()?.join(TOOL_LISTS))
    }

    /// Resolves a path from a configuration file. It may begin with `~/`; other relative paths start at the current
    /// folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => Path::new(&self.folder).join(path),
        }
    }
}
