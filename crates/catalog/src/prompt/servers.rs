//! The lists of MCP servers in the description of `exec`: those that can be called, and those that cannot, with the
//! reasons.

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
    let (servers, unavailable) = (&catalog.servers, &catalog.unavailable);
    if servers.is_empty() && unavailable.is_empty() {
        return String::new();
    }
    let missing: Vec<String> = unavailable.values().map(shown).collect();
    let missing = match missing.len() {
        0 => String::new(),
        _ => titled(" Unavailable: ", missing.iter().map(String::as_str), "", UNAVAILABLE_UNITS.min(room / 2)),
    };
    let names = servers.keys().map(String::as_str);
    let here = match names.len() {
        0 => "No MCP server is available.".to_owned(),
        _ => titled("Servers: ", names, REST, room.saturating_sub(units(&missing))),
    };
    format!("{here}{missing}")
}

/// Lists items after a title; if not all of them fit, `rest` follows.
fn titled<'a>(title: &str, items: impl ExactSizeIterator<Item = &'a str> + Clone, rest: &str, room: usize) -> String {
    let room = room.saturating_sub(units(title) + ".".len());
    match listed(items.clone(), room) {
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
