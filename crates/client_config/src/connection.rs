//! Records of what `connect` changed in a client's file, so that exactly that can be removed again.
//!
//! A record contains the moved servers exactly as they were in the client's file, so it is as private as that file.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use contract::json::measure;
use contract::limits::MAX_JSON_VALUES;
use serde_json::{Value, json};

use crate::clients::Client;
use crate::display;
use crate::edit::{Change, EditError, Intent};
use crate::files::{self, ContentHash};
use crate::places::Places;
use crate::server::runs_cellmate;
use crate::tree::{Kind, Tree};

/// The version of the records' format. Records with another version count as missing.
const VERSION: u64 = 1;

/// A server that was moved from a client's file to our configuration.
#[derive(Clone, PartialEq)]
pub struct MovedServer {
    /// The keys that lead to the server in the client's file, its name last.
    pub(crate) path: Vec<String>,
    /// The entry of the server in the client's file.
    pub(crate) entry: Value,
}

impl fmt::Debug for MovedServer {
    /// Leaves out the entry, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedServer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl MovedServer {
    /// Returns the server's name as the client's file has it.
    pub fn key(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Returns the server's name, escaped for display.
    pub(crate) fn name(&self) -> String {
        display::plain(self.key())
    }
}

/// What `connect` changed in one file of one client.
#[derive(Clone, PartialEq)]
pub struct ConnectionRecord {
    client: Client,
    file: PathBuf,
    /// Whether `connect` added the key that contains the servers, such as `mcpServers`.
    container_added: bool,
    /// The entry of another program that had our name, and that our entry replaced.
    replaced: Option<Value>,
    moved: Vec<MovedServer>,
}

/// The records of connected clients, in the user's state folder.
#[derive(Clone, Debug)]
pub struct Connections {
    /// `None` if there is no home folder: then nothing is recorded.
    folder: Option<PathBuf>,
}

/// Why cellmate cannot be removed from a client's file.
#[derive(Debug, thiserror::Error)]
pub enum DisconnectError {
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("`{name}` in `{}` does not start cellmate, so it was not added by `cellmate connect`; remove it by hand", file.display())]
    NotOurs { name: String, file: PathBuf },
}

impl fmt::Debug for ConnectionRecord {
    /// Leaves out the replaced entry, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ConnectionRecord");
        shown.field("client", &self.client).field("file", &self.file).field("moved", &self.moved);
        shown.finish_non_exhaustive()
    }
}

impl ConnectionRecord {
    /// Records the state of a client's file before our entry `name` is added to it.
    pub fn before(client: Client, name: &str, theirs: &Change, moved: Vec<MovedServer>) -> Result<Self, EditError> {
        let tree = theirs.tree_before()?;
        let container = tree.at(client.servers_key());
        let named = container.and_then(|container| container.get(name));
        let replaced = named.filter(|entry| !starts_cellmate(entry)).map(Tree::to_json);
        Ok(Self { client, file: theirs.file.clone(), container_added: container.is_none(), replaced, moved })
    }

    /// Returns this record together with that of an earlier `connect`. Where both have a value, this record's applies.
    fn merged_with(self, earlier: Self) -> Self {
        let is_new = |one: &MovedServer| !self.moved.iter().any(|moved| moved.path == one.path);
        let moved: Vec<MovedServer> =
            earlier.moved.into_iter().filter(is_new).chain(self.moved.iter().cloned()).collect();
        let container_added = self.container_added || earlier.container_added;
        Self { container_added, replaced: self.replaced.or(earlier.replaced), moved, ..self }
    }

    fn to_json(&self) -> Value {
        let moved = self.moved.iter().map(|one| json!({"path": one.path, "entry": one.entry}));
        json!({
            "version": VERSION, "client": self.client.name(), "file": self.file,
            "containerAdded": self.container_added, "replaced": self.replaced, "moved": moved.collect::<Vec<_>>(),
        })
    }

