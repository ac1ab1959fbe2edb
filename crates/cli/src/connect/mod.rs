//! `cellmate connect CLIENT`: the client's own configuration starts `cellmate mcp`, and can be put back.

mod take_over;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use contract::text;
use serde_json::json;

use crate::config::clients::{Client, Scope};
use crate::config::edit::{Change, EditError, WriteError};
use crate::config::{ConfigArguments, Places, trust_note, write_change};
use crate::render;
use crate::servers::{change_json, undo};
use take_over::{TakenOver, take_over};

/// What it is called in a client's configuration.
const NAME: &str = "cellmate";

/// Clients that a configuration is written for; we only read the others'.
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
    #[arg(value_parser = PossibleValuesParser::new(CONNECTED.map(Client::name)))]
    client: String,
    /// For all of the user's work, or for this folder.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    /// Move the client's other MCP servers behind cellmate: into our configuration, out of the client's.
    #[arg(long)]
    take_over: bool,
    /// Show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short = 'y', long)]
    yes: bool,
    /// Say what was done as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeArgument {
    User,
    #[value(alias = "local")]
    Project,
}

#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("{0}")]
    Asked(String),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

pub(crate) fn run(arguments: &ConnectArguments) -> ExitCode {
    match connect(arguments) {
        Ok(code) => code,
        Err(error @ ConnectError::Write(_)) => render::failed(&error.to_string()),
        Err(error) => render::trouble(&error.to_string()),
    }
}

fn connect(arguments: &ConnectArguments) -> Result<ExitCode, ConnectError> {
    let places = arguments.config.places();
    let asked = |message: &str| ConnectError::Asked(message.to_owned());
    let client = Client::parse(&arguments.client).ok_or_else(|| asked("no such client"))?;
    let mut theirs = Change::open(&client_file(client, arguments.scope, &places)?)?;
    let mut notes = Vec::new();
    let taken = if arguments.take_over {
        let file = places.file_to_edit(arguments.scope == ScopeArgument::Project);
        let file = file.ok_or_else(|| asked("there is no home folder to keep configuration in; set HOME"))?;
        let folder = places.folder.display().to_string();
        notes.extend(trust_note(&file, &places));
        Some(take_over(client, &folder, &mut theirs, Change::open(&file)?)?)
    } else {
        None
    };
    let (command, args) = our_command(&places)?;
    let path: Vec<&str> = client.container().iter().copied().chain([NAME]).collect();
    theirs.set(&path, &client.entry(&command, &args))?;
    // Ours first: should the second fail, every server is still somewhere.
    let mut changes: Vec<&Change> = taken.iter().map(|taken| &taken.ours).collect();
    changes.push(&theirs);
    changes.retain(|change| !change.is_empty());
    notes.splice(0..0, taken.as_ref().map(TakenOver::notes).unwrap_or_default());
    carry_out(client, &changes, &places, arguments, &notes)
}

/// The one that is there, or else the one that the client would make.
fn client_file(client: Client, scope: ScopeArgument, places: &Places) -> Result<PathBuf, ConnectError> {
    let scope = match scope {
        ScopeArgument::User => Scope::User,
        ScopeArgument::Project => Scope::Project,
    };
    let files = client.files(scope, places);
    let existing = files.iter().find(|file| file.exists());
    existing.or(files.first()).cloned().ok_or_else(|| {
        ConnectError::Asked(match scope {
            Scope::Project => format!("{} has no configuration for one folder; use --scope user", client.name()),
            Scope::User => "there is no home folder; set HOME".to_owned(),
        })
    })
}

/// This very program, wherever the client is started from.
fn our_command(places: &Places) -> Result<(String, Vec<String>), ConnectError> {
    let program = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    let program = program.ok_or_else(|| ConnectError::Asked("cannot tell where this program is".to_owned()))?;
    let mut args = vec!["mcp".to_owned()];
    // A variable that we were given is one that the client may not hand on.
    for file in places.named_files() {
        args.extend(["--config".to_owned(), file.display().to_string()]);
    }
    Ok((program, args))
}

fn carry_out(
    client: Client,
    changes: &[&Change],
    places: &Places,
    arguments: &ConnectArguments,
    notes: &[String],
) -> Result<ExitCode, ConnectError> {
    if !arguments.json {
        changes.iter().for_each(|change| render::say(&change.diff()));
    }
    let goes_on = changes.is_empty() || arguments.dry_run || arguments.yes || agreed(arguments)?;
    let mut written = Vec::new();
    if goes_on && !arguments.dry_run {
        for change in changes {
            written.push(write_change(change, places)?);
        }
    }
    if arguments.json {
        let done = changes.iter().enumerate().map(|(at, change)| change_json(change, written.get(at), &[]));
        let report = json!({"client": client.name(), "changes": done.collect::<Vec<_>>(), "notes": notes, "next": client.next_step()});
        render::say_json(&report);
        return Ok(ExitCode::SUCCESS);
    }
    notes.iter().for_each(|note| render::note(&format!("note: {note}")));
    if changes.is_empty() {
        render::say(&format!("{} is connected already\n", client.name()));
    } else if written.is_empty() {
        render::say("nothing was written\n");
    } else {
        render::say(&format!("connected; {}\nto undo:\n", client.next_step()));
        changes.iter().zip(&written).for_each(|(change, written)| {
            render::say(&format!("  {}\n", text::line(&undo(change, written), usize::MAX)))
        });
    }
    Ok(ExitCode::SUCCESS)
}

fn agreed(arguments: &ConnectArguments) -> Result<bool, ConnectError> {
    if arguments.json || !std::io::stdin().is_terminal() {
        let message =
            "nothing was written: there is nobody to ask here; give --yes to write this, or --dry-run to only look";
        return Err(ConnectError::Asked(message.to_owned()));
    }
    render::say("Write this? [y/N] ");
    drop(std::io::stdout().flush());
    let mut answer = String::new();
    let heard = std::io::stdin().read_line(&mut answer).is_ok();
    Ok(heard && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
