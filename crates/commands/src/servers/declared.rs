//! What servers declare about their tools, and whether the user believes it.
//!
//! Calls of tools that a trusted server declares read-only need no approval. So the user is shown the declarations and
//! asked once, when a server is added.

use std::path::PathBuf;

use clap::Args;
use client_config::{Change, LoadedConfig, Places, ServerEntry, Source, display, write_change};
use contract::text;
use contract::tool::{Operation, ToolHash, ToolId, ToolSpec};
use executor::ToolSource;
use serde_json::json;

use super::probe::ProbeFailure;
use super::{FilteredTools, probe_all};
use crate::approvals::terminal;
use crate::{hint, render};

/// How many tools of one server are named.
const MAX_NAMED: usize = 20;

/// How many characters of a tool's name are shown.
const MAX_NAME_CHARS: usize = 64;

/// Whether to trust what new servers declare about their tools.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct DeclaredTrust {
    /// Trust what the server declares about its tools: those that only read, or add something once and destroy
    /// nothing, then need no approval.
    #[arg(long, conflicts_with = "no_trusted")]
    trusted: bool,
    /// Do not trust what the server declares about its tools, and do not ask.
    #[arg(long)]
    no_trusted: bool,
}

/// The user's answer, if a flag gave it in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrustChoice {
    Trust,
    DoNotTrust,
    Ask,
}

impl DeclaredTrust {
    pub(crate) fn choice(self) -> TrustChoice {
        match (self.trusted, self.no_trusted) {
            (true, _) => TrustChoice::Trust,
            (false, true) => TrustChoice::DoNotTrust,
            (false, false) => TrustChoice::Ask,
        }
    }
}

/// What a server declares about the tools that it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) server: String,
    /// The tools that need no approval if the server is trusted.
    pub(super) harmless: Vec<String>,
    /// The ids of the harmless tools, and the hashes of their definitions.
    pub(super) definitions: Vec<(ToolId, ToolHash)>,
    pub(super) tools: usize,
}

impl Declaration {
    /// Reads the declarations from the tools that the server would offer if it were trusted. Operations that Cellmate
    /// adds to a server, such as listing its resources, are not counted.
    fn of(server: &str, tools: &[ToolSpec]) -> Self {
        let own: Vec<&ToolSpec> = tools.iter().filter(|tool| tool.operation == Operation::Tool).collect();
        let harmless = || own.iter().filter(|tool| tool.repeat.is_harmless());
        let definitions = harmless().map(|tool| (tool.id.clone(), tool.hash())).collect();
        let harmless = harmless().map(|tool| tool.id.name().to_owned()).collect();
        Self { server: server.to_owned(), harmless, definitions, tools: own.len() }
    }

    pub(super) fn text(&self) -> String {
        let (name, tools) = (display::plain(&self.server), self.tools);
        if self.harmless.is_empty() {
            return format!("`{name}` declares none of its {tools} tools read-only");
        }
        let shown = self.harmless.iter().take(MAX_NAMED).map(|tool| text::line(tool, MAX_NAME_CHARS));
        let shown: Vec<String> = shown.collect();
        let more = match self.harmless.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "`{name}` declares that {} of its {tools} tools only read, or add something once and destroy nothing: \
             {}{more}",
            self.harmless.len(),
            shown.join(", ")
        )
    }
}

/// Starts servers and returns what each declares, or why it could not be started, in the given order.
pub(super) async fn declarations(
    servers: Vec<ServerEntry>,
    lists: Option<PathBuf>,
) -> Vec<Result<Declaration, ProbeFailure>> {
    // Declarations of servers that are not trusted are discarded when they are read.
    let trusted = servers.into_iter().map(|server| ServerEntry { trusted: true, ..server });
    let results = probe_all(trusted.collect(), lists).await;
    let declared = results.into_iter().map(|result| match result.server {
        Ok(server) => {
            let offered = FilteredTools::new(server, &result.entry).tools();
            Ok(Declaration::of(&result.entry.name, &offered))
        }
        Err(failure) => Err(failure),
    });
    declared.collect()
}