    fn read(text: &str) -> Option<Self> {
        if measure(text.as_bytes()).values > MAX_JSON_VALUES {
            return None;
        }
        let read: Value = serde_json::from_str(text).ok()?;
        (read.get("version")?.as_u64()? == VERSION).then_some(())?;
        let moved = |one: &Value| {
            let path = one.get("path")?.as_array()?.iter().map(|key| Some(key.as_str()?.to_owned()));
            Some(MovedServer { path: path.collect::<Option<_>>()?, entry: one.get("entry")?.clone() })
        };
        Some(Self {
            client: Client::parse(read.get("client")?.as_str()?)?,
            file: PathBuf::from(read.get("file")?.as_str()?),
            container_added: read.get("containerAdded")?.as_bool()?,
            replaced: read.get("replaced").filter(|replaced| !replaced.is_null()).cloned(),
            moved: read.get("moved")?.as_array()?.iter().map(moved).collect::<Option<_>>()?,
        })
    }
}

impl Connections {
    pub fn of(places: &Places) -> Self {
        Self { folder: places.connections() }
    }

    /// Returns the record of a client's file; one that cannot be read counts as missing.
    pub fn record(&self, client: Client, file: &Path) -> Option<ConnectionRecord> {
        let text = files::read_users(&self.record_path(client.name(), file)?).ok()??;
        ConnectionRecord::read(&text).filter(|record| record.client == client && record.file == file)
    }

    /// Writes a record, atomically, together with what an earlier `connect` recorded.
    pub fn write(&self, record: ConnectionRecord) -> io::Result<()> {
        let path = self.record_path(record.client.name(), &record.file);
        let path = path.ok_or_else(|| io::Error::other("cannot find the home folder; set HOME"))?;
        let record = match self.record(record.client, &record.file) {
            Some(earlier) => record.merged_with(earlier),
            None => record,
        };
        files::write_private(&path, &record.to_json().to_string())
    }

    /// Removes the record of a client's file, if there is one.
    pub fn remove(&self, client: Client, file: &Path) -> io::Result<()> {
        self.remove_record(client.name(), file)
    }

