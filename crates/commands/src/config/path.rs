//! `cellmate config path`: lists the configuration files in the order in which they are read.

use std::process::ExitCode;

use clap::Args;
use client_config::{FileState, ListedFile, display, listed_files};
use serde_json::{Value, json};

use crate::render;
use crate::shared_arguments::ConfigArguments;
use crate::table::Table;

#[derive(Debug, Args)]
pub(super) struct PathArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &PathArguments) -> ExitCode {
    let places = arguments.config.places();
    let files = listed_files(&places);
    if arguments.json {
        render::print_json(&json!({"files": files.iter().map(as_json).collect::<Vec<_>>()}));
        return ExitCode::SUCCESS;
    }
    if files.is_empty() {
        return render::fatal("cannot find a folder for configuration; set HOME, or pass --config");
    }
    let mut table = Table::new(["SOURCE", "STATE", "FILE"]);
    for file in &files {
        table.add([file.source.as_str().to_owned(), state(&file.state), places.shown(&file.file)]);
    }
    render::print_table(&table);
    for file in &files {
        remark(file);
    }
    ExitCode::SUCCESS
}

fn state(state: &FileState) -> String {
    match state {
        FileState::Used => "read",
        FileState::Missing => "missing",
        FileState::Untrusted => "not trusted",
        FileState::Changed => "changed",
        FileState::Unusable(_) => "invalid",
    }
    .to_owned()
}

/// Prints why a file is not read.
fn remark(file: &ListedFile) {
    let path = display::path(&file.file);
    match &file.state {
        FileState::Used | FileState::Missing => {}
        FileState::Untrusted => {
            render::note(&format!(
                "{path}: it is not read until you trust it; `cellmate servers list` names the command"
            ));
        }
        FileState::Changed => render::note(&format!(
            "{path}: it has changed since you trusted it, so it is not read; `cellmate servers list` names the command"
        )),
        FileState::Unusable(why) => render::note(&format!("{path}: {why}")),
    }
}

fn as_json(file: &ListedFile) -> Value {
    let why = match &file.state {
        FileState::Unusable(why) => Some(why),
        FileState::Used | FileState::Missing | FileState::Untrusted | FileState::Changed => None,
    };
    json!({
        "file": file.file,
        "source": file.source.as_str(),
        "exists": file.state != FileState::Missing,
        "read": file.state == FileState::Used,
        "state": state(&file.state),
        "error": why,
    })
}
