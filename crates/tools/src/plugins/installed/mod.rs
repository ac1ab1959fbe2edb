//! The plugins that the user added: copies of their folders, each version under the hash of its content.
//!
//! `index.json` says which version of each plugin is used and whether it is enabled. `<id>/<hash>` is a version, and
//! `<id>/data` the folder in which the plugin may keep files. A version whose content no longer has its hash is refused.

mod content;
mod index;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use contract::limits::{MAX_PLUGIN_VERSIONS, MAX_PLUGINS};
use telemetry::LogIgnored;

use super::manifest::{MANIFEST_FILE, Manifest, ManifestError};
pub use content::ContentError;
use content::{FolderKind, PluginFile};
pub use index::{PluginRecord, VersionRecord};

/// The name of the file that says which plugins are installed.
pub const INDEX_FILE: &str = "index.json";

const LOCK_FILE: &str = "lock";
const DATA_FOLDER: &str = "data";

/// How many digits of the hash name the folder of a version, and are shown.
const HASH_DIGITS: usize = 16;

/// The folder with the plugins of one user.
#[derive(Clone, Debug)]
pub struct PluginFolder {
    root: PathBuf,
}

/// A plugin that is installed.
#[derive(Clone, Debug)]
pub struct InstalledPlugin {
    pub id: String,
    pub record: PluginRecord,
    /// The folder of the version that is used.
    pub folder: PathBuf,
    pub data: PathBuf,
}

/// A plugin's folder that was read and is not installed.
#[derive(Clone, Debug)]
pub struct InspectedPlugin {
    pub manifest: Manifest,
    pub hash: String,
    pub files: usize,
    pub bytes: usize,
}

/// Why a plugin cannot be added, changed or used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error("cannot use `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` is damaged; restore it, or delete it and add the plugins again")]
    Index(PathBuf),
    #[error("there is no plugin `{0}`; `cellmate plugins list` shows those that are installed")]
    Unknown(String),
    #[error("the plugin `{0}` has no earlier version to go back to")]
    NoEarlierVersion(String),
    #[error("the plugin `{id}` has no version `{version}`; `cellmate plugins show {id}` lists those that are kept")]
    NoSuchVersion { id: String, version: String },
    #[error("at most {MAX_PLUGINS} plugins can be installed; remove one first")]
    TooMany,
    #[error(
        "the files of plugin `{id}` have changed since it was added, so it is not used; add it again from a folder that \
         you trust, or run `cellmate plugins rollback {id}`"
    )]
    Changed { id: String },
    #[error("the manifest of plugin `{id}` says that it is `{found}`; add it again")]
    OtherId { id: String, found: String },
    #[error("the content changed while it was copied; add it again")]
    ChangedDuringCopy,
}

/// Returns the first digits of a hash, which name a version.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..HASH_DIGITS).unwrap_or(hash)
}

/// Reads a plugin's folder and checks its manifest. Nothing of it is run.
pub fn inspect(source: &Path) -> Result<InspectedPlugin, PluginError> {
    let (mut text, mut files, mut bytes) = (None, 0, 0);
    let hash = content::read(source, FolderKind::Source, |file| {
        files += 1;
        bytes += file.content.len();
        if file.path == MANIFEST_FILE {
            text = Some(file.content);
        }
        Ok(())
    })?;
    let file = source.join(MANIFEST_FILE);
    let missing = || ManifestError::File { file: file.clone(), source: io::ErrorKind::NotFound.into() };
    let manifest = Manifest::read(&text.ok_or_else(missing)?, &file)?;
    Ok(InspectedPlugin { manifest, hash, files, bytes })
}

impl PluginFolder {
    /// Refers to a folder, which need not exist.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the file that changes whenever a plugin is added, switched, rolled back or removed.
    pub fn index_file(&self) -> PathBuf {
        self.root.join(INDEX_FILE)
    }

    /// Returns the installed plugins, in the order of their ids.
    pub fn list(&self) -> Result<Vec<InstalledPlugin>, PluginError> {
        let plugins = index::read(&self.index_file())?;
        Ok(plugins.into_iter().map(|(id, record)| self.installed(id, record)).collect())
    }

    pub fn get(&self, id: &str) -> Result<InstalledPlugin, PluginError> {
        let mut plugins = index::read(&self.index_file())?;
        let record = plugins.remove(id).ok_or_else(|| PluginError::Unknown(shown(id)))?;
        Ok(self.installed(id.to_owned(), record))
    }

    fn installed(&self, id: String, record: PluginRecord) -> InstalledPlugin {
        let home = self.root.join(&id);
        InstalledPlugin { folder: home.join(short_hash(&record.active)), data: home.join(DATA_FOLDER), id, record }
    }

