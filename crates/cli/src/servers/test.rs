//! `cellmate servers test`.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use contract::text;
use executor::ToolSource;
use mcp::Server;
use serde_json::{Value, json};

use super::list::problem_json;
use super::{Offered, ProbeResult, meet};
use crate::config::{self, ConfigArguments, Loaded, Problem, shown};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct TestArguments {
    /// All that are on, where none is named.
    names: Vec<String>,
    #[command(flatten)]
    config: ConfigArguments,
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &TestArguments) -> ExitCode {
    let places = arguments.config.places();
    let loaded = match config::load(&places) {
        Ok(loaded) => loaded,
        Err(error) => return render::trouble(&error.to_string()),
    };
    if let Some(name) = arguments.names.iter().find(|name| !is_known(&loaded, name)) {
        let name = shown::plain(name);
        return render::trouble(&format!("no server is called `{name}`; `cellmate servers list` has them all"));
    }
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|one| one == name);
    let Loaded { servers, problems, .. } = loaded;
    let servers = servers.into_iter().filter(|server| {
        let named = arguments.names.contains(&server.name);
        named || (server.enabled && arguments.names.is_empty())
    });
    let met = meet(servers.collect(), places.lists()).await;
    let problems: Vec<Problem> =
        problems.into_iter().filter(|problem| problem.server.as_deref().is_none_or(wanted)).collect();
    if arguments.json {
        let servers: Vec<Value> = met.iter().map(as_json).collect();
        let problems: Vec<Value> = problems.iter().map(problem_json).collect();
        render::say_json(&json!({"servers": servers, "problems": problems}));
    } else {
        met.iter().for_each(|met| render::say(&readable(met)));
        problems.iter().for_each(|problem| render::note(&format!("problem: {problem}")));
        if met.is_empty() && problems.is_empty() {
            render::say("no servers; `cellmate servers add NAME -- COMMAND` adds one\n");
        }
    }
    let all_well = met.iter().all(|met| met.server.is_ok()) && problems.iter().all(|one| one.server.is_none());
    if all_well { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn is_known(loaded: &Loaded, name: &str) -> bool {
    loaded.servers.iter().any(|server| server.name == name)
        || loaded.problems.iter().any(|problem| problem.server.as_deref() == Some(name))
}

fn offered(met: &ProbeResult, server: &Arc<Server>) -> usize {
    let source: Arc<dyn ToolSource> = server.clone();
    Offered::new(source, &met.entry).tools().len()
}

fn readable(met: &ProbeResult) -> String {
    let (name, ms) = (shown::plain(&met.entry.name), met.took.as_millis());
    match &met.server {
        Ok(server) => {
            let (all, offered) = (server.tools().len(), offered(met, server));
            let chosen = if offered < all { format!(" of {all}") } else { String::new() };
            let revision = server.revision().map(|revision| format!(", MCP {revision}")).unwrap_or_default();
            let mut text = format!("ok    {name}: {offered}{chosen} tools in {ms} ms{revision}\n");
            for left_out in server.left_out() {
                text.push_str(&format!(
                    "      left out {}: {}\n",
                    shown::plain(&left_out.tool),
                    shown::plain(&left_out.why)
                ));
            }
            text
        }
        Err(missed) => {
            let mut text =
                format!("FAIL  {name}: {} ({ms} ms; {})\n", text::line(&missed.why, usize::MAX), met.entry.origin);
            missed.stderr.iter().for_each(|line| text.push_str(&format!("      | {line}\n")));
            text
        }
    }
}

fn as_json(met: &ProbeResult) -> Value {
    let mut report = json!({
        "name": met.entry.name,
        "ok": met.server.is_ok(),
        "ms": met.took.as_secs_f64() * 1000.0,
        "origin": met.entry.origin.to_string(),
    });
    let more = match &met.server {
        Ok(server) => {
            let left_out = |one: &mcp::LeftOut| json!({"tool": one.tool, "why": one.why});
            json!({
                "revision": server.revision(),
                "tools": offered(met, server),
                "toolsOfServer": server.tools().len(),
                "leftOut": server.left_out().iter().map(left_out).collect::<Vec<_>>(),
            })
        }
        Err(missed) => json!({"error": missed.why, "stderr": missed.stderr}),
    };
    if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
        report.extend(more);
    }
    report
}
