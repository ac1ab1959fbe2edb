//! `cellmate connect CLIENT`: adds `cellmate mcp` to the client's configuration, with the variables that it needs, or the
//! address of a gateway.

mod disconnect;
mod gateway;
mod program;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use client_config::{
    BadAddress, Change, Client, ConfigError, ConnectionRecord, Connections, DisconnectError, EditError,
    ForwardedVariables, Intent, Places, References, Scope, WriteError, other_servers, take_over, trust_note,
    write_change,
};
use serde_json::{Value, json};

use crate::render;
use crate::servers::{DeclaredTrust, NOT_CONFIRMED, TrustChoice, change_json, confirm, review_added, untrusted_note};
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

pub(crate) use disconnect::{DisconnectArguments, run as run_disconnect};

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
    /// Let the client ask this gateway for its models, instead of adding an MCP server [default: http://127.0.0.1:18789].
    #[arg(
        long, value_name = "URL", num_args = 0..=1, default_missing_value = gateway::DEFAULT_ADDRESS,
        conflicts_with = "take_over"
    )]
    gateway: Option<String>,
    /// Ask the gateway for this agent, instead of its default one.
    #[arg(long, value_name = "NAME", requires = "gateway")]
    agent: Option<String>,
    /// File with the token for the gateway; without it, the one that a gateway on this machine creates.
    #[arg(long, value_name = "FILE", requires = "gateway")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    trust: DeclaredTrust,
    #[command(flatten)]
    confirmation: ConfirmationArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

/// Whether changes of a client's configuration are written, and how they are shown.
#[derive(Debug, Args)]
struct ConfirmationArguments {
    /// Show the changes without writing them.
    #[arg(long)]
    dry_run: bool,
    /// Write the changes without asking.
    #[arg(short = 'y', long)]
    yes: bool,
    /// Print the changes as JSON.
    #[arg(long)]
    json: bool,
}

impl ConfirmationArguments {
    fn intent(&self) -> Intent {
        if self.dry_run { Intent::Show } else { Intent::Write }
    }
}

#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Disconnect(#[from] DisconnectError),
    #[error(transparent)]
    Address(#[from] BadAddress),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot record the change for `cellmate disconnect`, so nothing was written: {0}")]
    Record(std::io::Error),
}

pub(crate) async fn run(arguments: &ConnectArguments) -> ExitCode {
    if let Some(address) = &arguments.gateway {
        return exit_code(gateway::connect(address, arguments));
    }
    let done = match connect(arguments) {
        Ok(moved) => review_moved(arguments, &moved).await.map(|()| ExitCode::SUCCESS),
        Err(error) => Err(error),
    };
    exit_code(done)
}

fn exit_code(done: Result<ExitCode, ConnectError>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error @ (ConnectError::Write(_) | ConnectError::Record(_))) => render::failed(&error.to_string()),
        Err(error) => render::fatal(&error.to_string()),
    }
}

/// Connects the client. Returns the servers that were moved and can be trusted in what they declare.
fn connect(arguments: &ConnectArguments) -> Result<Vec<String>, ConnectError> {
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
    let forwarded = forwarded(client, &places, taken.as_ref().map(|taken| &taken.ours))?;
    let path: Vec<&str> = client.servers_key().iter().copied().chain([NAME]).collect();
    theirs.set(&path, &client.entry(&command, &args, &forwarded))?;
    let moved = taken.as_ref().map(|taken| taken.moved().to_vec()).unwrap_or_default();
    // A project's file cannot mark a server as trusted.
    let is_asked = arguments.trust.choice() == TrustChoice::Ask && arguments.scope == ScopeArgument::User;
    let names: Vec<String> = moved.iter().filter(|_| is_asked).map(|server| server.key().to_owned()).collect();
    let record = ConnectionRecord::before(client, NAME, &theirs, moved)?;
    if let Some(taken) = &taken {
        notes.splice(0..0, taken.notes(arguments.confirmation.intent()));
    } else {
        notes.extend(staying_note(client, other_servers(client, NAME, places.folder(), &theirs)?, arguments));
    }
    notes.extend(forwarded.notes);
    if arguments.confirmation.json || arguments.confirmation.yes {
        notes.extend(untrusted_note(&names));
    }
    // Our file first: if the second write fails, no server is lost.
    let mut changes: Vec<&Change> = taken.iter().map(|taken| &taken.ours).collect();
    changes.push(&theirs);
    changes.retain(|change| !change.is_empty());
    let undo = undo_command(client, arguments);
    let plan = Plan {
        client,
        changes: &changes,
        notes: &notes,
        nothing_to_do: "is already connected",
        done: format!("connected; {}\nto undo: {undo}\n", client.next_step()),
        report: json!({"undo": undo}),
    };
    let carried_out = plan.carry_out(&places, &arguments.confirmation, || {
        Connections::of(&places).write(record).map_err(ConnectError::Record)
    })?;
    Ok(if carried_out == CarriedOut::Yes { names } else { Vec::new() })
}

/// Asks whether to trust what the moved servers declare about their tools.
async fn review_moved(arguments: &ConnectArguments, moved: &[String]) -> Result<(), ConnectError> {
    if arguments.confirmation.json || arguments.confirmation.yes || moved.is_empty() {
        return Ok(());
    }
    review_added(&arguments.config.places(), moved).await.map_err(ConnectError::Usage)
}

/// Returns the variables that the client's entry passes on to cellmate. `pending` is our configuration with servers that
/// are not written yet.
fn forwarded(client: Client, places: &Places, pending: Option<&Change>) -> Result<ForwardedVariables, ConnectError> {
    let mut references = load_or_empty(places)?;
    if let Some(pending) = pending {
        references.extend(&pending.references()?);
    }
    Ok(ForwardedVariables::of(client, &references.variables, places, process::is_inheritable))
}

