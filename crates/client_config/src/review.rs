//! Checks before a change takes effect: shows a project's file before the user trusts it, and validates a server's
//! entry before it is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use telemetry::LogIgnored;

use crate::clients::Client;
use crate::document::{Format, ServerContainer};
use crate::edit::{Change, WriteError, WrittenFile};
use crate::entry::EntryError;
use crate::load::{own_files, variables};
use crate::places::{Places, Scope};
use crate::project::Restrictions;
use crate::references::References;
use crate::server::{Origin, Source};
use crate::trust::{ServerChanges, Trust, TrustRecord, TrustStore};
use crate::variables::Variables;
use crate::{display, document, entry, files};

/// A project's file as shown to the user before they trust it.
#[derive(Debug)]
pub struct ProjectReview {
    pub file: PathBuf,
    /// The trust record that is stored if the user trusts the file.
    pub record: TrustRecord,
    /// Each server's name, and its command or URL without secrets, or the reason why it cannot be used.
    pub servers: Vec<(String, String)>,
    /// Warnings, for example about settings that a project's file may not change.
    pub notes: Vec<String>,
}

impl ProjectReview {
    /// Reads and hashes the file and the `envFile`s that it names. Returns `None` if the file does not exist.
    ///
    /// `client` is the client whose file it is, or `None` for Cellmate's own.
    pub fn open(file: &Path, client: Option<Client>, places: &Places) -> Result<Option<Self>, String> {
        let content = files::read_bytes(file).map_err(|why| why.to_string())?;
        content.map(|content| Self::read(file, client, &content, places)).transpose()
    }

    /// Returns the servers that changed since the user trusted the file; `None` if the file is trusted and unchanged.
    pub fn changes(&self, store: &TrustStore) -> Option<ServerChanges> {
        match store.record(&self.file) {
            Some(record) if record == self.record => None,
            Some(before) => Some(self.record.changes_since(&before)),
            None => Some(ServerChanges { added: self.record.server_names(), ..ServerChanges::default() }),
        }
    }

    fn read(file: &Path, client: Option<Client>, content: &[u8], places: &Places) -> Result<Self, String> {
        let text = files::text(content.to_vec()).map_err(|why| why.to_string())?;
        let parsed = match client {
            Some(_) => Format::of(file).parse(&text),
            None => Format::of(file).parse_cellmate(&text),
        };
        let tree = parsed.map_err(|why| format!("{why}; fix it first"))?;
        let record = TrustRecord::new(file, content).ok_or("its path is not Unicode, so it cannot be recorded")?;
        let mut reviewed = Self { file: file.to_owned(), record, servers: Vec::new(), notes: Vec::new() };
        let (found, source) = match client {
            Some(client) => (document::clients_servers(&tree, client, places), Source::Import(client)),
            None => (document::servers(&tree), Source::Project),
        };
        if client.is_none() {
            reviewed.notes.extend(Restrictions::read(&tree).refused.into_iter().map(|refusal| refusal.message));
        }
        let origin = Origin { file: file.to_owned(), line: 0, source };
        for servers in found {
            reviewed.add(&servers, &origin, &variables(places, &tree), places);
        }
        Ok(reviewed)
    }

    fn add(&mut self, servers: &ServerContainer<'_>, origin: &Origin, variables: &Variables, places: &Places) {
        for member in servers.members {
            self.record.add_server(&member.key, &member.value.to_json());
            let name = display::plain(&member.key);
            self.notes.extend(disclosure_note(&name, &References::of_entry(&member.value, servers.dialect)));
            match entry::read(&member.key, &member.value, origin.clone(), variables, servers.dialect) {
                Ok(entry) => {
                    self.servers.push((name.clone(), entry.server.shown));
                    self.notes.extend(entry.notes.into_iter().map(|note| format!("server `{name}`: {note}")));
                    let env_file = entry.env_file.map(|path| places.resolve(&path.display().to_string()));
                    if let Some(path) = env_file
                        && let Ok(Some(content)) = files::read_bytes(&path)
                    {
                        self.record.add_env_file(&path, &content);
                    }
                }
                // What the entry would start is shown all the same: trust covers it, also once the problem is solved.
                Err(why) => {
                    let what = match unread_command(&member.value.to_json()) {
                        Some(command) => format!("{command} ({why})"),
                        None => why.to_string(),
                    };
                    self.servers.push((name, what));
                }
            }
        }
    }
}

