//! `cellmate servers list`: lists the configured servers and their state.

use std::process::ExitCode;

use clap::Args;
use client_config::{LoadedConfig, Places, Problem, ServerEntry, display};
use mcp::Transport;
use serde_json::{Value, json};

use super::report::{ServerReport, server_reports};
use crate::render;
use crate::shared_arguments::ConfigArguments;
use crate::state::StoreArguments;
use crate::table::Table;

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    store: StoreArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &ListArguments) -> ExitCode {
    let places = arguments.config.places();
    let loaded = match client_config::load(&places) {
        Ok(loaded) => loaded,
        Err(error) => return render::fatal(&error.to_string()),
    };
    let reports = match server_reports(&loaded, &places, &arguments.store).await {
        Ok(reports) => reports,
        Err(error) => return render::fatal(&error.to_string()),
    };
    if arguments.json {
        render::print_json(&as_json(&loaded, &reports));
    } else {
        if reports.is_empty() && loaded.problems.iter().all(|problem| problem.server.is_none()) {
            render::print("no servers; add one with `cellmate servers add NAME -- COMMAND`\n");
        } else {
            render::print_table(&table(&reports, &loaded.problems, &places));
        }
        reports.iter().for_each(remark);
        loaded.problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
    }
    ExitCode::SUCCESS
}

/// Prints what is wrong with a server, and the command that helps.
fn remark(report: &ServerReport) {
    let name = display::plain(&report.entry.name);
    let next = report.next().filter(|_| report.readiness().needs_attention());
    let next = next.map(|next| format!("; run `{next}`")).unwrap_or_default();
    report.remarks().iter().for_each(|remark| render::note(&format!("{name}: {remark}{next}")));
}

/// Returns a table of all servers; those whose entry cannot be used come last.
fn table(reports: &[ServerReport], problems: &[Problem], places: &Places) -> Table<6> {
    let mut table = Table::new(["NAME", "STATE", "TRUSTED", "TOOLS", "COMMAND OR URL", "FROM"]);
    for report in reports {
        let server = &report.entry;
        table.add([
            display::plain(&server.name),
            report.readiness().as_str().to_owned(),
            trusted(server).to_owned(),
            report.tools(),
            server.shown.clone(),
            from(server, places),
        ]);
    }
    let is_listed = |name: &str| reports.iter().any(|report| report.entry.name == name);
    let mut invalid: Vec<&str> = Vec::new();
    for problem in problems {
        let Some(name) = problem.server.as_deref().filter(|name| !is_listed(name) && !invalid.contains(name)) else {
            continue;
        };
        if invalid.is_empty() && !reports.is_empty() {
            table.add_gap();
        }
        invalid.push(name);
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        let from = format!("{}{line}", places.shown(&problem.file));
        let [none, tools, command] = ["-"; 3].map(str::to_owned);
        table.add([display::plain(name), "invalid".to_owned(), none, tools, command, from]);
    }
    table
}

/// Says whether the server is trusted to declare which of its tools only read.
fn trusted(server: &ServerEntry) -> &'static str {
    if server.trusted { "yes" } else { "no" }
}

fn from(server: &ServerEntry, places: &Places) -> String {
    let origin = &server.origin;
    format!("{}:{} ({})", places.shown(&origin.file), origin.line, origin.source.as_str())
}

fn as_json(loaded: &LoadedConfig, reports: &[ServerReport]) -> Value {
    json!({
        "servers": reports.iter().map(server_json).collect::<Vec<_>>(),
        "problems": loaded.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "files": loaded.files,
    })
}

pub(crate) fn server_json(report: &ServerReport) -> Value {
    let server = &report.entry;
    let (env, headers): (Vec<&String>, Vec<&String>) = match &server.transport {
        Transport::Stdio { env, .. } => (env.keys().collect(), Vec::new()),
        Transport::Http { headers, .. } => (Vec::new(), headers.keys().collect()),
    };
    let milliseconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
    let mut configured = json!({
        "name": server.name,
        "transport": server.transport.as_str(),
        "shown": server.shown,
        "enabled": server.enabled,
        "trusted": server.trusted,
        "onlyTools": server.only_tools,
        "withoutTools": server.without_tools,
        "startupTimeoutMs": milliseconds(server.startup),
        "callTimeoutMs": milliseconds(server.call),
        "env": env,
        "headers": headers,
        "origin": {
            "file": server.origin.file,
            "line": server.origin.line,
            "source": server.origin.source.as_str(),
        },
    });
    if let (Value::Object(all), Value::Object(state)) = (&mut configured, report.to_json()) {
        all.extend(state);
    }
    configured
}

pub(crate) fn problem_json(problem: &Problem) -> Value {
    json!({"file": problem.file, "line": problem.line, "server": problem.server, "message": problem.message})
}
