//! Configuration files as people inspect them: which are read, their values without secrets, and where a value is.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clients::Client;
use crate::document::{self, Format};
use crate::edit::{Change, EditError, masked};
use crate::entry::{self, EntryError};
use crate::files::{self, FileError};
use crate::key_path::{KeyPath, Step, value_at};
use crate::load::{ConfigError, own_files, variables};
use crate::places::{Places, Scope};
use crate::project::Restrictions;
use crate::server::{Origin, Problem, Source};
use crate::tree::{Lines, Member, SyntaxError, Tree};
use crate::trust::{Trust, TrustStore};

/// A place in a file, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    fn of(text: &str, offset: usize) -> Self {
        let SyntaxError { line, column, .. } = SyntaxError::at(text, offset, "");
        Self { line, column }
    }
}

/// A configuration file that was read and parsed.
pub struct ConfigFile {
    pub file: PathBuf,
    pub source: Source,
    text: String,
    tree: Tree,
}

impl fmt::Debug for ConfigFile {
    /// Leaves out the content, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigFile").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads a file; `None` if it does not exist.
    pub fn open(file: &Path, source: Source) -> Result<Option<Self>, ConfigError> {
        let text = read(file, source).map_err(|why| ConfigError::File { file: file.to_owned(), why })?;
        let Some(text) = text else { return Ok(None) };
        let parsed = match source {
            Source::Import(_) => Format::of(file).parse(&text),
            Source::Named | Source::User | Source::Project => Format::of(file).parse_cellmate(&text),
        };
        let tree = parsed.map_err(|why| ConfigError::Syntax { file: file.to_owned(), why })?;
        Ok(Some(Self { file: file.to_owned(), source, text, tree }))
    }

    /// Returns the file as it will be after the change.
    pub fn after(change: &Change, source: Source) -> Result<Self, EditError> {
        Ok(Self { file: change.file.clone(), source, text: change.after().to_owned(), tree: change.tree()? })
    }

    /// Returns everything but the servers, as `load` reads it; an object.
    pub fn settings(&self) -> Value {
        Value::Object(document::settings(&self.tree))
    }

    /// Returns the settings' keys, and where each is.
    pub fn sections(&self) -> Vec<(String, Position)> {
        let settings = document::settings(&self.tree);
        let members = self.tree.members().iter().filter(|member| settings.contains_key(&member.key));
        members.map(|member| (member.key.clone(), Position::of(&self.text, member.key_span.start))).collect()
    }

    /// Returns the value at a path, with secrets hidden.
    pub fn shown(&self, path: &KeyPath) -> Option<Value> {
        Some(value_at(&self.masked()?, path.steps())?.to_json())
    }

    /// Returns the whole file as one value, with secrets hidden.
    pub fn shown_whole(&self) -> Option<Value> {
        Some(self.masked()?.to_json())
    }

    /// Returns the entry of a server, with secrets hidden.
    pub fn shown_server(&self, name: &str, places: &Places) -> Option<Value> {
        let tree = self.masked()?;
        let containers = match self.source {
            Source::Import(client) => document::clients_servers(&tree, client, places),
            Source::Named | Source::User | Source::Project => document::servers(&tree),
        };
        let named = |member: &&Member| member.key == name;
        containers
            .into_iter()
            .find_map(|servers| servers.members.iter().rev().find(named))
            .map(|one| one.value.to_json())
    }

    /// Returns the servers of this file that can never be used, and the keys that a project's file cannot set, with the
    /// reasons. A variable that is not set is no mistake in the file.
    pub fn problems(&self, places: &Places) -> Vec<Problem> {
        let (lines, variables) = (Lines::of(&self.text), variables(places, &self.tree));
        let mut problems = Vec::new();
        if self.source == Source::Project {
            problems.extend(Restrictions::read(&self.tree).refused.into_iter().map(|refusal| Problem {
                file: self.file.clone(),
                line: Some(lines.line(refusal.offset)),
                server: None,
                message: refusal.message,
            }));
        }
        for servers in document::servers(&self.tree) {
            for member in servers.members {
                let line = lines.line(member.key_span.start);
                let origin = Origin { file: self.file.clone(), line, source: self.source };
                let read = entry::read(&member.key, &member.value, origin, &variables, servers.dialect);
                if let Err(EntryError::Wrong(message)) = read {
                    let server = Some(member.key.clone());
                    problems.push(Problem { file: self.file.clone(), line: Some(line), server, message });
                }
            }
        }
        problems
    }

