//! `cellmate servers trust-tools`: shows what servers declare about their tools, and trusts them in it.

use std::process::ExitCode;

use clap::Args;
use client_config::{LoadedConfig, Places, ServerEntry, display};
use serde_json::{Value, json};
use store::Approval;

use super::declared::{self, Declaration, TrustChoice, can_be_trusted, set_trusted};
use super::probe::ProbeFailure;
use super::release::approve_waiting;
use super::unknown_server;
use crate::approvals::terminal;
use crate::shared_arguments::ConfigArguments;
use crate::state::StoreArguments;
use crate::{hint, render};

#[derive(Debug, Args)]
pub(super) struct TrustToolsArguments {
    /// Servers to trust.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Stop trusting what they declare.
    #[arg(long)]
    remove: bool,
    /// Trust them without asking.
    #[arg(short = 'y', long, conflicts_with = "remove")]
    yes: bool,
    #[command(flatten)]
    config: ConfigArguments,
    /// The store with the calls that wait for approval.
    #[command(flatten)]
    store: StoreArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A server, what it declares, and whether it is trusted in that afterwards.
struct Reviewed {
    server: ServerEntry,
    /// What the server declares: `None` if it was not started for that; an error if it could not be started.
    declared: Option<Result<Declaration, ProbeFailure>>,
    trusted: bool,
}

pub(super) async fn run(arguments: &TrustToolsArguments) -> ExitCode {
    let places = arguments.config.places();
    let done = match arguments.remove {
        true => remove(arguments, &places),
        false => trust(arguments, &places).await,
    };
    match done {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

fn remove(arguments: &TrustToolsArguments, places: &Places) -> Result<ExitCode, String> {
    let loaded = client_config::load(places).map_err(|error| error.to_string())?;
    let servers = named(&loaded, &arguments.names, places)?;
    for server in &servers {
        let changed = set_trusted(server, places, TrustChoice::DoNotTrust)?;
        if !arguments.json {
            let status = if changed { "no longer trusted" } else { "was not trusted" };
            render::print(&format!("`{}`: {status}\n", display::plain(&server.name)));
        }
    }
    if arguments.json {
        let reviewed = servers.into_iter().map(|server| Reviewed { server, declared: None, trusted: false });
        print_json(&reviewed.collect::<Vec<_>>(), &[]);
    }
    Ok(ExitCode::SUCCESS)
}

async fn trust(arguments: &TrustToolsArguments, places: &Places) -> Result<ExitCode, String> {
    let loaded = client_config::load(places).map_err(|error| error.to_string())?;
    let servers = named(&loaded, &arguments.names, places)?;
    let declared = declared::declarations(servers.clone(), arguments.store.lists(places)).await;
    let mut reviewed: Vec<Reviewed> = Vec::new();
    for (server, declared) in servers.into_iter().zip(declared) {
        let trusted = server.trusted;
        reviewed.push(Reviewed { server, declared: Some(declared), trusted });
    }
    if !arguments.json {
        reviewed.iter().flat_map(readable).for_each(|line| render::note(&line));
    }
    let open: Vec<String> =
        reviewed.iter().filter(|review| is_open(review)).map(|review| review.server.name.clone()).collect();
    let is_asked = terminal::is_interactive() && !arguments.json;
    let chosen = match (arguments.yes, is_asked) {
        (true, _) => arguments.names.clone(),
        (false, true) => declared::ask(&open).await,
        (false, false) => Vec::new(),
    };
    for review in reviewed.iter_mut().filter(|review| chosen.contains(&review.server.name)) {
        set_trusted(&review.server, places, TrustChoice::Trust)?;
        review.trusted = true;
    }
    let trusted: Vec<(&ServerEntry, &Declaration)> = reviewed
        .iter()
        .filter(|review| review.trusted)
        .filter_map(|review| Some((&review.server, review.declared.as_ref()?.as_ref().ok()?)))
        .collect();
    let approved = approve_waiting(&trusted, &loaded, places, &arguments.store).await?;
    if arguments.json {
        print_json(&reviewed, &approved);
    } else {
        reviewed.iter().for_each(|review| render::print(&outcome(review)));
        for approval in &approved {
            let tool = display::plain(&approval.tool_id);
            render::print(&format!("approved  {}  {tool}  (it was waiting)\n", approval.approval_id));
        }
    }
    if !arguments.yes && !is_asked && !open.is_empty() {
        return Err("nothing was changed: confirming needs a terminal; pass --yes to trust what is declared".to_owned());
    }
    let has_failed = reviewed.iter().any(|review| matches!(review.declared, Some(Err(_))) && !review.trusted);
    Ok(if has_failed { ExitCode::from(render::FAILED) } else { ExitCode::SUCCESS })
}

/// Whether there is something to trust.
fn is_open(review: &Reviewed) -> bool {
    let declares = matches!(&review.declared, Some(Ok(declared)) if !declared.harmless.is_empty());
    declares && !review.trusted
}

fn readable(review: &Reviewed) -> Vec<String> {
    match &review.declared {
        Some(Ok(declared)) => vec![declared.text()],
        Some(Err(failure)) => {
            let lines = failure.stderr.iter().map(|line| format!("      | {line}"));
            let why = format!("`{}` cannot be started: {}", display::plain(&review.server.name), failure.why);
            lines.chain([why]).collect()
        }
        None => Vec::new(),
    }
}

fn outcome(review: &Reviewed) -> String {
    let name = display::plain(&review.server.name);
    match review.trusted {
        true => {
            let undo = hint::command(&format!("servers trust-tools --remove {}", display::for_shell(&name)));
            format!("`{name}` is trusted; to undo: {undo}\n")
        }
        false => format!("`{name}` is not trusted\n"),
    }
}

fn print_json(reviewed: &[Reviewed], approved: &[Approval]) {
    let review = |review: &Reviewed| {
        let mut value = json!({"server": review.server.name, "trusted": review.trusted});
        let more = match &review.declared {
            Some(Ok(declared)) => json!({"declaredReadOnly": declared.harmless, "tools": declared.tools}),
            Some(Err(failure)) => json!({"error": failure.why, "stderr": failure.stderr}),
            None => json!({}),
        };
        if let (Value::Object(fields), Value::Object(more)) = (&mut value, more) {
            fields.extend(more);
        }
        value
    };
    let servers: Vec<Value> = reviewed.iter().map(review).collect();
    render::print_json(&json!({"servers": servers, "approved": approved}));
}

/// Returns the servers of these names. Fails if one of them cannot be trusted.
fn named(loaded: &LoadedConfig, names: &[String], places: &Places) -> Result<Vec<ServerEntry>, String> {
    let find = |name: &String| {
        let shown = display::plain(name);
        let problem = loaded.problems.iter().find(|problem| problem.server.as_ref() == Some(name));
        match (loaded.servers.iter().find(|server| server.name == *name), problem) {
            (Some(server), _) if can_be_trusted(server) => Ok(server.clone()),
            (Some(server), _) => Err(format!(
                "`{shown}` comes from `{}`; only servers in your own configuration can be trusted, so add it there with \
                 `cellmate servers add`",
                server.origin
            )),
            (None, Some(problem)) => Err(problem.to_string()),
            (None, None) => Err(unknown_server(name, loaded, places)),
        }
    };
    names.iter().map(find).collect()
}
