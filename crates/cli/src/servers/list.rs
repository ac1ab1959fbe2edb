//! `cellmate servers list`.

use std::process::ExitCode;

use clap::Args;
use mcp::Transport;
use serde_json::{Value, json};

use super::standing::{ServerReport, standings};
use crate::config::{self, ConfigArguments, Loaded, Problem, shown};
use crate::render;
use crate::state::StoreArguments;

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    store: StoreArguments,
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &ListArguments) -> ExitCode {
    let places = arguments.config.places();
    let loaded = match config::load(&places) {
        Ok(loaded) => loaded,
        Err(error) => return render::trouble(&error.to_string()),
    };
    let stood = match standings(&loaded, &places, &arguments.store).await {
        Ok(stood) => stood,
        Err(error) => return render::trouble(&error.to_string()),
    };
    if arguments.json {
        render::say_json(&as_json(&loaded, &stood));
    } else {
        render::say(&table(&stood));
        stood.iter().for_each(remark);
        loaded.problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
    }
    ExitCode::SUCCESS
}

/// What is not well with a server, and what to type.
fn remark(stood: &ServerReport) {
    let name = shown::plain(&stood.entry.name);
    let next = stood.next().filter(|_| stood.verdict().is_trouble());
    let next = next.map(|next| format!("; run `{next}`")).unwrap_or_default();
    stood.remarks().iter().for_each(|remark| render::note(&format!("{name}: {remark}{next}")));
}

fn table(stood: &[ServerReport]) -> String {
    if stood.is_empty() {
        return "no servers; `cellmate servers add NAME -- COMMAND` adds one\n".to_owned();
    }
    let row = |stood: &ServerReport| {
        let server = &stood.entry;
        let origin = format!("{} ({})", server.origin, server.origin.source.as_str());
        [
            shown::plain(&server.name),
            stood.verdict().as_str().to_owned(),
            stood.tools(),
            server.transport.as_str().to_owned(),
            contract::text::line(&server.shown, usize::MAX),
            origin,
        ]
    };
    columns(&stood.iter().map(row).collect::<Vec<_>>())
}

/// Rows with their cells below each other.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn as_json(loaded: &Loaded, stood: &[ServerReport]) -> Value {
    json!({
        "servers": stood.iter().map(server_json).collect::<Vec<_>>(),
        "problems": loaded.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "files": loaded.files,
    })
}

pub(crate) fn server_json(stood: &ServerReport) -> Value {
    let server = &stood.entry;
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
    if let (Value::Object(all), Value::Object(standing)) = (&mut configured, stood.to_json()) {
        all.extend(standing);
    }
    configured
}

pub(crate) fn problem_json(problem: &Problem) -> Value {
    json!({"file": problem.file, "line": problem.line, "server": problem.server, "message": problem.message})
}
