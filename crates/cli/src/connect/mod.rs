//! `cellmate connect CLIENT`: adds `cellmate mcp` to the client's configuration, and prints how to undo it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use client_config::{
    Change, Client, EditError, Places, Scope, TakenOver, WriteError, take_over, trust_note, write_change,
};
use contract::text;
use serde_json::json;
use telemetry::LogIgnored;

use crate::render;
use crate::servers::{DeclaredTrust, TrustChoice, change_json, review_added, undo, untrusted_note};
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

/// Our name in a client's configuration.
const NAME: &str = "cellmate";

/// Clients whose configuration can be written; that of the others is only read.
const CONNECTED: [Client; 9] = [
    Client::ClaudeCode,
    Client::ClaudeDesktop,
    Client::Codex,
    Client::Cursor,
    Client::VsCode,
    Client::OpenCode,
    Client::Windsurf,
    Client::Gemini,
    Client::Zed,
];

#[derive(Debug, Args)]
pub(crate) struct ConnectArguments {
    /// Client to connect.
    #[arg(value_parser = PossibleValuesParser::new(CONNECTED.map(Client::name)))]
    client: String,
    /// Configuration to change: the user's, or this project's.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    /// Move the client's other MCP servers into cellmate's configuration.
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    trust: DeclaredTrust,
    /// Show the changes without writing them.
    #[arg(long)]
    dry_run: bool,
    /// Write the changes without asking.
    #[arg(short = 'y', long)]
    yes: bool,
    /// Print the changes as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArguments,
}

#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

pub(crate) async fn run(arguments: &ConnectArguments) -> ExitCode {
    let done = match connect(arguments) {
        Ok((code, moved)) => review_moved(arguments, &moved).await.map(|()| code),
        Err(error) => Err(error),
    };
    match done {
        Ok(code) => code,
        Err(error @ ConnectError::Write(_)) => render::failed(&error.to_string()),
        Err(error) => render::fatal(&error.to_string()),
    }
}

/// Connects the client. Returns the servers that were moved and can be trusted in what they declare.
fn connect(arguments: &ConnectArguments) -> Result<(ExitCode, Vec<String>), ConnectError> {
    let places = arguments.config.places();
    let usage = |message: &str| ConnectError::Usage(message.to_owned());
    if !arguments.take_over && arguments.trust.choice() != TrustChoice::Ask {
        return Err(usage("--trusted and --no-trusted are about servers that move to cellmate; pass --take-over, too"));
    }
    let client = Client::parse(&arguments.client).ok_or_else(|| usage("no such client"))?;
    let mut theirs = Change::open(&client_file(client, arguments.scope.into(), &places)?)?;
    let mut notes = Vec::new();
    let mut taken = if arguments.take_over {
        let file = places.file_to_edit(arguments.scope.into());
        let file = file.ok_or_else(|| usage("cannot find a folder for configuration; set HOME"))?;
        notes.extend(trust_note(&file, &places));
        Some(take_over(client, NAME, places.folder(), &mut theirs, Change::open(&file)?)?)
    } else {
        None
    };
    if let (Some(taken), TrustChoice::Trust) = (&mut taken, arguments.trust.choice()) {
        taken.trust()?;
    }
    let (command, args) = our_command(&places)?;
    let path: Vec<&str> = client.container().iter().copied().chain([NAME]).collect();
    theirs.set(&path, &client.entry(&command, &args))?;
    // Our file first: if the second write fails, no server is lost.
    let mut changes: Vec<&Change> = taken.iter().map(|taken| &taken.ours).collect();
    changes.push(&theirs);
    changes.retain(|change| !change.is_empty());
    notes.splice(0..0, taken.as_ref().map(TakenOver::notes).unwrap_or_default());
    let moved = taken.as_ref().map(|taken| taken.moved().to_vec()).unwrap_or_default();
    // A project's file cannot mark a server as trusted.
    let is_asked = arguments.trust.choice() == TrustChoice::Ask && arguments.scope == ScopeArgument::User;
    let moved = if is_asked { moved } else { Vec::new() };
    if arguments.json || arguments.yes {
        notes.extend(untrusted_note(&moved));
    }
    let (code, is_written) = carry_out(client, &changes, &places, arguments, &notes)?;
    Ok((code, if is_written { moved } else { Vec::new() }))
}

