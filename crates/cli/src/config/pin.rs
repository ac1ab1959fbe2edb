//! Reviews a project's file before the user trusts it, and keeps a trusted file trusted when cellmate edits it.

use std::path::Path;

use super::clients::{Client, Scope};
use super::document::{self, Format, Servers};
use super::edit::{Change, WriteError, Written};
use super::load::variables;
use super::places::Places;
use super::project::Restrictions;
use super::server::{Origin, Source};
use super::trust::{Trust, TrustRecord, TrustStore};
use super::{entry, files, shown};

/// A project's file as shown to the user before they trust it.
#[derive(Debug)]
pub(crate) struct Reviewed {
    pub(crate) record: TrustRecord,
    /// Every server with its command or URL, secrets hidden, or why it cannot be used.
    pub(crate) servers: Vec<(String, String)>,
    /// Parts of the file that are not applied.
    pub(crate) notes: Vec<String>,
}

impl Reviewed {
    /// Reads the file's content and the `envFile`s that it names, and hashes both.
    pub(crate) fn read(file: &Path, client: Option<Client>, content: &[u8], places: &Places) -> Result<Self, String> {
        let text = files::text(content.to_vec()).map_err(|why| why.to_string())?;
        let tree = Format::of(file).parse(&text).map_err(|why| format!("{why}; fix it first"))?;
        let record = TrustRecord::new(file, content).ok_or("its path is not Unicode, so it cannot be recorded")?;
        let mut reviewed = Self { record, servers: Vec::new(), notes: Vec::new() };
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

    fn add(&mut self, servers: &Servers<'_>, origin: &Origin, variables: &super::Variables, places: &Places) {
        for member in servers.members {
            self.record.add_server(&member.key, &member.value.to_json());
            let name = shown::plain(&member.key);
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
                Err(why) => self.servers.push((name, why.to_string())),
            }
        }
    }
}

/// Writes a change. A project's file that was trusted before the change stays trusted after it.
pub(crate) fn write_change(change: &Change, places: &Places) -> Result<Written, WriteError> {
    let store = TrustStore::of(places);
    let trusted = change.before().map(|before| store.judge(&change.file, before.as_bytes()));
    let written = change.write(places.backups().as_deref())?;
    if let Some(Trust::Trusted(before)) = trusted {
        let client = Client::ALL.into_iter().find(|client| client.files(Scope::Project, places).contains(&change.file));
        if let Ok(now) = Reviewed::read(&change.file, client, change.after().as_bytes(), places) {
            // Env files stay trusted only as the user saw them. If the record cannot be written, the next command
            // reports that the file has changed, and what to do.
            drop(store.write(&now.record.with_env_files_of(&before)));
        }
    }
    Ok(written)
}
