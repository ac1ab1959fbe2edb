//! `cellmate servers get`: shows one server: its entry without secrets, its place, its state and its tools.

use std::process::ExitCode;

use clap::Args;
use client_config::{ConfigFile, Places, ServerEntry, display};
use executor::ToolSource;
use mcp::{Upstream, UpstreamOptions};
use serde_json::{Value, json};

use super::list::{problem_json, server_json};
use super::{FilteredTools, ServerReport, server_reports, unknown_server};
use crate::render;
use crate::shared_arguments::ConfigArguments;
use crate::state::StoreArguments;

#[derive(Debug, Args)]
pub(super) struct GetArguments {
    /// Server to show.
    name: String,
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    store: StoreArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &GetArguments) -> ExitCode {
    match get(arguments).await {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

async fn get(arguments: &GetArguments) -> Result<ExitCode, String> {
    let places = arguments.config.places();
    let mut loaded = client_config::load(&places).map_err(|error| error.to_string())?;
    let unknown = unknown_server(&arguments.name, &loaded, &places);
    loaded.servers.retain(|server| server.name == arguments.name);
    loaded.problems.retain(|problem| problem.server.as_deref() == Some(arguments.name.as_str()));
    let reports = server_reports(&loaded, &places, &arguments.store).await.map_err(|error| error.to_string())?;
    let Some(report) = reports.first() else {
        if loaded.problems.is_empty() {
            return Err(unknown);
        }
        // The entry exists and cannot be used.
        if arguments.json {
            let problems: Vec<Value> = loaded.problems.iter().map(problem_json).collect();
            render::print_json(&json!({"server": null, "problems": problems}));
        } else {
            loaded.problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
        }
        return Ok(ExitCode::from(render::FAILED));
    };
    let entry = shown_entry(&report.entry, &places);
    let tools = remembered_tools(&report.entry, arguments, &places);
    if arguments.json {
        let mut server = server_json(report);
        if let Some(fields) = server.as_object_mut() {
            fields.insert("entry".to_owned(), entry.unwrap_or_default());
            fields.insert("toolNames".to_owned(), json!(tools));
        }
        let problems: Vec<Value> = loaded.problems.iter().map(problem_json).collect();
        render::print_json(&json!({"server": server, "problems": problems}));
    } else {
        render::print(&readable(report, entry.as_ref(), &tools));
        loaded.problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the entry as it is written in its file, with secrets hidden.
fn shown_entry(server: &ServerEntry, places: &Places) -> Option<Value> {
    let file = ConfigFile::open(&server.origin.file, server.origin.source).ok()??;
    file.shown_server(&server.name, places)
}

/// Returns the names of the tools of the server's last list that are offered.
fn remembered_tools(server: &ServerEntry, arguments: &GetArguments, places: &Places) -> Vec<String> {
    let options = UpstreamOptions { cache_dir: arguments.store.lists(places), ..UpstreamOptions::DEFAULT };
    let offered = FilteredTools::new(Upstream::new(server.spec(), options), server).tools();
    offered.iter().map(|tool| tool.id.name().to_owned()).collect()
}

fn readable(report: &ServerReport, entry: Option<&Value>, tools: &[String]) -> String {
    let server = &report.entry;
    let mut text = format!("{}\n", display::plain(&server.name));
    let mut row = |label: &str, value: &str| text += &format!("  {label:<8}{value}\n");
    row("state", report.readiness().as_str());
    row("file", &format!("{} ({})", server.origin, server.origin.source.as_str()));
    let trusted = match server.trusted {
        true => "yes, to declare which tools only read",
        false => "no, so all its tools count as tools that may change something",
    };
    row("trusted", trusted);
    row("tools", &report.tools());
    for remark in report.remarks() {
        row("", &remark);
    }
    if let Some(next) = report.next() {
        row("next", &format!("run `{next}`"));
    }
    if let Some(entry) = entry {
        text += &format!("\n{}\n", indented(&render::pretty(&entry.to_string())));
    }
    if !tools.is_empty() {
        text.push('\n');
        tools.iter().for_each(|tool| text += &format!("  {}\n", display::plain(tool)));
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
