//! `cellmate servers import`: copies servers from another client's configuration into ours.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use client_config::{
    Change, Client, ImportFile, ImportOutcome, ImportedServers, Places, display, trust_note, write_change,
};
use serde_json::{Value, json};

use super::change::{ChangeArguments, NOT_CONFIRMED, as_json, confirm, undo};
use super::declared::{DeclaredTrust, TrustChoice, review_added, untrusted_note};
use crate::render;
use crate::shared_arguments::{ConfigArguments, ScopeArgument};
use crate::style::{Stream, paint_diff};
use crate::table::Table;

#[derive(Debug, Args)]
pub(super) struct ImportArguments {
    /// Client, such as `claude-code`, or file to import from; without it, the clients that have servers are listed.
    #[arg(value_name = "CLIENT_OR_FILE")]
    from: Option<String>,
    /// Import only these servers.
    #[arg(value_name = "NAME", requires = "from")]
    names: Vec<String>,
    /// Configuration to change: the user's, or this folder's `.cellmate.json5`.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    /// Write the changes without asking.
    #[arg(short = 'y', long)]
    yes: bool,
    #[command(flatten)]
    trust: DeclaredTrust,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) async fn run(arguments: &ImportArguments) -> ExitCode {
    let places = arguments.config.places();
    let done = match &arguments.from {
        Some(from) => match import(from, arguments, &places) {
            Ok((code, added)) => review(arguments, &places, &added).await.map(|()| code),
            Err(message) => Err(message),
        },
        None => Ok(list(arguments, &places)),
    };
    done.unwrap_or_else(|message| render::fatal(&message))
}

/// Asks whether to trust what the imported servers declare about their tools.
async fn review(arguments: &ImportArguments, places: &Places, added: &[String]) -> Result<(), String> {
    if arguments.change.json || arguments.yes || added.is_empty() {
        return Ok(());
    }
    review_added(places, added).await
}

/// Lists the files of clients that have servers.
fn list(arguments: &ImportArguments, places: &Places) -> ExitCode {
    let files = Client::ALL.into_iter().flat_map(|client| ImportFile::of_client(client, places));
    let counted = files.filter_map(|file| Some((file.servers(places)?, file))).filter(|(count, _)| *count > 0);
    let found: Vec<(usize, ImportFile)> = counted.collect();
    let name = |file: &ImportFile| file.client.map(Client::name).unwrap_or_default();
    if arguments.change.json {
        let one =
            |(count, file): &(usize, ImportFile)| json!({"client": name(file), "file": file.file, "servers": count});
        render::print_json(&json!({"sources": found.iter().map(one).collect::<Vec<_>>()}));
    } else if found.is_empty() {
        render::print("no other client has MCP servers here\n");
    } else {
        let mut table = Table::new(["CLIENT", "SERVERS", "FILE"]);
        for (count, file) in &found {
            table.add([name(file).to_owned(), count.to_string(), places.shown(&file.file)]);
        }
        render::print_table(&table);
        render::note("run `cellmate servers import CLIENT` to copy a client's servers");
    }
    ExitCode::SUCCESS
}

/// Imports the servers. Returns those that were added and can be trusted in what they declare.
fn import(from: &str, arguments: &ImportArguments, places: &Places) -> Result<(ExitCode, Vec<String>), String> {
    let ours = places.file_to_edit(arguments.scope.into());
    let ours = ours.ok_or("cannot find a folder for configuration; set HOME, or pass --config")?;
    let mut imported: Vec<(ImportFile, ImportedServers)> = Vec::new();
    for file in sources(from, places)? {
        // Files of one client build on each other: the second adds to what the first has changed.
        let change = match imported.last() {
            Some((_, last)) => last.ours.again(),
            None => Change::open(&ours).map_err(|error| error.to_string())?,
        };
        let copied = file.copy_to(change, &arguments.names, places).map_err(|error| error.to_string())?;
        imported.push((file, copied));
    }
    let unknown = |name: &&String| !imported.iter().any(|(_, one)| one.servers.iter().any(|(there, _)| there == *name));
    if let Some(name) = arguments.names.iter().find(unknown) {
        return Err(format!("`{}` has no server named `{}`", display::plain(from), display::plain(name)));
    }
    let outcomes: Vec<(String, ImportOutcome)> =
        imported.iter().flat_map(|(_, one)| one.servers.iter().cloned()).collect();
    let Some((_, ImportedServers { ours: change, .. })) = imported.last_mut() else {
        return Err(format!("`{}` has no configuration here", display::plain(from)));
    };
    // A project's file cannot mark a server as trusted.
    let is_users = arguments.scope == ScopeArgument::User;
    let added: Vec<String> = names(&outcomes).filter(|_| is_users).map(str::to_owned).collect();
    if arguments.trust.choice() == TrustChoice::Trust {
        for name in &added {
            change.set_in_server(name, "trusted", &json!(true)).map_err(|error| error.to_string())?;
        }
    }
    let mut notes: Vec<String> = outcomes.iter().flat_map(|(name, outcome)| remarks(name, outcome)).collect();
    notes.extend(trust_note(&ours, places));
    let added = if arguments.trust.choice() == TrustChoice::Ask { added } else { Vec::new() };
    if arguments.change.json || arguments.yes {
        notes.extend(untrusted_note(&added));
    }
    let (code, is_written) = carry_out(change, &outcomes, &notes, arguments, places)?;
    Ok((code, if is_written { added } else { Vec::new() }))
}

