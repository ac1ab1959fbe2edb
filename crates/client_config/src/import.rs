//! Copies servers from another client's configuration into ours, with their variables unexpanded.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clients::Client;
use crate::display;
use crate::document::{self, Format, ServerContainer};
use crate::edit::{Change, EditError};
use crate::entry::{self, EntryError, ParsedEntry};
use crate::files::{self, FileError};
use crate::load::variables;
use crate::places::{Places, Scope};
use crate::server::{Origin, Source};
use crate::take_over::{brace_variables, escape_variables};
use crate::tree::{Member, SyntaxError, Tree, effective};
use crate::variables::{Dialect, Variables};

/// A file to copy servers from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportFile {
    pub file: PathBuf,
    /// The client whose file it is; `None` for any other file with servers.
    pub client: Option<Client>,
}

/// Why a file cannot be imported from.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("`{}` does not exist", display::path(.0))]
    Missing(PathBuf),
    #[error("`{}`: {why}", display::path(file))]
    File { file: PathBuf, why: FileError },
    #[error("`{}`: {why}", display::path(file))]
    Syntax { file: PathBuf, why: SyntaxError },
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// What happens to one server of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The server is added, with remarks for the user.
    Added { remarks: Vec<String> },
    /// Our configuration already has the same entry.
    Same,
    /// Our configuration has a different server with this name.
    Conflict,
    /// The server cannot be used, for this reason.
    Unusable(String),
}

/// Our configuration with the servers added, and what happened to each.
#[derive(Debug)]
pub struct ImportedServers {
    pub ours: Change,
    /// What happened to each server, by its name, in the order of the file.
    pub servers: Vec<(String, ImportOutcome)>,
}

impl ImportedServers {
    /// Returns the names of the servers that are added.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        let added = self.servers.iter().filter(|(_, outcome)| matches!(outcome, ImportOutcome::Added { .. }));
        added.map(|(name, _)| name.as_str())
    }
}

impl ImportFile {
    /// Returns the existing files of a client: the user's, then the project's.
    pub fn of_client(client: Client, places: &Places) -> Vec<Self> {
        let files = [Scope::User, Scope::Project].into_iter().flat_map(|scope| client.files(scope, places));
        files.filter(|file| file.exists()).map(|file| Self { file, client: Some(client) }).collect()
    }

    /// Returns a file that the user named, with the client that it belongs to.
    pub fn named(file: &Path, places: &Places) -> Self {
        let file = places.folder().join(file);
        let of = |client: &Client| Self::of_client(*client, places).iter().any(|one| one.file == file);
        Self { client: Client::ALL.into_iter().find(of), file }
    }

    /// Returns the number of servers in the file; `None` if it cannot be read.
    pub fn servers(&self, places: &Places) -> Option<usize> {
        let tree = self.read().ok()?;
        Some(self.containers(&tree, places).iter().map(|servers| servers.members.len()).sum())
    }

    fn read(&self) -> Result<Tree, ImportError> {
        let file = self.file.clone();
        let text = match files::read_users(&self.file) {
            Ok(Some(text)) => text,
            Ok(None) => return Err(ImportError::Missing(file)),
            Err(why) => return Err(ImportError::File { file, why }),
        };
        Format::of(&self.file).parse(&text).map_err(|why| ImportError::Syntax { file, why })
    }

    fn containers<'t>(&self, tree: &'t Tree, places: &Places) -> Vec<ServerContainer<'t>> {
        match self.client {
            Some(client) => document::clients_servers(tree, client, places),
            None => document::servers(tree),
        }
    }

    /// Copies the servers of this file, or those of them with these names, into ours.
    pub fn copy_to(&self, ours: Change, names: &[String], places: &Places) -> Result<ImportedServers, ImportError> {
        let tree = self.read()?;
        let mut imported = ImportedServers { ours, servers: Vec::new() };
        let variables = variables(places, &tree);
        for servers in self.containers(&tree, places) {
            for member in effective(servers.members) {
                let wanted = names.is_empty() || names.contains(&member.key);
                if wanted && !imported.servers.iter().any(|(name, _)| *name == member.key) {
                    let outcome = imported.take(self, member, servers.dialect, &variables)?;
                    imported.servers.push((member.key.clone(), outcome));
                }
            }
        }
        if imported.added().next().is_some()
            && let Some(inputs) = tree.get("inputs")
        {
            imported.ours.add_inputs(inputs)?;
        }
        Ok(imported)
    }
}

impl ImportedServers {
    fn take(
        &mut self,
        from: &ImportFile,
        member: &Member,
        dialect: Dialect,
        variables: &Variables,
    ) -> Result<ImportOutcome, EditError> {
        let source = from.client.map_or(Source::User, Source::Import);
        let origin = Origin { file: from.file.clone(), line: 0, source };
        let remarks = match entry::read(&member.key, &member.value, origin, variables, dialect) {
            Ok(entry) if entry.server.starts_cellmate() => {
                return Ok(ImportOutcome::Unusable("it starts cellmate itself".to_owned()));
            }
            Ok(ParsedEntry { notes, .. }) => notes,
            Err(EntryError::Unset(unset)) => vec![unset.to_string()],
            Err(EntryError::Wrong(why)) => return Ok(ImportOutcome::Unusable(why)),
        };
        let mut copied = member.value.to_json();
        match dialect {
            Dialect::Literal => escape_variables(&mut copied),
            Dialect::BareDollar => brace_variables(&mut copied),
            Dialect::Dollar | Dialect::Brace => {}
        }
        let tree = self.ours.tree()?;
        Ok(match document::server(&tree, &member.key).map(Tree::to_json) {
            Some(there) if there == copied => ImportOutcome::Same,
            Some(_) => ImportOutcome::Conflict,
            None => {
                self.ours.set_server(&member.key, &without_claims(copied))?;
                ImportOutcome::Added { remarks }
            }
        })
    }
}

