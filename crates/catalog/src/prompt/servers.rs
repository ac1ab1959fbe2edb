//! The lists of MCP servers in the description of `exec`: those that can be called, or soon can, because they are
//! starting and `exec` waits for them, and those that cannot, with the reasons.

use super::units::{listed, units};
use crate::Catalog;
use crate::text::clean;
use crate::unavailable::UnavailableServer;

/// The maximum length of the list of unavailable servers, and of the reason of one.
const UNAVAILABLE_UNITS: usize = 300;
const REASON_BYTES: usize = 80;

/// How a cell sees the servers that are not listed.
const REST: &str = "; `await API.read(\"mcp/index.d.ts\")` lists all";

/// Returns the lists in at most `room` units, or an empty text if there are no servers.
pub(super) fn lists(catalog: &Catalog, room: usize) -> String {
    let unavailable = &catalog.unavailable;
    let names: Vec<&str> = catalog.server_identifiers().into_iter().collect();
    if names.is_empty() && unavailable.is_empty() {
        return String::new();
    }
    let here = |room: usize| match names.as_slice() {
        [] => "No MCP server is available.".to_owned(),
        names => titled("Servers: ", names, REST, room),
    };
    let missing: Vec<String> = unavailable.values().filter(|server| !server.is_starting()).map(shown).collect();
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    // Half of the room, and what the servers do not need of theirs.
    let missing = match missing.as_slice() {
        [] => String::new(),
        missing => {
            let room = (room / 2).max(room.saturating_sub(units(&here(room)))).min(UNAVAILABLE_UNITS);
            titled(" Unavailable: ", missing, "", room)
        }
    };
    format!("{}{missing}", here(room.saturating_sub(units(&missing))))
}

/// Returns the servers that cannot be called, with the reasons, as a sentence that starts with a space. Empty if there are
/// none.
pub(super) fn unavailable(catalog: &Catalog) -> String {
    let missing: Vec<String> = catalog.unavailable.values().filter(|server| !server.is_starting()).map(shown).collect();
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    if missing.is_empty() { String::new() } else { titled(" Unavailable: ", &missing, "", UNAVAILABLE_UNITS) }
}

/// Lists items after a title; if not all of them fit, `rest` follows.
fn titled(title: &str, items: &[&str], rest: &str, room: usize) -> String {
    let room = room.saturating_sub(units(title) + ".".len());
    match listed(items, room) {
        Some(list) if list.is_whole => format!("{title}{}.", list.text),
        _ => match listed(items, room.saturating_sub(units(rest))) {
            Some(list) => format!("{title}{}{rest}.", list.text),
            None => String::new(),
        },
    }
}

/// Returns a server with its reason up to the first semicolon: what follows is advice for the operator.
fn shown(server: &UnavailableServer) -> String {
    let reason = server.reason.split(';').next().unwrap_or_default();
    let reason = reason.strip_prefix("it ").unwrap_or(reason);
    format!("{} ({})", server.name, clean(&reason.replace('`', ""), REASON_BYTES))
}
