//! `cellmate tools call`: makes one tool call with policy, approval and journal, as a cell's call is made.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client_config::{LoadedConfig, ServerEntry, display};
use executor::{CallEnd, Outcome, ProgressSink, UNKNOWN_OUTCOME, random_name};
use serde_json::{Map, Value, json};
use store::Store;

use super::run::{ListSource, RunArguments};
use super::{content, names};
use crate::approvals::UntrustedServers;
use crate::approver::{Approver, Decider, Recorder, Subject};
use crate::render;
use crate::state::{StateError, StoreArguments};

/// The id of the outer tool call, which a model would otherwise supply.
const TOOL_CALL: &str = "cellmate-tools-call";

/// How long a call may wait for an approval or an answer.
const HOLD: Duration = Duration::from_secs(600);

/// The longest input that is read from standard input.
const MAX_INPUT_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct CallArguments {
    /// Tool to call: `SERVER.TOOL`, `MCP.SERVER.TOOL`, `mcp:SERVER:TOOL`, or its own name if only one tool has it.
    tool: String,
    /// Arguments: `name=value` passes the value as text, `name:=value` as JSON.
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
    let input = input(arguments)?;
    // Only the server that has the tool is started.
    let server = owner(arguments, &loaded).await?;
    let session = format!("{TOOL_CALL}-{}", random_name().map_err(no_randomness)?);
    let ready = arguments.run.ready(&loaded, vec![server.clone()], ListSource::STARTED, &session).await?;
    if let Some(failure) = ready.results.iter().find_map(|result| result.server.as_ref().err()) {
        failure.stderr.iter().for_each(|line| render::note(&format!("      | {line}")));
        return Ok(render::failed(&format!("server `{}`: {}", display::plain(&server.name), failure.why)));
    }
    ready.note_provider();
    let id = ready.find(&arguments.tool, &arguments.run.places())?.id.clone();
    let store = arguments.opened(&loaded).await.map_err(|error| error.to_string())?;
    let executor = ready.executor();
    let untrusted = UntrustedServers::of(&loaded.servers);
    let calling = executor.call_directly_within(&store, TOOL_CALL, id.as_str(), input, ProgressSink::default(), HOLD);
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
    Ok(report(end, arguments.json))
}

/// Returns the server of the tool. If the name does not begin with one, the tool lists of all servers are searched.
async fn owner(arguments: &CallArguments, loaded: &LoadedConfig) -> Result<ServerEntry, String> {
    if let Some(server) = names::server_in(loaded, &arguments.tool)? {
        return Ok(server.clone());
    }
    let servers: Vec<ServerEntry> = loaded.servers.iter().filter(|server| server.enabled).cloned().collect();
    let ready = arguments.run.ready(loaded, servers, ListSource::REMEMBERED, "").await?;
    let id = &ready.find(&arguments.tool, &arguments.run.places())?.id;
    let server = loaded.servers.iter().find(|server| server.name == id.owner());
    server.cloned().ok_or_else(|| format!("no server named `{}`", display::plain(id.owner())))
}

impl CallArguments {
    async fn opened(&self, loaded: &LoadedConfig) -> Result<Store, StateError> {
        self.store.choose(&loaded.settings, &self.run.places())?.open().await
    }
}

fn no_randomness(error: getrandom::Error) -> String {
    format!("cannot read system randomness: {error}")
}

fn input(arguments: &CallArguments) -> Result<Value, String> {
    let Some(given) = &arguments.json_arguments else { return pairs(&arguments.pairs) };
    let text = if given == "-" { standard_input()? } else { given.clone() };
    match contract::json::read(&text) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(_) => Err("--args: write one JSON object".to_owned()),
        Err(error) => Err(format!("--args: {error}")),
    }
}

fn standard_input() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_INPUT_BYTES).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| format!("cannot read standard input: {error}"))
}

fn pairs(pairs: &[String]) -> Result<Value, String> {
    let mut input = Map::new();
    for pair in pairs {
        let wrong = || "write arguments as name=text or name:=json".to_owned();
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => {
                (name, contract::json::read(value).map_err(|error| format!("`{}`: {error}", display::plain(name)))?)
            }
            None => (name, Value::from(value)),
        };
        input.insert(name.to_owned(), value);
    }
    Ok(Value::Object(input))
}

fn report(end: CallEnd, as_json: bool) -> ExitCode {
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
    if as_json {
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