/// Removes `trusted`: in other clients' files it means something else, and in ours it lets calls run without approval.
fn without_claims(mut entry: Value) -> Value {
    if let Some(fields) = entry.as_object_mut() {
        fields.shift_remove("trusted");
    }
    entry
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{ImportFile, ImportOutcome};
    use crate::edit::Intent;
    use crate::take_over::take_over;
    use crate::{Change, Client, Places};

    fn world(files: &[(&str, &str)]) -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        for (below, text) in files {
            let path = folder.path().join(below);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let home = ("HOME".to_owned(), folder.path().join("home").display().to_string());
        let places = Places::of(&[], folder.path().join("project"), [home].into_iter().collect());
        (folder, places)
    }

    fn outcome(outcome: &ImportOutcome) -> String {
        match outcome {
            ImportOutcome::Added { remarks } => format!("added {}", remarks.len()),
            ImportOutcome::Same => "same".to_owned(),
            ImportOutcome::Conflict => "conflict".to_owned(),
            ImportOutcome::Unusable(why) => why.clone(),
        }
    }

    #[test]
    fn servers_are_copied_unless_they_are_there_or_cannot_be_used() {
        let theirs = r#"{"mcpServers": {
            "new": {"command": "a", "trusted": true}, "same": {"command": "b"}, "other": {"command": "c"},
            "me": {"command": "cellmate", "args": ["mcp"]}, "bad": {}, "unset": {"command": "${NOT_SET_HERE}"},
            "web": {"url": "https://example.com/mcp"}}}"#;
        let ours = "{\n  // mine\n  mcpServers: {same: {command: 'b'}, other: {command: 'x'}},\n}\n";
        let (folder, places) =
            world(&[("home/.cursor/mcp.json", theirs), ("home/.config/cellmate/config.json5", ours)]);
        let files = ImportFile::of_client(Client::Cursor, &places);
        assert_eq!((files.len(), files[0].servers(&places)), (1, Some(7)));
        let ours = folder.path().join("home/.config/cellmate/config.json5");
        let imported = files[0].copy_to(Change::open(&ours).unwrap(), &[], &places).unwrap();
        let outcomes: Vec<String> =
            imported.servers.iter().map(|(name, one)| format!("{name}: {}", outcome(one))).collect();
        assert_eq!(
            outcomes,
            [
                "new: added 0",
                "same: same",
                "other: conflict",
                "me: it starts cellmate itself",
                "bad: it has neither `command` nor `url`; write one of them",
                "unset: added 1",
                "web: added 0",
            ]
        );
        assert_eq!(imported.added().collect::<Vec<_>>(), ["new", "unset", "web"]);
        let text = imported.ours.after();
        assert!(text.contains("// mine") && text.contains(r#""new": {"command":"a"}"#), "{text}");
        let one = files[0].copy_to(Change::open(&ours).unwrap(), &["web".to_owned()], &places).unwrap();
        assert_eq!(one.servers.len(), 1);
    }

    #[test]
    fn of_a_repeated_key_import_and_take_over_use_the_last_entry() {
        let theirs = r#"{"mcpServers": {"a": {"command": "old"}, "b": {"command": "b"}, "a": {"command": "new"}}}"#;
        let ours = "{mcpServers: {b: {command: 'x'}, b: {command: 'b'}}}";
        let (folder, places) =
            world(&[("home/.cursor/mcp.json", theirs), ("home/.config/cellmate/config.json5", ours)]);
        let file = folder.path().join("home/.config/cellmate/config.json5");
        let client = &ImportFile::of_client(Client::Cursor, &places)[0];
        let imported = client.copy_to(Change::open(&file).unwrap(), &[], &places).unwrap();
        let outcomes: Vec<String> =
            imported.servers.iter().map(|(name, one)| format!("{name}: {}", outcome(one))).collect();
        assert_eq!(outcomes, ["b: same", "a: added 0"]);
        assert!(imported.ours.after().contains("new") && !imported.ours.after().contains("old"));

        let (mut theirs, ours) = (Change::open(&client.file).unwrap(), Change::open(&file).unwrap());
        let taken = take_over(Client::Cursor, "cellmate", folder.path(), &mut theirs, ours).unwrap();
        let expected = ["b", "a"].map(|name| format!("`{name}` moves to cellmate's configuration"));
        assert_eq!(taken.notes(Intent::Write), expected);
        assert!(taken.ours.after().contains("new") && !taken.ours.after().contains("old"));
        assert!(!theirs.after().contains("command"), "{}", theirs.after());
    }

    #[test]
    fn a_named_file_is_read_as_the_file_of_its_client() {
        let codex = "[mcp_servers.lit]\ncommand = \"a\"\nargs = [\"${PLAIN}\"]\n";
        let (folder, places) =
            world(&[("home/.codex/config.toml", codex), ("project/x.json", r#"{"s": {"command": "a"}}"#)]);
        let named = ImportFile::named(&folder.path().join("home/.codex/config.toml"), &places);
        assert_eq!(named.client, Some(Client::Codex));
        let imported = named.copy_to(Change::open(&PathBuf::from("/none/new.json5")).unwrap(), &[], &places).unwrap();
        assert!(imported.ours.after().contains("$${PLAIN}"), "{}", imported.ours.after());
        let any = ImportFile::named(Path::new("x.json"), &places);
        assert_eq!((any.client, any.servers(&places)), (None, Some(1)));
        assert!(any.file.is_absolute());
        assert!(
            ImportFile::named(Path::new("none.json"), &places)
                .copy_to(Change::open(&PathBuf::from("/none/new.json5")).unwrap(), &[], &places)
                .is_err()
        );
    }
}
