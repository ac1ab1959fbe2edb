//! Records of the project files that the user trusts, each with the hash of its content.
//!
//! A file comes with its project and starts processes, so it is read only while its content is what the user saw. The
//! records are in the user's state folder, one file for each project file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use contract::json::measure;
use contract::limits::MAX_JSON_VALUES;
use serde_json::{Value, json};

use crate::files::{self, ContentHash};
use crate::places::Places;

const VERSION: u64 = 1;

/// The record of one trusted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    /// The file's path, with its folder's symbolic links resolved.
    file: String,
    content: ContentHash,
    /// Hashes of the servers' entries, by name: they show which servers changed.
    servers: BTreeMap<String, String>,
    /// Hashes of the servers' `envFile`s at that time, by path.
    env_files: BTreeMap<String, String>,
}

/// Whether the user trusts a file with a given content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Trusted(TrustRecord),
    /// The file was trusted with other content.
    Changed(TrustRecord),
    Never,
}

/// The servers that were added, changed and removed between two versions of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServerChanges {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
}

/// The trust records of one user.
#[derive(Clone, Debug)]
pub struct TrustStore {
    /// `None` if there is no home folder: then nothing is trusted.
    folder: Option<PathBuf>,
}

impl TrustRecord {
    /// Returns `None` if the path is not Unicode and cannot be recorded.
    pub(crate) fn new(file: &Path, content: &[u8]) -> Option<Self> {
        let (servers, env_files) = Default::default();
        Some(Self { file: real_path(file)?, content: ContentHash::of(content), servers, env_files })
    }

    pub(crate) fn add_server(&mut self, name: &str, entry: &Value) {
        self.servers.insert(name.to_owned(), ContentHash::of(entry.to_string().as_bytes()).as_str().to_owned());
    }

    pub(crate) fn add_env_file(&mut self, path: &Path, content: &[u8]) {
        self.env_files.insert(path.display().to_string(), ContentHash::of(content).as_str().to_owned());
    }

    /// Replaces the env files with those of another record.
    pub(crate) fn with_env_files_of(self, other: &Self) -> Self {
        Self { env_files: other.env_files.clone(), ..self }
    }

    pub(crate) fn server_names(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    /// Returns the hash of the file's content.
    pub fn content(&self) -> &ContentHash {
        &self.content
    }

    /// Returns the paths of the `envFile`s that were recorded with the file.
    pub fn env_files(&self) -> impl Iterator<Item = &str> {
        self.env_files.keys().map(String::as_str)
    }

    pub(crate) fn has_env_file(&self, path: &Path, content: &[u8]) -> bool {
        let known = self.env_files.get(&path.display().to_string());
        known.is_some_and(|known| *known == ContentHash::of(content).as_str())
    }

    /// Returns the servers that differ between an earlier record and this one.
    pub(crate) fn changes_since(&self, before: &Self) -> ServerChanges {
        let names: BTreeSet<&String> = self.servers.keys().chain(before.servers.keys()).collect();
        let mut changes = ServerChanges::default();
        for name in names {
            match (before.servers.get(name), self.servers.get(name)) {
                (None, Some(_)) => changes.added.push(name.clone()),
                (Some(_), None) => changes.removed.push(name.clone()),
                (before, now) if before != now => changes.changed.push(name.clone()),
                _ => {}
            }
        }
        changes
    }

    fn to_json(&self) -> Value {
        json!({
            "version": VERSION, "file": self.file, "sha256": self.content.as_str(), "servers": self.servers,
            "envFiles": self.env_files,
        })
    }

    fn read(text: &str) -> Option<Self> {
        if measure(text.as_bytes()).values > MAX_JSON_VALUES {
            return None;
        }
        let read: Value = serde_json::from_str(text).ok()?;
        let hashes = |key: &str| -> Option<BTreeMap<String, String>> {
            let pairs = read.get(key)?.as_object()?.iter();
            pairs.map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned()))).collect()
        };
        let word = |key: &str| read.get(key)?.as_str();
        (read.get("version")?.as_u64()? == VERSION).then_some(())?;
        Some(Self {
            file: word("file")?.to_owned(),
            content: ContentHash::parse(word("sha256")?),
            servers: hashes("servers")?,
            env_files: hashes("envFiles")?,
        })
    }
}