    /// Returns where a value is, or the nearest object or list around it that exists.
    pub fn position(&self, path: &KeyPath) -> Position {
        let mut here = &self.tree;
        let mut offset = here.span.start;
        for step in path.steps() {
            match (here.items(), step) {
                (Some(items), step) => {
                    let Some(item) = step.position().and_then(|position| items.get(position)) else { break };
                    (here, offset) = (item, item.span.start);
                }
                (None, Step::Key(key)) => {
                    let Some(member) = here.member(key) else { break };
                    (here, offset) = (&member.value, member.key_span.start);
                }
                (None, Step::Index(_)) => break,
            }
        }
        Position::of(&self.text, offset)
    }

    /// Returns where the text of a line begins, after its indentation.
    pub fn start_of_line(&self, line: usize) -> Position {
        let text = self.text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default();
        Position { line, column: text.chars().take_while(|c| c.is_whitespace()).count() + 1 }
    }

    fn masked(&self) -> Option<Tree> {
        let format = Format::of(&self.file);
        format.parse(&masked(&self.text, format)).ok()
    }
}

fn read(file: &Path, source: Source) -> Result<Option<String>, FileError> {
    match source {
        Source::Named => files::read_named(file),
        Source::Import(_) => files::read_users(file),
        Source::User | Source::Project => files::read(file),
    }
}

/// Parses a value that a user typed, as JSON5.
pub fn parse_value(text: &str) -> Result<Value, SyntaxError> {
    Ok(Format::Json.parse(text)?.to_json())
}

/// A file that may be part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    pub file: PathBuf,
    pub source: Source,
    pub state: FileState,
}

/// Whether a file is used, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    Used,
    Missing,
    /// A project's file that the user has not trusted yet.
    Untrusted,
    /// A project's file that has changed since the user trusted it.
    Changed,
    Unusable(String),
}

/// Returns all files that may be part of the configuration, in the order in which they are read.
pub fn listed_files(places: &Places) -> Vec<ListedFile> {
    let (users, projects): (Vec<_>, Vec<_>) =
        own_files(places).into_iter().partition(|(_, source)| source.is_the_users());
    let mut imports: Vec<Client> = Vec::new();
    for (file, source) in &users {
        let Ok(Some(own)) = ConfigFile::open(file, *source) else { continue };
        for client in
            document::string_list(&own.tree, "imports").unwrap_or_default().into_iter().filter_map(Client::parse)
        {
            if !imports.contains(&client) {
                imports.push(client);
            }
        }
    }
    let of_clients = |scope: Scope| {
        let files = |client: &Client| {
            let client = *client;
            client.files(scope, places).into_iter().map(move |file| (file, Source::Import(client)))
        };
        imports.iter().flat_map(files).collect::<Vec<_>>()
    };
    let trusted = users.into_iter().chain(of_clients(Scope::User)).map(|(file, source)| (file, source, false));
    let pinned = projects.into_iter().chain(of_clients(Scope::Project)).map(|(file, source)| (file, source, true));
    let mut listed: Vec<ListedFile> = Vec::new();
    for (file, source, is_pinned) in trusted.chain(pinned) {
        // If the home folder is the project, its files are the user's.
        if listed.iter().any(|one| one.file == file) {
            continue;
        }
        let state = match is_pinned {
            true => trusted_state(&file, source, places),
            false => state(&file, source),
        };
        listed.push(ListedFile { file, source, state });
    }
    listed
}

fn state(file: &Path, source: Source) -> FileState {
    match ConfigFile::open(file, source) {
        Ok(Some(_)) => FileState::Used,
        Ok(None) => FileState::Missing,
        Err(ConfigError::File { why, .. }) => FileState::Unusable(why.to_string()),
        Err(ConfigError::Syntax { why, .. }) => FileState::Unusable(why.to_string()),
        Err(error @ ConfigError::NoObject { .. }) => FileState::Unusable(error.to_string()),
        Err(ConfigError::Missing(_)) => FileState::Missing,
    }
}

