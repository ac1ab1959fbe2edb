//! The index of installed plugins, one JSON file that is replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use contract::json::measure;
use contract::limits::{MAX_PLUGIN_VERSIONS, MAX_PLUGINS};
use serde::{Deserialize, Serialize};

use super::{PluginError, short_hash};
use crate::plugins::manifest::is_plugin_id;

const VERSION: u64 = 1;

/// Bytes and JSON values of the index: far more than the most plugins with the most versions take.
const MAX_INDEX_BYTES: u64 = 4 << 20;
const MAX_INDEX_VALUES: usize = 20_000;

/// The user's decisions about one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginRecord {
    pub enabled: bool,
    /// The hash of the version that is used.
    pub active: String,
    /// The versions that are kept, the most recently added one last.
    pub versions: Vec<VersionRecord>,
}

/// A version of a plugin that the user added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// The hash of its content.
    pub hash: String,
    /// The version in its manifest.
    pub version: String,
    /// When it was added, in milliseconds of Unix time.
    pub added_at: i64,
    /// The folder that it was copied from.
    pub from: String,
    /// Whether it has a hook that decides about calls. If its files cannot be read any more, all calls are denied.
    pub checks_calls: bool,
}

#[derive(Serialize, Deserialize)]
struct Index {
    version: u64,
    plugins: BTreeMap<String, PluginRecord>,
}

impl PluginRecord {
    pub(super) fn new(hash: &str) -> Self {
        Self { enabled: true, active: hash.to_owned(), versions: Vec::new() }
    }

    /// Returns the version that is used.
    pub fn active_version(&self) -> Option<&VersionRecord> {
        self.versions.iter().find(|version| version.hash == self.active)
    }

    /// Makes a version the newest one, and uses it.
    pub(super) fn use_version(&mut self, version: VersionRecord) {
        self.versions.retain(|other| other.hash != version.hash);
        self.active.clone_from(&version.hash);
        self.versions.push(version);
    }

    /// Drops the oldest versions beyond `most`, and returns their hashes.
    pub(super) fn drop_oldest(&mut self, most: usize) -> Vec<String> {
        let excess = self.versions.len().saturating_sub(most);
        self.versions.drain(..excess).map(|version| version.hash).collect()
    }

    /// Returns the position of the version that was added before the one that is used.
    pub(super) fn before_active(&self) -> Option<usize> {
        self.versions.iter().position(|version| version.hash == self.active)?.checked_sub(1)
    }

    /// Returns the position of the newest version with this number or hash.
    pub(super) fn find(&self, text: &str) -> Option<usize> {
        let is_it = |version: &VersionRecord| {
            version.version == text || version.hash == text || short_hash(&version.hash) == text
        };
        self.versions.iter().rposition(is_it)
    }
}

/// Reads the index. A file that does not exist is an empty one.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, PluginRecord>, PluginError> {
    let failed = |source| PluginError::File { path: path.to_owned(), source };
    let damaged = || PluginError::Index(path.to_owned());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = Vec::new();
    file.take(MAX_INDEX_BYTES).read_to_end(&mut text).map_err(failed)?;
    let size = measure(&text);
    if size.values > MAX_INDEX_VALUES || size.depth > 16 {
        return Err(damaged());
    }
    let index: Index = serde_json::from_slice(&text).map_err(|_| damaged())?;
    let is_hash = |hash: &str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Ids and hashes become names of folders.
    let is_valid = |(id, record): (&String, &PluginRecord)| {
        is_plugin_id(id)
            && is_hash(&record.active)
            && record.versions.len() <= MAX_PLUGIN_VERSIONS
            && record.versions.iter().all(|version| is_hash(&version.hash))
    };
    if index.version != VERSION || index.plugins.len() > MAX_PLUGINS || !index.plugins.iter().all(is_valid) {
        return Err(damaged());
    }
    Ok(index.plugins)
}

/// Replaces the index in one step.
pub(super) fn write(path: &Path, plugins: &BTreeMap<String, PluginRecord>) -> Result<(), PluginError> {
    let failed = |source| PluginError::File { path: path.to_owned(), source };
    let index = Index { version: VERSION, plugins: plugins.clone() };
    let text = serde_json::to_vec_pretty(&index).map_err(|error| failed(error.into()))?;
    let draft = path.with_extension("new");
    let written = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().map_err(failed)
}
