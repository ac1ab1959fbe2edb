//! `cellmate config trust`: a project's file comes with the project and starts processes, so the user must trust it.
//!
//! On a terminal, the user sees what the file starts and confirms it. Scripts pass nothing: without a terminal, running the
//! command is the decision. Trust covers the file's content. When the content changes, the file is not read until the user trusts it again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use client_config::{Places, ProjectReview, ServerChanges, TrustStore, display, project_files};
use serde_json::{Value, json};

use crate::render;
use crate::servers::{self, ChangeArguments, confirm_question};
use crate::shared_arguments::ConfigArguments;

#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    /// Project folder; the current folder by default.
    folder: Option<PathBuf>,
    /// Stop trusting the project's files.
    #[arg(long)]
    remove: bool,
    /// Do not ask on a terminal.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) fn run(arguments: &TrustArguments) -> ExitCode {
    let done = places(arguments)
        .and_then(|places| if arguments.remove { remove(arguments, &places) } else { trust(arguments, &places) });
    match done {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

fn places(arguments: &TrustArguments) -> Result<Places, String> {
    let places = arguments.config.places();
    let given = arguments.folder.as_deref().unwrap_or(places.folder());
    match given.canonicalize() {
        Ok(folder) if folder.is_dir() => Ok(places.with_folder(folder)),
        Ok(_) | Err(_) => Err(not_a_folder(given, &places)),
    }
}

fn not_a_folder(given: &Path, places: &Places) -> String {
    let shown = display::path(given);
    let server = given.to_str().filter(|name| servers::is_configured(places, name));
    match server {
        Some(name) => format!(
            "`{shown}` is a server, not a folder; to trust what it declares about its tools, run `cellmate servers \
             trust-tools {}`",
            display::for_shell(name)
        ),
        None => format!("`{shown}` is not a folder; pass the folder of the project, or run this in it"),
    }
}

/// A file that the user is about to trust.
struct Review {
    reviewed: ProjectReview,
    /// `None` if the file is already trusted as it is.
    changes: Option<ServerChanges>,
}

fn trust(arguments: &TrustArguments, places: &Places) -> Result<ExitCode, String> {
    let store = TrustStore::of(places);
    let (reviews, unusable) = reviews(places, &store)?;
    let code = if unusable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(render::FAILED) };
    let is_new = reviews.iter().any(|review| review.changes.is_some());
    if !arguments.change.json {
        reviews.iter().for_each(|review| render::print(&readable(review)));
    }
    let asks = is_new && !arguments.change.dry_run && !arguments.change.json && !arguments.yes;
    if asks && confirm_question("Trust what is shown here?") == Some(false) {
        render::print("nothing was written\n");
        return Ok(ExitCode::from(render::FAILED));
    }
    if !arguments.change.dry_run {
        for review in reviews.iter().filter(|review| review.changes.is_some()) {
            let failed =
                |error| format!("cannot record `{}` as trusted: {error}", display::path(&review.reviewed.file));
            store.write(&review.reviewed.record).map_err(failed)?;
        }
    }
    let notes: Vec<String> = reviews.iter().flat_map(notes).chain(unusable).collect();
    if arguments.change.json {
        let files: Vec<Value> = reviews.iter().map(as_json).collect();
        let changed = is_new && !arguments.change.dry_run;
        render::print_json(&json!({"changed": changed, "files": files, "notes": notes}));
        return Ok(code);
    }
    render::print(match (is_new, arguments.change.dry_run) {
        (false, _) => "nothing to change\n",
        (true, true) => "nothing was written (--dry-run)\n",
        (true, false) => "trusted as it is now; to undo: cellmate config trust --remove\n",
    });
    notes.iter().for_each(|note| render::note(&format!("note: {note}")));
    Ok(code)
}

/// Returns every project file that would be read, as it is now, and why others cannot be. Fails if there are none.
fn reviews(places: &Places, store: &TrustStore) -> Result<(Vec<Review>, Vec<String>), String> {
    let (mut reviews, mut unusable) = (Vec::new(), Vec::new());
    for (file, client) in project_files(places).map_err(|error| error.to_string())? {
        match ProjectReview::open(&file, client, places) {
            Ok(Some(reviewed)) => reviews.push(Review { changes: reviewed.changes(store), reviewed }),
            Ok(None) => {}
            Err(why) => unusable.push(format!("`{}` is not trusted: {why}", display::path(&file))),
        }
    }
    if !reviews.is_empty() {
        return Ok((reviews, unusable));
    }
    let folder = display::path(places.folder());
    Err(unusable.into_iter().next().unwrap_or_else(|| {
        format!("nothing to trust in `{folder}`: it has no `.cellmate.json5`, and no file of a client that you import")
    }))
}

fn readable(review: &Review) -> String {
    let Some(changes) = &review.changes else { return String::new() };
    let what = |name: &str| {
        let found = review.reviewed.servers.iter().find(|(server, _)| server == &display::plain(name));
        found.map(|(_, what)| format!(": {what}")).unwrap_or_default()
    };
    let mut text = format!("{}\n", display::path(&review.reviewed.file));
    for (sign, names) in [("+", &changes.added), ("~", &changes.changed), ("-", &changes.removed)] {
        for name in names {
            text += &format!("  {sign} server `{}`{}\n", display::plain(name), what(name));
        }
    }
    if *changes == ServerChanges::default() {
        text += "  its servers are unchanged; something else in it, or an `envFile`, has changed\n";
    }
    for path in review.reviewed.record.env_files() {
        text += &format!("  with the variables in `{}`\n", contract::text::line(path, usize::MAX));
    }
    text
}

fn notes(review: &Review) -> Vec<String> {
    let file = display::path(&review.reviewed.file);
    review.reviewed.notes.iter().map(|note| format!("{file}: {note}")).collect()
}

fn as_json(review: &Review) -> Value {
    let changes = review.changes.as_ref();
    let names = |of: fn(&ServerChanges) -> &Vec<String>| changes.map(of).cloned().unwrap_or_default();
    json!({
        "file": review.reviewed.file,
        "sha256": review.reviewed.record.content().as_str(),
        "new": changes.is_some(),
        "added": names(|changes| &changes.added),
        "changed": names(|changes| &changes.changed),
        "removed": names(|changes| &changes.removed),
        "envFiles": review.reviewed.record.env_files().collect::<Vec<_>>(),
    })
}

fn remove(arguments: &TrustArguments, places: &Places) -> Result<ExitCode, String> {
    let store = TrustStore::of(places);
    let mut removed = Vec::new();
    for (file, _) in project_files(places).map_err(|error| error.to_string())? {
        let failed = |error| format!("cannot remove the trust record of `{}`: {error}", display::path(&file));
        let is_trusted = match arguments.change.dry_run {
            true => store.record(&file).is_some(),
            false => store.remove(&file).map_err(failed)?,
        };
        if is_trusted {
            removed.push(file);
        }
    }
    if arguments.change.json {
        let changed = !removed.is_empty() && !arguments.change.dry_run;
        render::print_json(&json!({"changed": changed, "removed": removed}));
        return Ok(ExitCode::SUCCESS);
    }
    let status = if arguments.change.dry_run { "would no longer be trusted" } else { "no longer trusted" };
    removed.iter().for_each(|file| render::print(&format!("{}: {status}\n", display::path(file))));
    if removed.is_empty() {
        render::print("nothing to change\n");
    }
    Ok(ExitCode::SUCCESS)
}
