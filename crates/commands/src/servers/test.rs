//! `cellmate servers test`: starts servers and reports their tools or failures.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use client_config::{LoadedConfig, Problem, display};
use contract::text;
use executor::ToolSource;
use mcp::Server;
use serde_json::{Value, json};

use super::filtered_tools::count_tools;
use super::list::problem_json;
use super::probe::not_passed_note;
use super::{FilteredTools, ProbeResult, probe_all, unknown_server};
use crate::render;
use crate::shared_arguments::ConfigArguments;
use crate::style::{Stream, Style, paint};

#[derive(Debug, Args)]
pub(super) struct TestArguments {
    /// Servers to test; all enabled ones by default.
    names: Vec<String>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &TestArguments) -> ExitCode {
    let places = arguments.config.places();
    let loaded = match client_config::load(&places) {
        Ok(loaded) => loaded,
        Err(error) => return render::fatal(&error.to_string()),
    };
    if let Some(name) = arguments.names.iter().find(|name| !is_known(&loaded, name)) {
        return render::fatal(&unknown_server(name, &loaded, &places));
    }
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|one| one == name);
    let LoadedConfig { servers, problems, .. } = loaded;
    let servers = servers.into_iter().filter(|server| {
        let named = arguments.names.contains(&server.name);
        named || (server.enabled && arguments.names.is_empty())
    });
    let results = probe_all(servers.collect(), places.tool_lists()).await;
    let problems: Vec<Problem> =
        problems.into_iter().filter(|problem| problem.server.as_deref().is_none_or(wanted)).collect();
    if arguments.json {
        let servers: Vec<Value> = results.iter().map(as_json).collect();
        let problems: Vec<Value> = problems.iter().map(problem_json).collect();
        render::print_json(&json!({"servers": servers, "problems": problems}));
    } else {
        results.iter().for_each(|result| render::print_safe(&readable(result)));
        for problem in &problems {
            let word = if is_unusable(problem, &results) { "problem" } else { "note" };
            render::note(&format!("{word}: {problem}"));
        }
        if results.is_empty() && problems.is_empty() {
            render::print("no servers; add one with `cellmate servers add NAME -- COMMAND`\n");
        }
    }
    let all_ok = results.iter().all(|result| result.server.is_ok())
        && !problems.iter().any(|problem| is_unusable(problem, &results));
    if all_ok { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Whether a server is not in use because of the problem. If it was started in spite of it, only a setting has no effect.
fn is_unusable(problem: &Problem, results: &[ProbeResult]) -> bool {
    let server = problem.server.as_ref();
    server.is_some_and(|server| results.iter().all(|result| result.entry.name != *server))
}

fn is_known(loaded: &LoadedConfig, name: &str) -> bool {
    loaded.servers.iter().any(|server| server.name == name)
        || loaded.problems.iter().any(|problem| problem.server.as_deref() == Some(name))
}

fn offered(result: &ProbeResult, server: &Arc<Server>) -> usize {
    let source: Arc<dyn ToolSource> = server.clone();
    count_tools(&FilteredTools::new(source, &result.entry).tools())
}

/// Returns the result for people to read, with unsafe characters escaped.
fn readable(result: &ProbeResult) -> String {
    let (name, ms) = (display::plain(&result.entry.name), result.took.as_millis());
    match &result.server {
        Ok(server) => {
            let (all, offered) = (count_tools(&server.tools()), offered(result, server));
            let chosen = if offered < all { format!(" of {all}") } else { String::new() };
            let revision = server.revision().map(|revision| format!(", MCP {revision}")).unwrap_or_default();
            let ok = paint("ok", Style::Good, Stream::Out);
            let mut text = format!("{ok}    {name}: {offered}{chosen} tools in {ms} ms{}\n", display::plain(&revision));
            for left_out in server.left_out() {
                text.push_str(&format!(
                    "      left out {}: {}\n",
                    display::plain(&left_out.tool),
                    display::plain(&left_out.why)
                ));
            }
            text
        }
        Err(failure) => {
            let fail = paint("FAIL", Style::Bad, Stream::Out);
            let mut text = format!(
                "{fail}  {name}: {} ({ms} ms; {})\n",
                text::line(&failure.why, usize::MAX),
                result.entry.origin
            );
            for line in &failure.stderr {
                text.push_str(&format!("      | {}\n", text::line(line, usize::MAX)));
            }
            not_passed_note(&failure.not_passed).iter().for_each(|note| text.push_str(&format!("      {note}\n")));
            text
        }
    }
}

fn as_json(result: &ProbeResult) -> Value {
    let mut report = json!({
        "name": result.entry.name,
        "ok": result.server.is_ok(),
        "ms": result.took.as_secs_f64() * 1000.0,
        "origin": result.entry.origin.to_string(),
    });
    let more = match &result.server {
        Ok(server) => {
            let left_out = |one: &mcp::LeftOutTool| json!({"tool": one.tool, "why": one.why});
            json!({
                "revision": server.revision(),
                "tools": offered(result, server),
                "toolsOfServer": count_tools(&server.tools()),
                "leftOut": server.left_out().iter().map(left_out).collect::<Vec<_>>(),
            })
        }
        Err(failure) => json!({"error": failure.why, "stderr": failure.stderr, "notPassed": failure.not_passed}),
    };
    if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
        report.extend(more);
    }
    report
}