    /// Copies a plugin's folder and uses it from now on. An earlier version is kept, so that it can be rolled back.
    pub fn add(&self, source: &Path, expected_hash: &str, now_ms: i64) -> Result<InstalledPlugin, PluginError> {
        let inspected = inspect(source)?;
        if inspected.hash != expected_hash {
            return Err(PluginError::ChangedDuringCopy);
        }
        let id = inspected.manifest.id.clone();
        let _lock = self.lock()?;
        let mut plugins = index::read(&self.index_file())?;
        if !plugins.contains_key(&id) && plugins.len() >= MAX_PLUGINS {
            return Err(PluginError::TooMany);
        }
        let home = self.root.join(&id);
        make_folder(&home)?;
        let target = home.join(short_hash(&inspected.hash));
        // Copied even if the version is there: its files may have been changed.
        remove_folder(&target)?;
        let copied = copy(source, &target)?;
        if copied != inspected.hash {
            remove_folder(&target)?;
            return Err(PluginError::ChangedDuringCopy);
        }
        make_folder(&home.join(DATA_FOLDER))?;
        let version = VersionRecord {
            hash: inspected.hash.clone(),
            version: inspected.manifest.version.clone(),
            added_at: now_ms,
            from: source.display().to_string(),
            checks_calls: inspected.manifest.before_tool_call.is_some(),
        };
        let record = plugins.entry(id.clone()).or_insert_with(|| PluginRecord::new(&inspected.hash));
        record.use_version(version);
        let dropped = record.drop_oldest(MAX_PLUGIN_VERSIONS);
        index::write(&self.index_file(), &plugins)?;
        for hash in dropped {
            remove_folder(&home.join(short_hash(&hash))).log_ignored("remove an old version of a plugin");
        }
        self.get(&id)
    }

    /// Enables a plugin. Returns false if it was enabled already.
    pub fn enable(&self, id: &str) -> Result<bool, PluginError> {
        self.change(id, |record| Ok(!std::mem::replace(&mut record.enabled, true)))
    }

    /// Disables a plugin. Returns false if it was disabled already.
    pub fn disable(&self, id: &str) -> Result<bool, PluginError> {
        self.change(id, |record| Ok(std::mem::replace(&mut record.enabled, false)))
    }

    /// Uses another version that is kept: the one with this version or hash, or else the one that was added before.
    pub fn rollback(&self, id: &str, to: Option<&str>) -> Result<VersionRecord, PluginError> {
        let chosen = self.change(id, |record| {
            let position = match to {
                Some(to) => {
                    record.find(to).ok_or_else(|| PluginError::NoSuchVersion { id: shown(id), version: shown(to) })?
                }
                None => record.before_active().ok_or_else(|| PluginError::NoEarlierVersion(shown(id)))?,
            };
            let chosen =
                record.versions.get(position).cloned().ok_or_else(|| PluginError::NoEarlierVersion(shown(id)))?;
            record.active.clone_from(&chosen.hash);
            Ok(chosen)
        })?;
        Ok(chosen)
    }

    /// Removes a plugin with all its versions and its data.
    pub fn remove(&self, id: &str) -> Result<(), PluginError> {
        let _lock = self.lock()?;
        let mut plugins = index::read(&self.index_file())?;
        plugins.remove(id).ok_or_else(|| PluginError::Unknown(shown(id)))?;
        index::write(&self.index_file(), &plugins)?;
        // Only an id that was in the index names a folder here.
        remove_folder(&self.root.join(id))
    }

    fn change<T>(
        &self,
        id: &str,
        change: impl FnOnce(&mut PluginRecord) -> Result<T, PluginError>,
    ) -> Result<T, PluginError> {
        let _lock = self.lock()?;
        let mut plugins: BTreeMap<String, PluginRecord> = index::read(&self.index_file())?;
        let record = plugins.get_mut(id).ok_or_else(|| PluginError::Unknown(shown(id)))?;
        let changed = change(record)?;
        index::write(&self.index_file(), &plugins)?;
        Ok(changed)
    }

    /// Makes changes of several processes wait for each other, until the file is closed.
    fn lock(&self) -> Result<File, PluginError> {
        make_folder(&self.root)?;
        let path = self.root.join(LOCK_FILE);
        let failed = |source| PluginError::File { path: path.clone(), source };
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(file)
    }
}

impl InstalledPlugin {
    /// Checks that the files are those that the user added, and returns the manifest.
    pub fn verify(&self) -> Result<Manifest, PluginError> {
        let changed = || PluginError::Changed { id: self.id.clone() };
        let mut text = None;
        let hash = content::read(&self.folder, FolderKind::Copy, |file| {
            if file.path == MANIFEST_FILE {
                text = Some(file.content);
            }
            Ok(())
        });
        match (hash, text) {
            (Ok(hash), Some(text)) if hash == self.record.active => {
                let manifest = Manifest::read(&text, &self.folder.join(MANIFEST_FILE))?;
                if manifest.id != self.id {
                    return Err(PluginError::OtherId { id: self.id.clone(), found: manifest.id });
                }
                Ok(manifest)
            }
            _ => Err(changed()),
        }
    }
}

/// How much of an id that a user typed is shown.
const MAX_SHOWN_CHARS: usize = 100;

fn shown(text: &str) -> String {
    contract::text::line(text, MAX_SHOWN_CHARS)
}

fn copy(source: &Path, target: &Path) -> Result<String, PluginError> {
    make_folder(target)?;
    let hash = content::read(source, FolderKind::Source, |file| {
        let path = target.join(&file.path);
        write_file(target, &path, &file).map_err(|source| ContentError::File { path, source })
    })?;
    Ok(hash)
}

fn write_file(root: &Path, path: &Path, file: &PluginFile) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| *parent != root) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mode = if file.is_executable { 0o700 } else { 0o600 };
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    copy.write_all(&file.content)
}

fn make_folder(path: &Path) -> Result<(), PluginError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| PluginError::File { path: path.to_owned(), source })
}

fn remove_folder(path: &Path) -> Result<(), PluginError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PluginError::File { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