/// Returns the command or URL of an entry that cannot be used, as it is written, without secrets.
fn unread_command(entry: &Value) -> Option<String> {
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        value.as_str().into_iter().chain(words).map(str::to_owned).collect()
    };
    let key = |name: &str| entry.get(name).map(words).unwrap_or_default();
    let line = [key("command"), key("args")].concat();
    if let Some((command, args)) = line.split_first() {
        return Some(display::command(command, args));
    }
    ["url", "httpUrl", "serverUrl"].iter().find_map(|name| key(name).first().map(|url| display::url(url)))
}

/// The maximum number of variables or secrets that a note names.
const MAX_NAMES: usize = 20;

/// Returns a note about the user's variables and secrets that a server gets, because its command does not show them.
fn disclosure_note(server: &str, references: &References) -> Option<String> {
    let list = |names: &BTreeSet<String>| {
        let shown: Vec<String> =
            names.iter().take(MAX_NAMES).map(|name| format!("`{}`", display::plain(name))).collect();
        let more = names.len().saturating_sub(MAX_NAMES);
        if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
    };
    let (variables, secrets) = (list(&references.variables), list(&references.secrets));
    let gets = match (variables.is_empty(), secrets.is_empty()) {
        (true, true) => return None,
        (false, true) => format!("your variables {variables}"),
        (true, false) => format!("your secrets {secrets}"),
        (false, false) => format!("your variables {variables} and your secrets {secrets}"),
    };
    Some(format!("server `{server}` gets {gets}"))
}

/// Writes a change to a file. If the file was trusted before the change, it is trusted with its new content.
pub fn write_change(change: &Change, places: &Places) -> Result<WrittenFile, WriteError> {
    let store = TrustStore::of(places);
    let trusted = change.before().map(|before| store.judge(&change.file, before.as_bytes()));
    let written = change.write(places.backups().as_deref())?;
    if let Some(Trust::Trusted(before)) = trusted {
        let client = Client::ALL.into_iter().find(|client| client.files(Scope::Project, places).contains(&change.file));
        if let Ok(now) = ProjectReview::read(&change.file, client, change.after().as_bytes(), places) {
            // Keeps the old hashes of the env files: the user has not reviewed their current content. If the record
            // cannot be written, the next command reports that the file has changed and how to trust it.
            store.write(&now.record.with_env_files_of(&before)).log_ignored("record the edited file as trusted");
        }
    }
    Ok(written)
}

/// Validates a server's entry before the change is written. Returns warnings, for example about a variable that is not
/// set, or an error if the entry can never be used.
pub fn check_entry(change: &Change, name: &str, places: &Places) -> Result<Vec<String>, String> {
    let tree = change.tree().map_err(|error| error.to_string())?;
    let found = document::servers(&tree).into_iter().find_map(|servers| {
        let member = servers.members.iter().rev().find(|member| member.key == name)?;
        Some((member, servers.dialect))
    });
    let Some((member, dialect)) = found else {
        return Err("cellmate cannot read servers from this file's layout; add the server under `mcpServers` by hand"
            .to_owned());
    };
    let own_file = own_files(places).into_iter().find(|(file, _)| *file == change.file);
    let source = own_file.map_or(Source::User, |(_, source)| source);
    let origin = Origin { file: change.file.clone(), line: 0, source };
    match entry::read(name, &member.value, origin, &variables(places, &tree), dialect) {
        Ok(entry) if entry.server.starts_cellmate() => {
            Err("the command starts cellmate itself, which would start itself recursively; use another command"
                .to_owned())
        }
        Ok(entry) => Ok(entry.notes),
        Err(EntryError::Unset(unset)) => Ok(vec![unset.to_string()]),
        Err(EntryError::Wrong(message)) => Err(message),
    }
}
