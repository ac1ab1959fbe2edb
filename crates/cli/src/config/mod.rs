//! Configuration: the files of other MCP clients, read as they are, and our own in the same format.
//!
//! Parsing is pure (`json5`, `toml`, `document`, `entry`, `variables`); `files` reads files, `edit` changes and writes
//! them, and [`load`] merges them.

mod arguments;
pub(crate) mod clients;
pub(crate) mod document;
pub(crate) mod edit;
mod entry;
mod env_file;
pub(crate) mod files;
mod itself;
mod json5;
mod judge;
mod load;
mod login;
mod own;
mod pin;
pub(crate) mod places;
mod project;
mod server;
pub(crate) mod shown;
mod spec;
mod toml;
pub(crate) mod tree;
mod trust;
mod variables;

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

pub(crate) use arguments::ConfigArguments;
pub(crate) use judge::judge_entry;
pub(crate) use load::{ConfigError, load, project_files, trust_note};
pub(crate) use own::own_files;
pub(crate) use pin::{Reviewed, write_change};
pub(crate) use places::{LISTS, Places};
pub(crate) use server::{Problem, ServerEntry, Source};
pub(crate) use trust::{ServerChanges, Trust, TrustStore};
pub(crate) use variables::{Dialect, Variables};

/// The merged configuration of all files.
#[derive(Clone, PartialEq)]
pub(crate) struct Loaded {
    /// In the order of the files; names are unique.
    pub(crate) servers: Vec<ServerEntry>,
    /// Everything but servers in our own files, such as `tools` and `agents`; an object.
    pub(crate) settings: Value,
    /// Parts of the files that cannot be used, and why.
    pub(crate) problems: Vec<Problem>,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
}

impl fmt::Debug for Loaded {
    /// Leaves out the settings, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("servers", &self.servers)
            .field("problems", &self.problems)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