    /// Removes the record of a client's file, if there is one. The record's file name begins with `stem`.
    pub(crate) fn remove_record(&self, stem: &str, file: &Path) -> io::Result<()> {
        let Some(path) = self.record_path(stem, file) else { return Ok(()) };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the path of the record of a client's file. The record's file name begins with `stem`. `None` if there is no
    /// home folder.
    pub(crate) fn record_path(&self, stem: &str, file: &Path) -> Option<PathBuf> {
        let hash = ContentHash::of(file.display().to_string().as_bytes());
        let digits = hash.as_str().get(..16)?;
        Some(self.folder.as_ref()?.join(format!("{stem}-{digits}.json")))
    }
}

/// Removes our entry `name` from a client's file, and restores what `connect` changed according to the record: the entry
/// that ours replaced, and the moved servers, unless the file now has others with their names. Everything else stays.
/// Returns a note for each moved server.
pub fn disconnect(
    client: Client,
    name: &str,
    theirs: &mut Change,
    record: Option<&ConnectionRecord>,
    intent: Intent,
) -> Result<Vec<String>, DisconnectError> {
    let path: Vec<&str> = client.servers_key().iter().copied().chain([name]).collect();
    if let Some(entry) = theirs.tree()?.at(&path) {
        if !starts_cellmate(entry) {
            return Err(DisconnectError::NotOurs { name: name.to_owned(), file: theirs.file.clone() });
        }
        theirs.remove(&path)?;
    }
    let Some(record) = record else { return Ok(Vec::new()) };
    if let Some(replaced) = &record.replaced {
        theirs.set(&path, replaced)?;
    }
    let (is, is_not, stays) = match intent {
        Intent::Write => ("is", "is not", "stays"),
        Intent::Show => ("would be", "would not be", "would stay"),
    };
    let mut notes = Vec::new();
    for moved in &record.moved {
        let server = moved.name();
        let keys: Vec<&str> = moved.path.iter().map(String::as_str).collect();
        if theirs.tree()?.at(&keys).is_some() {
            notes.push(format!("`{server}` {is_not} put back: the file has a server with that name"));
        } else {
            theirs.set(&keys, &moved.entry)?;
            notes.push(format!(
                "`{server}` {is} put back, and {stays} in cellmate's configuration; \
                 `cellmate servers remove {}` removes it there",
                display::for_shell(&server)
            ));
        }
    }
    let is_empty = |tree: &Tree| tree.is_map() && tree.members().is_empty();
    if record.container_added && theirs.tree()?.at(client.servers_key()).is_some_and(is_empty) {
        theirs.remove(client.servers_key())?;
    }
    Ok(notes)
}

/// Returns whether an entry of a client's file starts cellmate, as `connect` writes it.
fn starts_cellmate(entry: &Tree) -> bool {
    let texts = |key: &str| -> Vec<&str> {
        match entry.get(key).map(|found| &found.kind) {
            Some(Kind::Text(text)) => vec![text],
            Some(Kind::List(items)) => items.iter().filter_map(Tree::text).collect(),
            Some(Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Map(_)) | None => Vec::new(),
        }
    };
    runs_cellmate(&[texts("command"), texts("args")].concat())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::{ConnectionRecord, Connections, MovedServer, disconnect};
    use crate::edit::{Change, Intent};
    use crate::{Client, Places};

    fn moved(name: &str) -> MovedServer {
        MovedServer { path: vec!["mcpServers".to_owned(), name.to_owned()], entry: json!({"command": name}) }
    }

    #[test]
    fn a_record_is_read_as_written_and_later_ones_are_added_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = [("HOME".to_owned(), folder.path().display().to_string())];
        let connections = Connections::of(&Places::of(&[], PathBuf::from("/none"), home.into()));
        let file = folder.path().join("mcp.json");
        std::fs::write(&file, r#"{"mcpServers": {"cellmate": {"command": "other"}}}"#).unwrap();
        let record =
            |moved| ConnectionRecord::before(Client::Cursor, "cellmate", &Change::open(&file).unwrap(), moved).unwrap();
        let first = record(vec![moved("a"), moved("b")]);
        assert_eq!((first.container_added, &first.replaced), (false, &Some(json!({"command": "other"}))));
        connections.write(first.clone()).unwrap();
        assert_eq!(connections.record(Client::Cursor, &file), Some(first));
        assert_eq!(connections.record(Client::Windsurf, &file), None);
        std::fs::write(&file, "{}").unwrap();
        connections.write(record(vec![moved("b"), moved("c")])).unwrap();
        let both = connections.record(Client::Cursor, &file).unwrap();
        assert_eq!(both.moved, [moved("a"), moved("b"), moved("c")]);
        assert_eq!((both.container_added, both.replaced), (true, Some(json!({"command": "other"}))));
        connections.remove(Client::Cursor, &file).unwrap();
        connections.remove(Client::Cursor, &file).unwrap();
        assert_eq!(connections.record(Client::Cursor, &file), None);
    }

    #[test]
    fn an_entry_that_does_not_start_cellmate_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        std::fs::write(&file, r#"{"mcpServers": {"cellmate": {"command": "other", "args": ["mcp"]}}}"#).unwrap();
        let mut theirs = Change::open(&file).unwrap();
        assert!(disconnect(Client::Cursor, "cellmate", &mut theirs, None, Intent::Write).is_err());
        std::fs::write(&file, r#"{"mcp": {"cellmate": {"command": ["/x/cellmate", "mcp"]}}}"#).unwrap();
        let mut theirs = Change::open(&file).unwrap();
        assert_eq!(disconnect(Client::OpenCode, "cellmate", &mut theirs, None, Intent::Write).unwrap(), [""; 0]);
        assert_eq!(theirs.after(), r#"{"mcp": {}}"#);
    }
}
