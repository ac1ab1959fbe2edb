//! Validates a server's entry before it is written.

use super::edit::Change;
use super::entry::{self, EntryError};
use super::load::variables;
use super::own::own_files;
use super::server::{Origin, Source};
use super::{Places, document, itself};

/// Returns an error if the entry can never be used, and notes if it cannot be used yet.
pub(crate) fn judge_entry(change: &Change, name: &str, places: &Places) -> Result<Vec<String>, String> {
    let tree = change.tree().map_err(|error| error.to_string())?;
    let found = document::servers(&tree).into_iter().find_map(|servers| {
        let member = servers.members.iter().rev().find(|member| member.key == name)?;
        Some((member, servers.dialect))
    });
    let Some((member, dialect)) = found else {
        return Err("cellmate would not find the server in this file; add it by hand".to_owned());
    };
    let own = own_files(places).into_iter().find(|(file, _)| *file == change.file);
    let source = own.map_or(Source::User, |(_, source)| source);
    let origin = Origin { file: change.file.clone(), line: 0, source };
    match entry::read(name, &member.value, origin, &variables(places, &tree), dialect) {
        Ok(entry) if itself::is_us(&entry.server.transport) => {
            Err("that is cellmate itself, which would start itself recursively".to_owned())
        }
        Ok(entry) => Ok(entry.notes),
        Err(EntryError::Unset(unset)) => Ok(vec![unset.to_string()]),
        Err(EntryError::Wrong(message)) => Err(message),
    }
}
