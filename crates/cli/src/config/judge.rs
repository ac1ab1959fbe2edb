//! Whether an entry that is about to be written is a server.

use super::edit::Change;
use super::entry::{self, EntryError};
use super::load::variables;
use super::own::own_files;
use super::server::{Origin, Source};
use super::{Places, document, itself};

/// An error where it never can be one; a note where it is not yet.
pub(crate) fn judge_entry(change: &Change, name: &str, places: &Places) -> Result<Vec<String>, String> {
    let tree = change.tree().map_err(|error| error.to_string())?;
    let found = document::servers(&tree).into_iter().find_map(|servers| {
        let member = servers.members.iter().rev().find(|member| member.key == name)?;
        Some((member, servers.dialect))
    });
    let Some((member, dialect)) = found else {
        return Err("it would not be found where it was put; write it by hand".to_owned());
    };
    let own = own_files(places).into_iter().find(|(file, _)| *file == change.file);
    let source = own.map_or(Source::User, |(_, source)| source);
    let origin = Origin { file: change.file.clone(), line: 0, source };
    match entry::read(name, &member.value, origin, &variables(places, &tree), dialect) {
        Ok(entry) if itself::is_us(&entry.server.transport) => {
            Err("that is cellmate itself, which would start itself for ever".to_owned())
        }
        Ok(entry) => Ok(entry.notes),
        Err(EntryError::Unset(unset)) => Ok(vec![unset.to_string()]),
        Err(EntryError::Wrong(message)) => Err(message),
    }
}