/// Asks whether to trust what the moved servers declare about their tools.
async fn review_moved(arguments: &ConnectArguments, moved: &[String]) -> Result<(), ConnectError> {
    if arguments.json || arguments.yes || moved.is_empty() {
        return Ok(());
    }
    review_added(&arguments.config.places(), moved).await.map_err(ConnectError::Usage)
}

/// Returns the client's existing configuration file, or else the one that the client would create.
fn client_file(client: Client, scope: Scope, places: &Places) -> Result<PathBuf, ConnectError> {
    let files = client.files(scope, places);
    let existing = files.iter().find(|file| file.exists());
    existing.or(files.first()).cloned().ok_or_else(|| {
        ConnectError::Usage(match scope {
            Scope::Project => format!("{} has no project configuration; use --scope user", client.name()),
            Scope::User => "cannot find the home folder; set HOME".to_owned(),
        })
    })
}

/// Returns the command that starts this program from any folder.
fn our_command(places: &Places) -> Result<(String, Vec<String>), ConnectError> {
    let program = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    let program = program.ok_or_else(|| ConnectError::Usage("cannot find the path of this program".to_owned()))?;
    let mut args = vec!["mcp".to_owned()];
    // As arguments, because the client may not pass on the environment variable that named them.
    for file in places.named_files() {
        args.extend(["--config".to_owned(), file.display().to_string()]);
    }
    Ok((program, args))
}

/// Shows the changes and writes them. Returns whether something was written.
fn carry_out(
    client: Client,
    changes: &[&Change],
    places: &Places,
    arguments: &ConnectArguments,
    notes: &[String],
) -> Result<(ExitCode, bool), ConnectError> {
    if !arguments.json {
        changes.iter().for_each(|change| render::print(&change.diff()));
    }
    let confirmed = changes.is_empty() || arguments.dry_run || arguments.yes || confirm(arguments)?;
    let mut written = Vec::new();
    if confirmed && !arguments.dry_run {
        for change in changes {
            written.push(write_change(change, places)?);
        }
    }
    if arguments.json {
        let done = changes.iter().enumerate().map(|(at, change)| change_json(change, written.get(at), &[]));
        let report = json!({"client": client.name(), "changes": done.collect::<Vec<_>>(), "notes": notes, "next": client.next_step()});
        render::print_json(&report);
        return Ok((ExitCode::SUCCESS, !written.is_empty()));
    }
    notes.iter().for_each(|note| render::note(&format!("note: {note}")));
    if changes.is_empty() {
        render::print(&format!("{} is already connected\n", client.name()));
    } else if written.is_empty() {
        render::print("nothing was written\n");
    } else {
        render::print(&format!("connected; {}\nto undo:\n", client.next_step()));
        changes.iter().zip(&written).for_each(|(change, written)| {
            render::print(&format!("  {}\n", text::line(&undo(change, written), usize::MAX)))
        });
    }
    Ok((ExitCode::SUCCESS, !written.is_empty()))
}

/// Asks on the terminal whether to write the changes.
fn confirm(arguments: &ConnectArguments) -> Result<bool, ConnectError> {
    if arguments.json || !std::io::stdin().is_terminal() {
        let message = "nothing was written: confirming needs a terminal; pass --yes to write the changes, or --dry-run \
                       to only show them";
        return Err(ConnectError::Usage(message.to_owned()));
    }
    render::print("Write these changes? [y/N] ");
    std::io::stdout().flush().log_expected("print a question");
    let mut answer = String::new();
    let is_read = std::io::stdin().read_line(&mut answer).is_ok();
    Ok(is_read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