impl TrustStore {
    /// Returns the records in the user's state folder.
    pub fn of(places: &Places) -> Self {
        Self { folder: places.state().map(|state| state.join("trust")) }
    }

    /// Returns whether the file is trusted with this content. A record that cannot be read counts as missing.
    pub(crate) fn judge(&self, file: &Path, content: &[u8]) -> Trust {
        match self.record(file) {
            None => Trust::Never,
            Some(record) if record.content == ContentHash::of(content) => Trust::Trusted(record),
            Some(record) => Trust::Changed(record),
        }
    }

    /// Returns the record of a file; a record that cannot be read counts as missing.
    pub fn record(&self, file: &Path) -> Option<TrustRecord> {
        let path = real_path(file)?;
        let text = files::read(&self.place(&path)?).ok()??;
        TrustRecord::read(&text).filter(|record| record.file == path)
    }

    /// Returns the path of the record of a file, whether there is one or not.
    pub(crate) fn record_file(&self, file: &Path) -> Option<PathBuf> {
        self.place(&real_path(file)?)
    }

    /// Writes a record, atomically.
    pub fn write(&self, record: &TrustRecord) -> io::Result<()> {
        let place =
            self.place(&record.file).ok_or_else(|| io::Error::other("cannot find the home folder; set HOME"))?;
        files::write_private(&place, &record.to_json().to_string())
    }

    /// Removes the record of a file. Returns whether there was one.
    pub fn remove(&self, file: &Path) -> io::Result<bool> {
        let Some(place) = real_path(file).and_then(|path| self.place(&path)) else { return Ok(false) };
        match fs::remove_file(place) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn place(&self, path: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{}.json", ContentHash::of(path.as_bytes()))))
    }
}

/// Resolves symbolic links in the folder's path, but not in the file's name: for a linked file, the content that is
/// read through the link counts.
fn real_path(file: &Path) -> Option<String> {
    let folder = file.parent()?;
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.join(file.file_name()?).to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;

    use super::{ServerChanges, Trust, TrustRecord, TrustStore};

    fn record(servers: &[(&str, u32)]) -> TrustRecord {
        let mut record = TrustRecord::new(Path::new("/none/.cellmate.json5"), b"content").unwrap();
        servers.iter().for_each(|(name, entry)| record.add_server(name, &json!(entry)));
        record
    }

    #[test]
    fn a_file_is_trusted_while_its_content_and_place_are_the_recorded_ones() {
        let state = tempfile::tempdir().unwrap();
        let store = TrustStore { folder: Some(state.path().join("trust")) };
        let file = PathBuf::from("/none/.cellmate.json5");
        assert_eq!(store.judge(&file, b"content"), Trust::Never);
        let record = record(&[("a", 1)]);
        store.write(&record).unwrap();
        assert_eq!(store.judge(&file, b"content"), Trust::Trusted(record.clone()));
        assert_eq!(store.judge(&file, b"content "), Trust::Changed(record.clone()));
        assert_eq!(store.judge(Path::new("/other/.cellmate.json5"), b"content"), Trust::Never);
        for text in ["", "{}", "[", &record.to_json().to_string().replace("/none", "/other")] {
            std::fs::write(store.place(&record.file).unwrap(), text).unwrap();
            assert_eq!(store.judge(&file, b"content"), Trust::Never, "{text}");
        }
        assert!(store.remove(&file).unwrap() && !store.remove(&file).unwrap());
        let homeless = TrustStore { folder: None };
        assert!(homeless.write(&record).is_err());
        assert_eq!(homeless.judge(&file, b"content"), Trust::Never);
    }

    #[test]
    fn records_show_which_servers_were_added_changed_and_removed() {
        let changes = record(&[("new", 1), ("same", 2), ("other", 4)]).changes_since(&record(&[
            ("gone", 1),
            ("same", 2),
            ("other", 3),
        ]));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected = ServerChanges { added: names(&["new"]), changed: names(&["other"]), removed: names(&["gone"]) };
        assert_eq!(changes, expected);
    }
}
