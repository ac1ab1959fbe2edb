//! Shows a change to a configuration file and writes it, unless it is a dry run.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use client_config::display::for_shell;
use client_config::{Change, Places, WrittenFile, check_entry, display, trust_note, write_change};
use contract::text;
use serde_json::{Value, json};
use telemetry::LogIgnored;

use super::declared::{TrustChoice, review_added, untrusted_note};
use super::missing_command::missing_command_note;
use crate::render;
use crate::shared_arguments::ScopeArgument;
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

pub(crate) fn as_json(change: &Change, written: Option<&WrittenFile>, notes: &[String]) -> Value {
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
pub(super) fn undo(change: &Change, written: &WrittenFile) -> String {
    let file = for_shell(&change.file.display().to_string());
    match &written.backup {
        Some(backup) => format!("cp {} {file}", for_shell(&backup.display().to_string())),
        None => format!("rm {file}"),
    }
}

/// Why a change was not written that the user could not confirm.
pub(crate) const NOT_CONFIRMED: &str = "nothing was written: confirming needs a terminal; pass --yes to write the changes, \
    or --dry-run to only show them";

/// Asks on the terminal whether to write the changes; `None` if there is no terminal.
pub(crate) fn confirm() -> Option<bool> {
    confirm_question("Write these changes?")
}

/// Asks a question on the terminal, to which anything but a plain yes is a no; `None` if there is no terminal.
pub(crate) fn confirm_question(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    render::print(&format!("{question} [y/N] "));
    std::io::stdout().flush().log_expected("print a question");
    let mut answer = String::new();
    let is_read = std::io::stdin().read_line(&mut answer).is_ok();
    Some(is_read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// A server to add to a configuration file.
pub(super) struct NewServer<'a> {
    pub(super) name: &'a str,
    pub(super) scope: ScopeArgument,
    /// Whether an existing server with this name may be replaced.
    pub(super) replace: bool,
}

impl NewServer<'_> {
    /// Returns the change that adds the server, and what the user should know about it. Fails if the entry or the file
    /// is invalid.
    pub(super) fn prepare(
        &self,
        places: &Places,
        entry: impl FnOnce() -> Result<Value, String>,
    ) -> Result<(Change, Vec<String>), String> {
        let file = places.file_to_edit(self.scope.into());
        let file = file.ok_or("cannot find a folder for configuration; set HOME, or pass --config")?;
        let mut change = Change::open(&file).map_err(|error| error.to_string())?;
        let exists = change.has_server(self.name).map_err(|error| error.to_string())?;
        if exists && !self.replace {
            let name = display::plain(self.name);
            return Err(format!("`{name}` already exists in `{}`; pass --replace to replace it", file.display()));
        }
        let entry = entry()?;
        change.set_server(self.name, &entry).map_err(|error| error.to_string())?;
        let mut notes = check_entry(&change, self.name, places)?;
        notes.extend(missing_command_note(&entry, places));
        notes.extend(trust_note(&file, places));
        Ok((change, notes))
    }

    /// Shows the change that adds the server and writes it. Then shows what the server declares about its tools and asks
    /// whether to trust that, unless the user has chosen already.
    pub(super) async fn add(
        &self,
        change: &Change,
        mut notes: Vec<String>,
        trust: TrustChoice,
        places: &Places,
        arguments: &ChangeArguments,
    ) -> ExitCode {
        // A project's file cannot mark a server as trusted.
        let is_asked = trust == TrustChoice::Ask && self.scope == ScopeArgument::User;
        let names = [self.name.to_owned()];
        if is_asked && arguments.json {
            notes.extend(untrusted_note(&names));
        }
        let code = carry_out(change, places, arguments, &notes);
        if !is_asked || arguments.json || arguments.dry_run || code != ExitCode::SUCCESS {
            return code;
        }
        match review_added(places, &names).await {
            Ok(()) => code,
            Err(message) => render::failed(&message),
        }
    }
}
