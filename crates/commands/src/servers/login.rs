//! `cellmate servers login`: logs in to an HTTP server with OAuth, or out of it.

use std::process::ExitCode;

use clap::Args;
use client_config::display;
use contract::text;
use executor::ToolSource;
use mcp::{LoginGrant, ServerSpec};
use serde_json::{Value, json};

use super::filtered_tools::count_tools;
use super::{ProbeResult, probe_all, unknown_server};
use crate::render;
use crate::shared_arguments::ConfigArguments;

#[derive(Debug, Args)]
pub(super) struct LoginArguments {
    /// Server to log in to.
    name: String,
    /// Log out instead.
    #[arg(long)]
    out: bool,
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The result of the command, as text and as JSON.
struct Report {
    text: String,
    json: Value,
}

pub(super) async fn run(arguments: &LoginArguments) -> ExitCode {
    match act(arguments).await {
        Ok(report) => {
            if arguments.json {
                render::print_json(&report.json)
            } else {
                render::print(&format!("{}\n", report.text))
            }
            ExitCode::SUCCESS
        }
        Err(message) => render::fatal(&message),
    }
}

async fn act(arguments: &LoginArguments) -> Result<Report, String> {
    let places = arguments.config.places();
    let loaded = client_config::load(&places).map_err(|error| error.to_string())?;
    let name = display::plain(&arguments.name);
    let server = loaded.servers.iter().find(|server| server.name == arguments.name).cloned();
    let server = server.ok_or_else(|| unknown_server(&arguments.name, &loaded, &places))?;
    let spec = server.spec();
    if arguments.out {
        return log_out(&spec, &name);
    }
    // On standard error, because the prompt is not the command's result.
    let show = |page: &str| {
        let page = text::line(page, usize::MAX);
        eprintln!("open this in a browser to log in to `{name}`:\n\n  {page}\n\nwaiting for the login to finish…")
    };
    let login = mcp::login(&spec, show).await.map_err(|error| error.to_string())?;
    // Checks that the login works, and replaces the stored failure from before.
    let probed = probe_all(vec![server], places.tool_lists()).await;
    Ok(login_report(&name, &login, probed.first()))
}

fn log_out(spec: &ServerSpec, name: &str) -> Result<Report, String> {
    let forgotten = mcp::logout(spec).map_err(|error| error.to_string())?;
    let text = if forgotten { format!("logged out of `{name}`") } else { format!("not logged in to `{name}`") };
    Ok(Report { text, json: json!({"server": name, "loggedIn": false, "forgotten": forgotten}) })
}

fn login_report(name: &str, login: &LoginGrant, probed: Option<&ProbeResult>) -> Report {
    let (tools, error) = match probed.map(|probed| &probed.server) {
        Some(Ok(server)) => (Some(count_tools(&server.tools())), None),
        Some(Err(failure)) => (None, Some(failure.why.clone())),
        None => (None, None),
    };
    let issuer = display::plain(login.issuer.as_deref().unwrap_or("its issuer"));
    let mut text = format!("logged in to `{name}` at {issuer}");
    tools.iter().for_each(|tools| text += &format!("; it offers {tools} tools"));
    error.iter().for_each(|error| text += &format!("; but connecting to it failed: {}", text::line(error, usize::MAX)));
    let (issuer, scopes) = (&login.issuer, &login.scopes);
    let json = json!({
        "server": name, "loggedIn": true, "issuer": issuer, "scopes": scopes, "tools": tools, "error": error,
    });
    Report { text, json }
}