/// Marks a server as trusted in the file that it comes from, or removes the mark. Returns whether the file changed.
pub(super) fn set_trusted(server: &ServerEntry, places: &Places, choice: TrustChoice) -> Result<bool, String> {
    let mut change = Change::open(&server.origin.file).map_err(|error| error.to_string())?;
    let edited = match choice {
        TrustChoice::Trust => change.set_in_server(&server.name, "trusted", &json!(true)),
        TrustChoice::DoNotTrust | TrustChoice::Ask => change.remove_from_server(&server.name, "trusted"),
    };
    edited.map_err(|error| error.to_string())?;
    if change.is_empty() {
        return Ok(false);
    }
    write_change(&change, places).map_err(|error| error.to_string())?;
    Ok(true)
}

/// Whether the user can mark the server as trusted: it is in the user's own configuration.
pub(super) fn can_be_trusted(server: &ServerEntry) -> bool {
    matches!(server.origin.source, Source::User | Source::Named)
}

/// Returns a note for servers that were added without asking.
pub(crate) fn untrusted_note(names: &[String]) -> Option<String> {
    let subject = match names {
        [] => return None,
        [only] => format!("`{}` is not trusted", display::plain(only)),
        several => format!("these {} servers are not trusted", several.len()),
    };
    Some(format!(
        "{subject} to declare which tools only read, so all calls need approval; `{}` shows what is declared, and \
         changes that",
        trust_command(names)
    ))
}

/// Returns the command that trusts these servers.
fn trust_command(names: &[String]) -> String {
    let names = names.iter().map(|name| format!(" {}", display::for_shell(&display::plain(name))));
    hint::command(&format!("servers trust-tools{}", names.collect::<String>()))
}

/// Shows what servers that were just added declare about their tools, asks once whether to believe it, and records the
/// answer. A server that cannot be started stays as it is.
///
/// Without a terminal nothing is started, and a note says how to trust the servers later.
pub(crate) async fn review_added(places: &Places, names: &[String]) -> Result<(), String> {
    let loaded = client_config::load(places).map_err(|error| error.to_string())?;
    let (servers, reasons) = startable(&loaded, names);
    if !terminal::is_interactive() {
        let names: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
        untrusted_note(&names).iter().for_each(|note| render::note(&format!("note: {note}")));
        return Ok(());
    }
    reasons.iter().for_each(|reason| render::note(&format!("note: {reason}")));
    if servers.is_empty() {
        return Ok(());
    }
    render::note(&starting(&servers));
    let mut asked = Vec::new();
    let declared = declarations(servers.clone(), places.tool_lists()).await;
    for (server, declared) in servers.iter().zip(declared) {
        match declared {
            Ok(declared) => {
                render::note(&declared.text());
                if !declared.harmless.is_empty() {
                    asked.push(declared.server);
                }
            }
            Err(failure) => {
                render::note_stderr(&failure.stderr);
                render::note(&format!("note: {}", not_started(&server.name, &failure.why)));
            }
        }
    }
    let trusted = ask(&asked).await;
    for server in servers.iter().filter(|server| trusted.contains(&server.name)) {
        set_trusted(server, places, TrustChoice::Trust)?;
    }
    report(&asked, &trusted);
    Ok(())
}

/// Returns the servers of these names that can be trusted and started, and why others cannot.
fn startable(loaded: &LoadedConfig, names: &[String]) -> (Vec<ServerEntry>, Vec<String>) {
    let (mut servers, mut reasons) = (Vec::new(), Vec::new());
    for name in names {
        let found = loaded.servers.iter().find(|server| server.name == *name);
        let problem = loaded.problems.iter().find(|problem| problem.server.as_ref() == Some(name));
        match (found, problem) {
            (Some(server), _) if !can_be_trusted(server) || server.trusted => {}
            (Some(server), _) if !server.enabled => reasons.push(not_started(name, "it is disabled")),
            (Some(server), _) => servers.push(server.clone()),
            (None, Some(problem)) => reasons.push(not_started(name, &problem.message)),
            (None, None) => {}
        }
    }
    (servers, reasons)
}

fn starting(servers: &[ServerEntry]) -> String {
    let what = match servers {
        [only] => format!("starting `{}` to see what it declares about its tools", display::plain(&only.name)),
        several => format!("starting {} servers to see what they declare about their tools", several.len()),
    };
    match servers.iter().any(|server| server.transport.may_download()) {
        true => format!("{what}; downloading packages may take a few minutes…"),
        false => format!("{what}…"),
    }
}

