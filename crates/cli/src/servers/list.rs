//! `cellmate servers list`.

use std::process::ExitCode;

use clap::Args;
use mcp::Transport;
use serde_json::{Value, json};

use crate::config::{self, ConfigArguments, Loaded, Problem, ServerEntry, shown};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ListArguments) -> ExitCode {
    let loaded = match config::load(&arguments.config.places()) {
        Ok(loaded) => loaded,
        Err(error) => return render::trouble(&error.to_string()),
    };
    if arguments.json {
        render::say(&format!("{}\n", as_json(&loaded)));
    } else {
        render::say(&table(&loaded));
        loaded.problems.iter().for_each(|problem| eprintln!("problem: {problem}"));
    }
    ExitCode::SUCCESS
}

fn table(loaded: &Loaded) -> String {
    if loaded.servers.is_empty() {
        return "no servers; `cellmate servers add NAME -- COMMAND` adds one\n".to_owned();
    }
    let row = |server: &ServerEntry| {
        let state = if server.enabled { "on" } else { "off" };
        let origin = format!("{} ({})", server.origin, server.origin.source.as_str());
        [
            shown::plain(&server.name),
            state.to_owned(),
            server.transport.as_str().to_owned(),
            server.shown.clone(),
            origin,
        ]
    };
    columns(&loaded.servers.iter().map(row).collect::<Vec<_>>())
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

fn as_json(loaded: &Loaded) -> Value {
    json!({
        "servers": loaded.servers.iter().map(server_json).collect::<Vec<_>>(),
        "problems": loaded.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "files": loaded.files,
    })
}

fn server_json(server: &ServerEntry) -> Value {
    let (env, headers): (Vec<&String>, Vec<&String>) = match &server.transport {
        Transport::Stdio { env, .. } => (env.keys().collect(), Vec::new()),
        Transport::Http { headers, .. } => (Vec::new(), headers.keys().collect()),
    };
    let milliseconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
    json!({
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
    })
}

pub(crate) fn problem_json(problem: &Problem) -> Value {
    json!({"file": problem.file, "line": problem.line, "server": problem.server, "message": problem.message})
}
