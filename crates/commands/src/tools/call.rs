//! `cellmate tools call`: makes one tool call with policy, approval and journal, as a cell's call is made.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client_config::{LoadedConfig, ServerEntry, display};
use contract::tool::Source;
use executor::{CallEnd, DirectRequest, Outcome, ProgressSink, StateSink, UNKNOWN_OUTCOME, random_name};
use serde_json::{Value, json};

use super::names::{self, NamedOwner};
use super::run::{ListSource, Ready, RunArguments, RunOptions};
use super::{content, input};
use crate::approvals::UntrustedServers;
use crate::approver::{Approver, Decider, Recorder, Subject};
use crate::call_progress;
use crate::render::{self, OutputFormat};
use crate::state::StoreArguments;

/// The id of the outer tool call, which a model would otherwise supply.
const TOOL_CALL: &str = "cellmate-tools-call";

/// How long a call may wait for an approval or an answer.
const HOLD: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(super) struct CallArguments {
    /// Tool to call: `SERVER.TOOL`, `MCP.SERVER.TOOL`, its id (`mcp:SERVER:TOOL`, `plugin:PLUGIN:TOOL`,
    /// `openclaw:core:TOOL`), or its own name if only one tool has it.
    tool: String,
    /// Arguments: `name=value` passes the value as text, `name:=value` as JSON; or all of them as one JSON object.
    #[arg(value_name = "NAME=VALUE")]
    pairs: Vec<String>,
    /// All arguments as one JSON object; `-` reads it from standard input.
    #[arg(long = "args", value_name = "JSON", conflicts_with = "pairs")]
    json_arguments: Option<String>,
    /// Approve the call if it needs approval.
    #[arg(long)]
    yes: bool,
    /// The store that the server uses: its standing approvals apply, and its journal records the call.
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    run: RunArguments,
    /// Print the whole result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &CallArguments) -> Result<ExitCode, String> {
    let loaded = arguments.run.loaded()?;
    let input = input::input(&arguments.pairs, arguments.json_arguments.as_deref())?;
    let session = format!("{TOOL_CALL}-{}", random_name().map_err(no_randomness)?);
    let places = arguments.run.places();
    let store_settings = arguments.store.choose(&loaded.settings, &places).map_err(|error| error.to_string())?;
    let state = Some(store_settings.state.folder().to_owned());
    let options = RunOptions { session: session.clone(), state, ..RunOptions::default() };
    let ready = prepare(arguments, &loaded, options).await?;
    let found = ready.find(&arguments.tool, &places);
    let failed = ready.results.iter().find_map(|result| Some((&result.entry, result.server.as_ref().err()?)));
    let tool = match (found, failed) {
        (Ok(tool), _) => tool,
        (Err(_), Some((server, failure))) => {
            render::note_stderr(&failure.stderr);
            return Ok(render::failed(&format!("server `{}`: {}", display::plain(&server.name), failure.why)));
        }
        (Err(message), None) => return Err(message),
    };
    ready.note_provider();
    let store = store_settings.open().await.map_err(|error| error.to_string())?;
    let format = OutputFormat::from_flag(arguments.json);
    call_progress::show(format);
    let executor = ready.executor().clone().with_progress_sink(|update| call_progress::on_update(&update));
    let untrusted = UntrustedServers::of(&loaded.servers);
    let request = DirectRequest::new(TOOL_CALL, tool.id.as_str(), input, ProgressSink::default());
    // With a receiver of states, the tool can ask questions while it works; the decider finds them in the store.
    let request = DirectRequest { states: StateSink::to(|_| {}), ..request };
    let calling = executor.call_directly_within(&store, request, HOLD);
    let approver = if arguments.yes { Approver::Flag } else { Approver::present() };
    let decider = Decider { recorder: Recorder::Store(&store), approver, command: "tools call", untrusted: &untrusted };
    let subject = Subject::Session(session);
    tokio::pin!(calling);
    let end = tokio::select! {
        biased;
        called = &mut calling => called.map_err(no_randomness)?.end,
        undecided = decider.decide_all(&subject) => {
            let undecided = undecided.map_err(|error| error.to_string())?;
            decider.deny(&undecided).await.map_err(|error| error.to_string())?;
            // The denial ends the call's run.
            calling.await.map_err(no_randomness)?;
            CallEnd::Settled(Outcome::Failed(undecided.why))
        }
    };
    ready.report_failures().await;
    // A call with wrong arguments is refused before anything is called.
    let end = match (end, input::json_hint(&arguments.pairs, &tool.parameters)) {
        (CallEnd::Settled(Outcome::Failed(message)), Some(hint)) => {
            CallEnd::Settled(Outcome::Failed(format!("{message}; {hint}")))
        }
        (end, _) => end,
    };
    Ok(report(end, format))
}

