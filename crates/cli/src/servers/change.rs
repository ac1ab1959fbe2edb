//! Shows a change to a configuration file and writes it, unless it is a dry run.

use std::process::ExitCode;

use clap::Args;
use client_config::display::for_shell;
use client_config::{Change, Places, Written, write_change};
use contract::text;
use serde_json::{Value, json};

use crate::render;
use crate::style::{Stream, paint_diff};

#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    /// Show the changes without writing them.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the changes as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows the change and writes it, unless it is a dry run.
pub(crate) fn carry_out(change: &Change, places: &Places, arguments: &ChangeArguments, notes: &[String]) -> ExitCode {
    if !arguments.json {
        render::print_safe(&paint_diff(&change.diff(), Stream::Out));
    }
    let written = if arguments.dry_run || change.is_empty() {
        None
    } else {
        match write_change(change, places) {
            Ok(written) => Some(written),
            Err(error) => return render::failed(&error.to_string()),
        }
    };
    if arguments.json {
        render::print_json(&as_json(change, written.as_ref(), notes));
        return ExitCode::SUCCESS;
    }
    match &written {
        Some(written) => {
            render::print(&format!("written; to undo: {}\n", text::line(&undo(change, written), usize::MAX)))
        }
        None if change.is_empty() => render::print("nothing to change\n"),
        None => render::print("nothing was written (--dry-run)\n"),
    }
    notes.iter().for_each(|note| render::note(&format!("note: {note}")));
    ExitCode::SUCCESS
}

pub(crate) fn as_json(change: &Change, written: Option<&Written>, notes: &[String]) -> Value {
    json!({
        "file": change.file,
        "changed": written.is_some(),
        "diff": change.diff(),
        "backup": written.and_then(|written| written.backup.as_ref()),
        "undo": written.map(|written| undo(change, written)),
        "notes": notes,
    })
}

/// Returns the shell command that restores the file.
pub(super) fn undo(change: &Change, written: &Written) -> String {
    let file = for_shell(&change.file.display().to_string());
    match &written.backup {
        Some(backup) => format!("cp {} {file}", for_shell(&backup.display().to_string())),
        None => format!("rm {file}"),
    }
}
