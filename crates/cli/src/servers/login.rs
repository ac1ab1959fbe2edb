//! `cellmate servers login`.

use std::process::ExitCode;

use clap::Args;
use contract::text;
use executor::ToolSource;
use mcp::{LoggedIn, ServerSpec};
use serde_json::{Value, json};

use super::{ProbeResult, meet};
use crate::config::{self, ConfigArguments, shown};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct LoginArguments {
    name: String,
    /// Forget the login instead.
    #[arg(long)]
    out: bool,
    #[command(flatten)]
    config: ConfigArguments,
    #[arg(long)]
    json: bool,
}

/// What was done, for people and for programs.
struct Done {
    words: String,
    json: Value,
}

pub(super) async fn run(arguments: &LoginArguments) -> ExitCode {
    match carried_out(arguments).await {
        Ok(done) => {
            if arguments.json {
                render::say_json(&done.json)
            } else {
                render::say(&format!("{}\n", done.words))
            }
            ExitCode::SUCCESS
        }
        Err(message) => render::trouble(&message),
    }
}

async fn carried_out(arguments: &LoginArguments) -> Result<Done, String> {
    let places = arguments.config.places();
    let loaded = config::load(&places).map_err(|error| error.to_string())?;
    let name = shown::plain(&arguments.name);
    let server = loaded.servers.into_iter().find(|server| server.name == arguments.name);
    let server = server.ok_or_else(|| format!("no server is called `{name}`; `cellmate servers list` has them all"))?;
    let spec = server.spec();
    if arguments.out {
        return forgotten(&spec, &name);
    }
    // On standard error: what is asked of a person is not the result.
    let show = |page: &str| {
        let page = text::line(page, usize::MAX);
        eprintln!("open this in a browser to log in to `{name}`:\n\n  {page}\n\nwaiting for it to come back…")
    };
    let logged_in = mcp::login(&spec, show).await.map_err(|error| error.to_string())?;
    // Whether it was worth it; and what was wrong before is forgotten.
    let met = meet(vec![server], places.lists()).await;
    Ok(made(&name, &logged_in, met.first()))
}

fn forgotten(spec: &ServerSpec, name: &str) -> Result<Done, String> {
    let forgotten = mcp::logout(spec).map_err(|error| error.to_string())?;
    let words = if forgotten {
        format!("the login to `{name}` is forgotten")
    } else {
        format!("nobody was logged in to `{name}`")
    };
    Ok(Done { words, json: json!({"server": name, "loggedIn": false, "forgotten": forgotten}) })
}

fn made(name: &str, logged_in: &LoggedIn, met: Option<&ProbeResult>) -> Done {
    let (tools, error) = match met.map(|met| &met.server) {
        Some(Ok(server)) => (Some(server.tools().len()), None),
        Some(Err(missed)) => (None, Some(missed.why.clone())),
        None => (None, None),
    };
    let issuer = shown::plain(logged_in.issuer.as_deref().unwrap_or("its issuer"));
    let mut words = format!("logged in to `{name}` at {issuer}");
    tools.iter().for_each(|tools| words += &format!("; it offers {tools} tools"));
    error.iter().for_each(|error| words += &format!("; but {}", text::line(error, usize::MAX)));
    let (issuer, scopes) = (&logged_in.issuer, &logged_in.scopes);
    let json = json!({
        "server": name, "loggedIn": true, "issuer": issuer, "scopes": scopes, "tools": tools, "error": error,
    });
    Done { words, json }
}
