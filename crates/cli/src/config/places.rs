//! Where configuration is looked for, and what it may refer to: the environment, read once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Names one file that is read instead of the user's and the project's.
pub(crate) const CONFIG_VARIABLE: &str = "CELLMATE_CONFIG";

/// The user's file, below the folder for configuration.
pub(crate) const USER_FILE: &str = "cellmate/config.json5";

/// What servers last listed, and why they last failed, below the folder for state.
pub(crate) const LISTS: &str = "servers";

/// A project's file, in its folder or one above.
pub(crate) const PROJECT_FILE: &str = ".cellmate.json5";

#[derive(Clone)]
pub(crate) struct Places {
    /// By `--config`; where there are some, nothing else of ours is read.
    pub(crate) named: Vec<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or `.config` at home.
    pub(crate) config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or `.local/state` at home.
    pub(crate) state_home: Option<PathBuf>,
    /// The folder we were started in.
    pub(crate) folder: PathBuf,
    pub(crate) environment: BTreeMap<String, String>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("named", &self.named).field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Places {
    /// As this process finds them.
    pub(crate) fn here(named: &[PathBuf]) -> Self {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        // A variable that is no Unicode cannot be named in a file that is.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::of(named, folder, environment.collect())
    }

    pub(crate) fn of(named: &[PathBuf], folder: PathBuf, environment: BTreeMap<String, String>) -> Self {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = set("HOME");
        // The standard says to ignore one that is not absolute.
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

    /// Upwards to the root of the repository, or to the home folder, which is nobody's project.
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
        // Outside a repository only the folder itself is the project.
        files.truncate(1);
        files
    }

    /// The file that `servers add` writes to.
    pub(crate) fn file_to_edit(&self, project: bool) -> Option<PathBuf> {
        match self.named_files().into_iter().next() {
            Some(named) => Some(named),
            None if project => Some(self.folder.join(PROJECT_FILE)),
            None => self.user_file(),
        }
    }

    /// Where files are kept as they were before we changed them.
    pub(crate) fn backups(&self) -> Option<PathBuf> {
        Some(self.state()?.join("backups"))
    }

    /// Where `cellmate mcp` keeps its state unless told otherwise.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        Some(self.state_home.as_ref()?.join("cellmate"))
    }

    /// Where logins are kept.
    pub(crate) fn tokens(&self) -> Option<PathBuf> {
        Some(self.state()?.join("tokens"))
    }

    /// Where it is kept what servers last listed, and why they last failed.
    pub(crate) fn lists(&self) -> Option<PathBuf> {
        Some(self.state()?.join(LISTS))
    }

    /// A path that may begin with `~`, as people write it in files.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => Path::new(&self.folder).join(path),
        }
    }
}