/// Returns the files that the argument means: those of a client, or one file.
fn sources(from: &str, places: &Places) -> Result<Vec<ImportFile>, String> {
    if let Some(client) = Client::parse(from) {
        let files = ImportFile::of_client(client, places);
        if files.is_empty() {
            let expected = client.files(client_config::Scope::User, places);
            let expected = expected.first().map(|file| format!(" (`{}`)", display::path(file))).unwrap_or_default();
            return Err(format!("{} has no configuration here{expected}", client.name()));
        }
        return Ok(files);
    }
    if !from.contains(['/', '.']) && !places.folder().join(from).exists() {
        let known = Client::ALL.map(Client::name).join(", ");
        return Err(format!("`{}` is neither a file nor a client; clients are {known}", display::plain(from)));
    }
    Ok(vec![ImportFile::named(Path::new(from), places)])
}

fn remarks(name: &str, outcome: &ImportOutcome) -> Vec<String> {
    let name = display::plain(name);
    match outcome {
        ImportOutcome::Added { remarks } => remarks.iter().map(|remark| format!("`{name}`: {remark}")).collect(),
        ImportOutcome::Same => vec![format!("`{name}` is already there")],
        ImportOutcome::Conflict => vec![format!(
            "`{name}` was not imported: your configuration has a different server with that name; rename one"
        )],
        ImportOutcome::Unusable(why) => vec![format!("`{name}` was not imported: {why}")],
    }
}

/// Shows the change, asks whether to write it, and writes it. Returns whether it was written.
fn carry_out(
    change: &Change,
    outcomes: &[(String, ImportOutcome)],
    notes: &[String],
    arguments: &ImportArguments,
    places: &Places,
) -> Result<(ExitCode, bool), String> {
    let as_json = arguments.change.json;
    if !as_json {
        render::print_safe(&paint_diff(&change.diff(), Stream::Out));
        notes.iter().for_each(|note| render::note(&format!("note: {note}")));
    }
    let confirmed = || if as_json { None } else { confirm() }.ok_or(NOT_CONFIRMED);
    let wanted = !change.is_empty() && !arguments.change.dry_run && (arguments.yes || confirmed()?);
    let written = match wanted {
        true => match write_change(change, places) {
            Ok(written) => Some(written),
            Err(error) => return Ok((render::failed(&error.to_string()), false)),
        },
        false => None,
    };
    if as_json {
        render::print_json(&report(change, written.as_ref(), outcomes, notes));
    } else if change.is_empty() {
        render::print("nothing to import\n");
    } else if let Some(written) = &written {
        let added: Vec<String> = names(outcomes).map(|name| display::for_shell(&display::plain(name))).collect();
        let undo = contract::text::line(&undo(change, written), usize::MAX);
        render::print(&format!("written; to undo: {undo}\nto try them: cellmate servers test {}\n", added.join(" ")));
    } else {
        render::print("nothing was written\n");
    }
    Ok((ExitCode::SUCCESS, written.is_some()))
}

fn names(outcomes: &[(String, ImportOutcome)]) -> impl Iterator<Item = &str> {
    let added = outcomes.iter().filter(|(_, outcome)| matches!(outcome, ImportOutcome::Added { .. }));
    added.map(|(name, _)| name.as_str())
}

fn report(
    change: &Change,
    written: Option<&client_config::WrittenFile>,
    outcomes: &[(String, ImportOutcome)],
    notes: &[String],
) -> Value {
    let mut report = as_json(change, written, notes);
    let of = |wanted: fn(&ImportOutcome) -> bool| {
        outcomes.iter().filter(|(_, outcome)| wanted(outcome)).map(|(name, _)| name).collect::<Vec<_>>()
    };
    if let Some(fields) = report.as_object_mut() {
        fields.insert("added".to_owned(), json!(names(outcomes).collect::<Vec<_>>()));
        fields.insert("same".to_owned(), json!(of(|outcome| matches!(outcome, ImportOutcome::Same))));
        fields.insert("conflicts".to_owned(), json!(of(|outcome| matches!(outcome, ImportOutcome::Conflict))));
        fields.insert("unusable".to_owned(), json!(of(|outcome| matches!(outcome, ImportOutcome::Unusable(_)))));
    }
    report
}