/// Prepares a run that has the tool. Of the servers, only the tool's own is started. If the name does not say whose tool
/// it is, the tool lists of all servers are searched first.
async fn prepare(arguments: &CallArguments, loaded: &LoadedConfig, options: RunOptions) -> Result<Ready, String> {
    let run = &arguments.run;
    let server = match names::named_owner(loaded, &arguments.tool, &run.places())? {
        NamedOwner::Server(server) => server,
        NamedOwner::Local => return run.ready(loaded, Vec::new(), ListSource::STARTED, options).await,
        NamedOwner::NoServer(message) => {
            let local = run.ready(loaded, Vec::new(), ListSource::STARTED, options).await?;
            return local.find(&arguments.tool, &run.places()).is_ok().then_some(local).ok_or(message);
        }
        NamedOwner::Any => {
            let servers: Vec<ServerEntry> = loaded.servers.iter().filter(|server| server.enabled).cloned().collect();
            let known = run.ready(loaded, servers, ListSource::REMEMBERED, options.clone()).await?;
            let id = &known.find(&arguments.tool, &run.places())?.id;
            let server = loaded.servers.iter().find(|server| id.source() == Source::Mcp && server.name == id.owner());
            match server {
                Some(server) => server,
                None => return Ok(known),
            }
        }
    };
    run.ready(loaded, vec![server.clone()], ListSource::STARTED, options).await
}

fn no_randomness(error: getrandom::Error) -> String {
    format!("cannot read system randomness: {error}")
}

fn report(end: CallEnd, format: OutputFormat) -> ExitCode {
    let outcome = match end {
        CallEnd::Settled(outcome) => outcome,
        CallEnd::Parked(_) => {
            Outcome::Failed(format!("no answer within {} minutes, so the call was cancelled", HOLD.as_secs() / 60))
        }
        CallEnd::Stopped(error) => Outcome::Failed(error.to_string()),
    };
    let (returned, message) = match outcome {
        Outcome::Returned(returned) => (Some(returned), None),
        Outcome::Failed(message) => (None, Some(message)),
        Outcome::Dropped(dropped) => (None, Some(dropped.message)),
        Outcome::Unknown => (None, Some(UNKNOWN_OUTCOME.to_owned())),
    };
    let result = returned.map(|returned| returned.to_cell_value());
    // A tool reports its own errors as results with `isError`; the command fails for those, too.
    let failed = result.as_ref().is_none_or(|result| result.get("isError") == Some(&Value::Bool(true)));
    if format == OutputFormat::Json {
        render::print_json(&json!({"ok": !failed, "result": result, "error": message}));
    } else if let (Some(result), false) = (&result, failed) {
        render::print(&content::readable(result));
    } else if let Some(result) = &result {
        note_failure(&content::readable(result));
    } else if let Some(message) = &message {
        render::note(&format!("cellmate: {message}"));
    }
    if failed { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

/// Prints the text of a failed call to standard error. Lines are marked, so that they cannot pass for messages of
/// cellmate.
fn note_failure(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    match lines.as_slice() {
        [] => render::note("cellmate: the tool failed without a message"),
        [line] => render::note(&format!("cellmate: the tool failed: {line}")),
        lines => {
            render::note("cellmate: the tool failed:");
            lines.iter().for_each(|line| render::note(&format!("  | {line}")));
        }
    }
}