fn not_started(name: &str, why: &str) -> String {
    format!(
        "`{}` was not started, so it is not trusted to declare which tools only read: {}; when it works, run `{}`",
        display::plain(name),
        text::line(why, usize::MAX),
        trust_command(&[name.to_owned()])
    )
}

/// Asks on the terminal which servers to trust. Returns their names.
pub(super) async fn ask(servers: &[String]) -> Vec<String> {
    let prompt = match servers {
        [] => return Vec::new(),
        [_] => "Believe it, so that calls of these tools need no approval? [y]es, [N]o: ",
        _ => "Believe them, so that calls of these tools need no approval? [y]es, [N]o, or the servers' names: ",
    };
    let line = terminal::ask(prompt).await.unwrap_or_default();
    parse_answer(servers, &line)
}

/// Parses the answer: all servers, those that are named, or none.
fn parse_answer(servers: &[String], line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split([' ', ',', '\t', '\n', '\r']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [only] if matches!(only.to_ascii_lowercase().as_str(), "y" | "yes") => servers.to_vec(),
        words if words.iter().all(|word| servers.iter().any(|server| server == word)) => {
            words.iter().map(|word| (*word).to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

fn report(asked: &[String], trusted: &[String]) {
    let (believed, others): (Vec<String>, Vec<String>) = asked.iter().cloned().partition(|name| trusted.contains(name));
    for name in &believed {
        let name = display::plain(name);
        let undo = hint::command(&format!("servers trust-tools --remove {}", display::for_shell(&name)));
        render::print(&format!("`{name}` is trusted; to undo: {undo}\n"));
    }
    if !others.is_empty() {
        let them = if others.len() == 1 { "it" } else { "them" };
        render::print(&format!("not trusted; to trust {them} later: {}\n", trust_command(&others)));
    }
}

#[cfg(test)]
mod tests {
    use contract::tool::{Operation, Repeat, ToolId, ToolSpec};
    use serde_json::json;

    use super::{Declaration, parse_answer, untrusted_note};

    fn tool(name: &str, repeat: Repeat) -> ToolSpec {
        ToolSpec { repeat, ..ToolSpec::new(ToolId::parse(&format!("mcp:files:{name}")).unwrap(), "", json!({})) }
    }

    #[test]
    fn declared_tools_are_counted_and_named_within_a_bound() {
        let listing = ToolSpec { operation: Operation::ListResources, ..tool("resources_list", Repeat::Always) };
        let declared = Declaration::of("files", &[tool("read", Repeat::Always), tool("write", Repeat::Never), listing]);
        assert_eq!(
            declared.text(),
            "`files` declares that 1 of its 2 tools only read, or add something once and destroy nothing: read"
        );
        let none = Declaration::of("files", &[tool("write", Repeat::Never)]);
        assert_eq!(none.text(), "`files` declares none of its 1 tools read-only");
        let many: Vec<ToolSpec> = (0..300).map(|number| tool(&format!("t{number:03}"), Repeat::Always)).collect();
        let text = Declaration::of("files", &many).text();
        assert!(text.ends_with("t018, t019 and 280 more"), "{text}");
    }

    #[test]
    fn only_a_plain_yes_or_the_names_of_servers_count() {
        let servers = ["a".to_owned(), "b".to_owned()];
        assert_eq!(parse_answer(&servers, "YES\n"), ["a", "b"]);
        assert_eq!(parse_answer(&servers, "b\n"), ["b"]);
        assert_eq!(parse_answer(&servers, "b, a\n"), ["b", "a"]);
        for line in ["", "\n", "n\n", "no", "yes please", "a c", "all"] {
            assert!(parse_answer(&servers, line).is_empty(), "{line:?}");
        }
    }

    #[test]
    fn the_note_names_the_command_that_trusts() {
        let note = |names: &[&str]| untrusted_note(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(note(&[]), None);
        let one = note(&["files"]).unwrap();
        assert!(one.contains("`files` is not trusted") && one.contains("trust-tools files`"), "{one}");
        assert!(note(&["a", "b"]).unwrap().contains("`cellmate servers trust-tools a b`"));
    }
}
