//! `cellmate tools list`: lists the tools that a run would have.

use std::process::ExitCode;

use clap::Args;
use client_config::display;
use contract::text;
use contract::tool::ToolSpec;
use serde_json::{Value, json};

use super::run::{RunArguments, report_failures};
use crate::render;
use crate::servers::problem_json;

/// The longest description that is printed.
const MAX_SHOWN_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// List only this server's tools.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    run: RunArguments,
    /// Print JSON, with schemas.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &ListArguments) -> Result<ExitCode, String> {
    let loaded = arguments.run.loaded()?;
    let wanted = |name: &String| arguments.server.as_ref().is_none_or(|server| server == name);
    let servers: Vec<_> = loaded.servers.iter().filter(|one| one.enabled && wanted(&one.name)).cloned().collect();
    if let (Some(name), true) = (&arguments.server, servers.is_empty()) {
        return Err(format!("no enabled server named `{}`; `cellmate servers list` lists all", display::plain(name)));
    }
    let ready = arguments.run.ready(&loaded, servers, "").await?;
    let tools = ready.tools();
    if arguments.json {
        let failures = ready.results.iter().filter_map(|result| Some((result, result.server.as_ref().err()?)));
        let failures = failures.map(|(result, failure)| json!({"server": result.entry.name, "message": failure.why}));
        let problems: Vec<Value> = loaded.problems.iter().map(problem_json).chain(failures).collect();
        let tools: Vec<Value> = tools.iter().map(as_json).collect();
        render::print_json(&json!({"tools": tools, "problems": problems}));
    } else {
        tools.iter().for_each(|tool| render::print(&readable(tool)));
        loaded.problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
        report_failures(&ready.results);
    }
    let all_started = ready.results.iter().all(|result| result.server.is_ok());
    Ok(if all_started { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn readable(tool: &ToolSpec) -> String {
    let first = tool.description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    format!("{}  {}\n", display::plain(tool.id.as_str()), text::line(first, MAX_SHOWN_CHARS))
}

fn as_json(tool: &ToolSpec) -> Value {
    json!({
        "id": tool.id.as_str(),
        "label": tool.label,
        "description": tool.description,
        "parameters": tool.parameters,
        "output": tool.output,
    })
}