fn trusted_state(file: &Path, source: Source, places: &Places) -> FileState {
    match files::read_bytes(file) {
        Ok(None) => FileState::Missing,
        Err(why) => FileState::Unusable(why.to_string()),
        Ok(Some(content)) => match TrustStore::of(places).judge(file, &content) {
            Trust::Trusted(_) => state(file, source),
            Trust::Changed(_) => FileState::Changed,
            Trust::Never => FileState::Untrusted,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;

    use super::{ConfigFile, FileState, Position, listed_files};
    use crate::{KeyPath, Places, Source};

    fn file(text: &str) -> (tempfile::TempDir, ConfigFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json5");
        std::fs::write(&path, text).unwrap();
        let opened = ConfigFile::open(&path, Source::Named).unwrap().unwrap();
        (folder, opened)
    }

    fn path(text: &str) -> KeyPath {
        KeyPath::parse(text).unwrap()
    }

    #[test]
    fn values_are_shown_without_secrets() {
        let (_folder, file) = file(
            "{mcpServers: {s: {command: 'npx', args: ['--token', 'hunter2'], env: {A: 'hunter2', B: '${B}'}}},\n\
             tools: {deny: ['mcp:s:*'], codeMode: {timeoutMs: 5000}, web: {apiKey: 'hunter2'}},\n\
             store: {url: 'postgres://me:hunter2@db/x', keepRunsSeconds: 60}, other: 'hunter2'}",
        );
        let whole = file.shown_whole().unwrap();
        assert!(!whole.to_string().contains("hunter2"), "{whole}");
        assert_eq!(file.shown(&path("mcpServers.s.env.B")), Some(json!("${B}")));
        assert_eq!(file.shown(&path("tools.codeMode.timeoutMs")), Some(json!(5000)));
        assert_eq!(file.shown(&path("tools.deny[0]")), Some(json!("mcp:s:*")));
        assert_eq!(file.shown(&path("store.url")), Some(json!("postgres://db/x")));
        assert_eq!(file.shown(&path("store.keepRunsSeconds")), Some(json!(60)));
        assert_eq!(file.shown(&path("tools.deny[1]")), None);
        let places = Places::of(&[], PathBuf::from("/none"), std::collections::BTreeMap::new());
        assert_eq!(file.shown_server("s", &places).unwrap()["args"], json!(["--token", "…"]));
    }

    #[test]
    fn a_position_is_that_of_the_value_or_of_what_contains_it() {
        let (_folder, file) = file("{\n  tools: {\n    deny: ['a',\n      'b'],\n  },\n}\n");
        let cases = [
            ("tools", (2, 3)),
            ("tools.deny", (3, 5)),
            ("tools.deny[1]", (4, 7)),
            ("tools.deny[7]", (3, 5)),
            ("tools.nothing.below", (2, 3)),
            ("nothing", (1, 1)),
        ];
        for (text, (line, column)) in cases {
            assert_eq!(file.position(&path(text)), Position { line, column }, "{text}");
        }
        assert_eq!(file.start_of_line(3), Position { line: 3, column: 5 });
        assert_eq!(file.sections(), [("tools".to_owned(), Position { line: 2, column: 3 })]);
    }

    #[test]
    fn files_are_listed_in_the_order_in_which_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |below: &str, text: &str| {
            let path = folder.path().join(below);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("home/.config/cellmate/config.json5", "{imports: ['cursor']}");
        write("home/.cursor/mcp.json", "{");
        write("project/.cellmate.json5", "{}");
        let home = folder.path().join("home").display().to_string();
        let environment = [("HOME".to_owned(), home)].into_iter().collect();
        let places = Places::of(&[], folder.path().join("project"), environment);
        let listed = listed_files(&places);
        let below = |path: &Path| path.strip_prefix(folder.path()).unwrap().display().to_string();
        let files: Vec<String> = listed.iter().map(|one| below(&one.file)).collect();
        assert_eq!(
            files,
            [
                "home/.config/cellmate/config.json5",
                "home/.cursor/mcp.json",
                "project/.cellmate.json5",
                "project/.cursor/mcp.json",
            ]
        );
        assert_eq!(listed[0].state, FileState::Used);
        assert!(matches!(&listed[1].state, FileState::Unusable(why) if why.starts_with("line 1")), "{listed:?}");
        assert_eq!((&listed[2].state, &listed[3].state), (&FileState::Untrusted, &FileState::Missing));
    }
}
