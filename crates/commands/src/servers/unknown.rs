//! What is said about a server that is not configured.

use catalog::search::near;
use client_config::{FileState, LoadedConfig, Places, Problem, display, listed_files};

use crate::hint;

/// Says that there is no server of this name, and which one is probably meant. If none is similar, and files of the
/// project are not read, because they are not trusted, they are named with the command that trusts them: the server may be
/// in one of them.
pub(crate) fn unknown_server(name: &str, loaded: &LoadedConfig, places: &Places) -> String {
    let unusable = loaded.problems.iter().filter_map(|problem| problem.server.as_deref());
    let names = loaded.servers.iter().map(|server| server.name.as_str()).chain(unusable);
    let meant = near(name, names, 1).first().map(|meant| format!(" did you mean `{}`?", display::plain(meant)));
    let (name, list) = (display::plain(name), hint::command("servers list"));
    match (meant, unread_files(loaded, places).as_slice()) {
        (Some(meant), _) => format!("no server named `{name}`;{meant} `{list}` lists them"),
        (None, []) => format!("no server named `{name}`; `{list}` lists them"),
        (None, unread) => {
            let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
            format!("no server named `{name}` in the files that are read; {}", unread.join("; "))
        }
    }
}

/// Returns the problems of the project's files that are not read until the user trusts them.
fn unread_files<'l>(loaded: &'l LoadedConfig, places: &Places) -> Vec<&'l Problem> {
    let listed = listed_files(places);
    let is_unread = |problem: &&Problem| {
        let is_untrusted = |state: &FileState| matches!(state, FileState::Untrusted | FileState::Changed);
        problem.server.is_none() && listed.iter().any(|one| one.file == problem.file && is_untrusted(&one.state))
    };
    loaded.problems.iter().filter(is_unread).collect()
}
