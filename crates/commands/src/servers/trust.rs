//! `cellmate servers trust`, which is now `config trust` for folders and `servers trust-tools` for servers.

use std::process::ExitCode;

use clap::Args;
use client_config::display;

use crate::render;
use crate::shared_arguments::ConfigArguments;

#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

pub(super) fn run(arguments: &TrustArguments) -> ExitCode {
    let places = ConfigArguments::default().places();
    let words: Vec<String> = arguments.words.iter().map(|word| display::for_shell(&display::plain(word))).collect();
    let server = arguments.words.iter().find(|word| super::is_configured(&places, word));
    render::fatal(&match server {
        Some(name) => format!(
            "to trust what server `{}` declares about its tools, run `cellmate servers trust-tools {}`; to trust a \
             project's files, run `cellmate config trust FOLDER`",
            display::plain(name),
            display::for_shell(&display::plain(name))
        ),
        None => format!(
            "this command is now `cellmate config trust{}`; to trust what a server declares about its tools, run \
             `cellmate servers trust-tools NAME`",
            words.iter().map(|word| format!(" {word}")).collect::<String>()
        ),
    })
}
