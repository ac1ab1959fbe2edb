//! `cellmate servers login`.

use std::process::ExitCode;

use clap::Args;

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
}

pub(super) async fn run(arguments: &LoginArguments) -> ExitCode {
    match carried_out(arguments).await {
        Ok(words) => {
            render::say(&format!("{words}\n"));
            ExitCode::SUCCESS
        }
        Err(message) => render::trouble(&message),
    }
}

async fn carried_out(arguments: &LoginArguments) -> Result<String, String> {
    let loaded = config::load(&arguments.config.places()).map_err(|error| error.to_string())?;
    let name = shown::plain(&arguments.name);
    let server = loaded.servers.into_iter().find(|server| server.name == arguments.name);
    let server = server.ok_or_else(|| format!("no server is called `{name}`; `cellmate servers list` has them all"))?;
    let spec = server.spec();
    if arguments.out {
        let forgotten = mcp::logout(&spec).map_err(|error| error.to_string())?;
        return Ok(if forgotten {
            format!("the login to `{name}` is forgotten")
        } else {
            format!("nobody was logged in to `{name}`")
        });
    }
    // On standard error: what is asked of a person is not the result.
    let show = |page: &str| {
        eprintln!("open this in a browser to log in to `{name}`:\n\n  {page}\n\nwaiting for it to come back…")
    };
    let logged_in = mcp::login(&spec, show).await.map_err(|error| error.to_string())?;
    let issuer = logged_in.issuer.unwrap_or_else(|| "its issuer".to_owned());
    Ok(format!("logged in to `{name}` at {}", shown::plain(&issuer)))
}