/// Returns the references of the configuration; none if a named file does not exist yet.
fn load_or_empty(places: &Places) -> Result<References, ConnectError> {
    match client_config::load(places) {
        Ok(loaded) => Ok(loaded.all_references()),
        Err(ConfigError::Missing(_)) => Ok(References::default()),
        Err(error) => Err(error.into()),
    }
}

/// Returns that the client's other servers stay where they are, if it has some.
fn staying_note(client: Client, others: usize, arguments: &ConnectArguments) -> Option<String> {
    let (servers, them) = match others {
        0 => return None,
        1 => ("its other MCP server, whose calls do".to_owned(), "it"),
        many => (format!("its {many} other MCP servers, whose calls do"), "them"),
    };
    let (client, scope) = (client.name(), scope_option(arguments));
    Some(format!(
        "{client} keeps {servers} not pass through cellmate; `cellmate connect {client}{scope} --take-over` moves {them} \
         to cellmate"
    ))
}

/// Returns the option that names the scope, if it is not the default.
fn scope_option(arguments: &ConnectArguments) -> &'static str {
    match Scope::from(arguments.scope) {
        Scope::User => "",
        Scope::Project => " --scope project",
    }
}

/// Returns the command that removes what this one adds.
fn undo_command(client: Client, arguments: &ConnectArguments) -> String {
    format!("cellmate disconnect {}{}", client.name(), scope_option(arguments))
}

/// Returns the client's existing configuration file, or else the one that the client would create.
fn client_file(client: Client, scope: Scope, places: &Places) -> Result<PathBuf, ConnectError> {
    existing_or_first(client.files(scope, places)).ok_or_else(|| match scope {
        Scope::Project => {
            ConnectError::Usage(format!("{} has no project configuration; use --scope user", client.name()))
        }
        Scope::User => no_home(),
    })
}

fn existing_or_first(files: Vec<PathBuf>) -> Option<PathBuf> {
    let existing = files.iter().find(|file| file.exists());
    existing.or(files.first()).cloned()
}

fn no_home() -> ConnectError {
    ConnectError::Usage("cannot find the home folder; set HOME".to_owned())
}

/// Returns an instruction for the user: how to make the client load the change.
fn restart(client: Client) -> String {
    format!("restart {} to load the change", client.name())
}

/// Returns the command that starts this program from any folder.
fn our_command(places: &Places) -> Result<(String, Vec<String>), ConnectError> {
    let program = program::path().and_then(|path| path.into_os_string().into_string().ok());
    let program = program.ok_or_else(|| ConnectError::Usage("cannot find the path of this program".to_owned()))?;
    let mut args = vec!["mcp".to_owned()];
    // As arguments, because the client may not pass on the environment variable that named them.
    for file in places.named_files() {
        args.extend(["--config".to_owned(), file.display().to_string()]);
    }
    Ok((program, args))
}

/// Changes of a client's configuration that are shown, confirmed and written.
struct Plan<'a> {
    client: Client,
    changes: &'a [&'a Change],
    /// Shown with the changes.
    notes: &'a [String],
    /// What is printed after the client's name if there are no changes.
    nothing_to_do: &'static str,
    /// What is printed after the changes were written.
    done: String,
    /// More fields of the JSON report.
    report: Value,
}

/// Whether the files are as planned now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CarriedOut {
    Yes,
    No,
}

impl Plan<'_> {
    /// Shows the changes and writes them, after `record` has succeeded, unless it is a dry run or the user declines.
    fn carry_out(
        &self,
        places: &Places,
        confirmation: &ConfirmationArguments,
        record: impl FnOnce() -> Result<(), ConnectError>,
    ) -> Result<CarriedOut, ConnectError> {
        if !confirmation.json {
            self.changes.iter().for_each(|change| render::print(&change.diff()));
        }
        let is_empty = self.changes.is_empty();
        let confirmed = is_empty || confirmation.dry_run || confirmation.yes || confirmed(confirmation)?;
        let mut written = Vec::new();
        if confirmed && !confirmation.dry_run && !is_empty {
            record()?;
            for change in self.changes {
                written.push(write_change(change, places)?);
            }
        }
        let carried_out = if confirmed && !confirmation.dry_run { CarriedOut::Yes } else { CarriedOut::No };
        if confirmation.json {
            let done = self.changes.iter().enumerate().map(|(at, change)| {
                let mut done = change_json(change, written.get(at), &[]);
                // A copy of the backup would also undo what the client wrote since.
                done.as_object_mut().map(|fields| fields.shift_remove("undo"));
                done
            });
            let mut report = json!({
                "client": self.client.name(), "changes": done.collect::<Vec<_>>(), "notes": self.notes,
                "next": self.client.next_step(),
            });
            if let (Value::Object(report), Value::Object(more)) = (&mut report, self.report.clone()) {
                report.extend(more);
            }
            render::print_json(&report);
            return Ok(carried_out);
        }
        self.notes.iter().for_each(|note| render::note(&format!("note: {note}")));
        if is_empty {
            render::print(&format!("{} {}\n", self.client.name(), self.nothing_to_do));
        } else if written.is_empty() {
            render::print("nothing was written\n");
        } else {
            render::print(&self.done);
        }
        Ok(carried_out)
    }
}

/// Asks on the terminal whether to write the changes.
fn confirmed(confirmation: &ConfirmationArguments) -> Result<bool, ConnectError> {
    let answer = if confirmation.json { None } else { confirm() };
    answer.ok_or_else(|| ConnectError::Usage(NOT_CONFIRMED.to_owned()))
}
