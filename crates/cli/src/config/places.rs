//! Where configuration and state files are, and the environment that they may refer to, read once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variable that names one file to read instead of the user's and the project's.
pub(crate) const CONFIG_VARIABLE: &str = "CELLMATE_CONFIG";

/// The user's file, in the configuration folder.
pub(crate) const USER_FILE: &str = "cellmate/config.json5";

/// The folder, in the state folder, for each server's last tool list and last failure.
pub(crate) const LISTS: &str = "servers";

/// A project's file, in the current folder or one above it.
pub(crate) const PROJECT_FILE: &str = ".cellmate.json5";

#[derive(Clone)]
pub(crate) struct Places {
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
    pub(crate) fn here(named: &[PathBuf]) -> Self {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        // Variables that are not Unicode are left out: configuration files are Unicode.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::of(named, folder, environment.collect())
    }

    pub(crate) fn of(named: &[PathBuf], folder: PathBuf, environment: BTreeMap<String, String>) -> Self {
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

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn named_files(&self) -> Vec<PathBuf> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        self.variable(CONFIG_VARIABLE).map(|path| self.folder.join(path)).into_iter().collect()
    }

    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        Some(self.config_home.as_ref()?.join(USER_FILE))
    }

    /// Returns the project files from the current folder up to the root of the repository. The home folder is not a
    /// project.
    pub(super) fn project_files(&self) -> Vec<PathBuf> {
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
    pub(crate) fn file_to_edit(&self, project: bool) -> Option<PathBuf> {
        match self.named_files().into_iter().next() {
            Some(named) => Some(named),
            None if project => Some(self.folder.join(PROJECT_FILE)),
            None => self.user_file(),
        }
    }

    /// Returns the folder for backups of edited files.
    pub(crate) fn backups(&self) -> Option<PathBuf> {
        Some(self.state()?.join("backups"))
    }

    /// Returns the default state folder.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        Some(self.state_home.as_ref()?.join("cellmate"))
    }

    /// Returns the folder for login tokens.
    pub(crate) fn tokens(&self) -> Option<PathBuf> {
        Some(self.state()?.join("tokens"))
    }

    /// Returns the folder for each server's last tool list and last failure.
    pub(crate) fn lists(&self) -> Option<PathBuf> {
        Some(self.state()?.join(LISTS))
    }

    /// Resolves a path from a configuration file, which may begin with `~/`.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => Path::new(&self.folder).join(path),
        }
    }
}
