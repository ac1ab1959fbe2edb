//! Where configuration and state files are, and the environment that they may refer to, read once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::variables::{Dialect, Unset, Variables};

/// The variable that names one file to read instead of the user's and the project's.
pub(crate) const CONFIG_VARIABLE: &str = "CELLMATE_CONFIG";

/// The user's file, in the configuration folder.
pub(crate) const USER_FILE: &str = "cellmate/config.json5";

/// The folder, in the state folder, for each server's last tool list and last failure.
pub const LISTS: &str = "servers";

/// A project's file, in the current folder or one above it.
pub(crate) const PROJECT_FILE: &str = ".cellmate.json5";

/// Whose configuration: the user's, or that of the project in the current folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    User,
    Project,
}

/// Where files are, for one environment and current folder.
#[derive(Clone)]
pub struct Places {
    /// The files given with `--config`. If there are any, they are read instead of the user's and the project's.
    pub(crate) named: Vec<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or `.config` at home.
    pub(crate) config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or `.local/state` at home.
    pub(crate) state_home: Option<PathBuf>,
    /// The current folder.
    pub(crate) folder: PathBuf,
    pub(crate) environment: BTreeMap<String, String>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("named", &self.named).field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Places {
    /// Returns the places for the environment and current folder of this process.
    pub fn here(named: &[PathBuf]) -> Self {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        // Variables that are not Unicode are left out: configuration files are Unicode.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::of(named, folder, environment.collect())
    }

    /// Returns the places for a given environment and folder.
    pub fn of(named: &[PathBuf], folder: PathBuf, environment: BTreeMap<String, String>) -> Self {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = set("HOME");
        // The XDG specification requires ignoring relative paths.
        let xdg = |name: &str, below: &str| {
            set(name).filter(|path| path.is_absolute()).or_else(|| home.as_ref().map(|home| home.join(below)))
        };
        let (config_home, state_home) = (xdg("XDG_CONFIG_HOME", ".config"), xdg("XDG_STATE_HOME", ".local/state"));
        let named = named.iter().map(|path| folder.join(path)).collect();
        Self { named, home, config_home, state_home, folder, environment }
    }

    /// Returns these places with another current folder.
    pub fn with_folder(self, folder: PathBuf) -> Self {
        Self { folder, ..self }
    }

    /// Returns the current folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Expands `${VARIABLE}` and similar references in a setting.
    pub fn expand(&self, text: &str) -> Result<String, Unset> {
        self.variables().expand(text, Dialect::Dollar)
    }

    pub(crate) fn variables(&self) -> Variables {
        Variables {
            environment: self.environment.clone(),
            home: self.home.clone(),
            folder: self.folder.clone(),
            inputs: BTreeMap::new(),
        }
    }

    /// Returns the value of an environment variable, unless it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the files that are read instead of the default ones.
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

    /// Returns the project files from the current folder up to the root of the repository. The home folder is not a
    /// project.
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
        // Outside a repository, only the current folder is the project.
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

    /// Returns the default state folder.
    pub fn state(&self) -> Option<PathBuf> {
        Some(self.state_home.as_ref()?.join("cellmate"))
    }

    /// Returns the folder for login tokens.
    pub(crate) fn tokens(&self) -> Option<PathBuf> {
        Some(self.state()?.join("tokens"))
    }

    /// Returns the folder for each server's last tool list and last failure.
    pub fn lists(&self) -> Option<PathBuf> {
        Some(self.state()?.join(LISTS))
    }

    /// Resolves a path from a configuration file, which may begin with `~/`.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => Path::new(&self.folder).join(path),
        }
    }
}
