//! `cellmate tools list`: lists the tools that a run would have.

use std::process::ExitCode;

use catalog::{EntryPoint, SurfaceOptions, SurfaceReport};
use clap::Args;
use client_config::{LoadedConfig, display};
use contract::text;
use contract::tool::{Source, ToolSpec};
use serde_json::{Value, json};

use super::names::short_name;
use super::run::{ListSource, Ready, RunArguments, RunOptions};
use crate::servers::problem_json;
use crate::shared_arguments::SurfaceArgument;
use crate::table::{Table, terminal_width};
use crate::{hint, render};

/// The longest description that is printed, however wide the terminal is.
const MAX_SHOWN_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// List only this server's tools.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    lists: ListSource,
    /// Report what this surface of `cellmate mcp` would show, instead of the configured one.
    #[arg(long, value_enum, value_name = "SURFACE")]
    surface: Option<SurfaceArgument>,
    #[command(flatten)]
    run: RunArguments,
    /// Print JSON, with schemas.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &ListArguments) -> Result<ExitCode, String> {
    let loaded = arguments.run.loaded()?;
    let wanted = |name: &String| arguments.server.as_ref().is_none_or(|server| server == name);
    let servers: Vec<_> =
        loaded.servers.iter().filter(|server| server.enabled && wanted(&server.name)).cloned().collect();
    if let (Some(name), true) = (&arguments.server, servers.is_empty()) {
        let list = hint::command("servers list");
        return Err(format!("no enabled server named `{}`; `{list}` lists all", display::plain(name)));
    }
    let wanted = arguments.surface.map(SurfaceArgument::into);
    let surface = SurfaceOptions { entry: EntryPoint::Mcp, wanted, ..SurfaceOptions::default() };
    let options = RunOptions { surface, ..RunOptions::default() };
    let ready = arguments.run.ready(&loaded, servers, arguments.lists, options).await?;
    ready.note_provider();
    let is_listed = |tool: &&ToolSpec| {
        arguments.server.as_ref().is_none_or(|name| tool.id.source() == Source::Mcp && tool.id.owner() == name)
    };
    let tools: Vec<&ToolSpec> = ready.tools().iter().filter(is_listed).collect();
    let shown = ready.surface();
    if arguments.json {
        let surface = match &shown {
            Ok(report) => report.to_json(),
            Err(error) => json!({"error": error.to_string()}),
        };
        let problems: Vec<Value> = loaded.problems.iter().map(problem_json).chain(ready.problems_json()).collect();
        let tools: Vec<Value> = tools.iter().map(|tool| as_json(&ready, tool)).collect();
        render::print_json(&json!({"tools": tools, "surface": surface, "problems": problems}));
    } else {
        if tools.is_empty() {
            note_no_tools(&loaded);
        } else {
            render::print(&table(&ready, &tools).render(terminal_width()));
        }
        match &shown {
            Ok(report) => render::note_on_terminal(&described(report)),
            Err(error) => render::note(&format!("problem: {error}")),
        }
        loaded.problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
        ready.report();
    }
    Ok(ready.exit_code())
}

/// Says what `cellmate mcp` shows, and what the other way would take.
fn described(report: &SurfaceReport) -> String {
    let SurfaceReport { visible_tools, visible_bytes, direct_bytes, code_bytes, tools, .. } = report;
    let what = match report.surface {
        "code" => "code mode",
        "direct" => "these tools directly",
        "none" => "no tools",
        _ => "Tool Search",
    };
    let other = match report.surface {
        "direct" => format!("code mode would take {code_bytes}"),
        _ => format!("all {tools} tools directly would take {direct_bytes}"),
    };
    format!("`cellmate mcp` shows {what}: {visible_tools} definitions of {visible_bytes} bytes; {other}")
}

/// Says why there are no tools, and what to do about it.
pub(super) fn note_no_tools(loaded: &LoadedConfig) {
    render::note(&if loaded.servers.iter().any(|server| server.enabled) {
        let test = hint::command("servers test");
        format!("no tools: the servers offer none, or the policy allows none; `{test}` shows what they offer")
    } else {
        let add = hint::command("servers add NAME");
        format!("no tools: no server is enabled; add one with `{add} -- COMMAND`")
    });
}

/// Returns the tools in groups by server.
fn table(ready: &Ready, tools: &[&ToolSpec]) -> Table<3> {
    let mut table = Table::new(["TOOL", "ASKS", "DESCRIPTION"]).with_whole(&[0]);
    let mut last_owner = None;
    for tool in tools {
        if last_owner.is_some_and(|owner| owner != tool.id.owner()) {
            table.add_gap();
        }
        last_owner = Some(tool.id.owner());
        let asks = if ready.asks_about(&tool.id) { "yes" } else { "no" };
        table.add([short_name(&tool.id), asks.to_owned(), text::line(first_line(tool), MAX_SHOWN_CHARS)]);
    }
    table
}

fn first_line(tool: &ToolSpec) -> &str {
    tool.description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

fn as_json(ready: &Ready, tool: &ToolSpec) -> Value {
    json!({
        "id": tool.id.as_str(),
        "label": tool.label,
        "description": tool.description,
        "asks": ready.asks_about(&tool.id),
        "parameters": tool.parameters,
        "output": tool.output,
    })
}
