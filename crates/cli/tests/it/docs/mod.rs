//! Checks the reference and runs the cookbook: what the pages say is what the program does.
//!
//! With `CELLMATE_UPDATE_SNAPSHOTS=1`, numbers and results are written into the pages; then read the difference.

mod cell_api;
mod configuration;
mod cookbook;
mod errors;
mod guide;
mod http;
mod index;
mod limits;

use std::path::{Path, PathBuf};

/// Returns the repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the Markdown files of a folder, without those of the folders in it, by name.
fn pages(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// Compares a page with what it should be, or writes it.
fn compare(page: &Path, now: &str) {
    let recorded = std::fs::read_to_string(page).unwrap();
    if std::env::var_os("CELLMATE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(page, now).unwrap();
        return;
    }
    let differs: Vec<String> = recorded
        .lines()
        .zip(now.lines())
        .filter(|(then, now)| then != now)
        .map(|(then, now)| format!("- {then}\n+ {now}"))
        .collect();
    let hint = "run with CELLMATE_UPDATE_SNAPSHOTS=1 to write what is true now";
    assert!(recorded == now, "{}: {hint}\n{}", page.display(), differs.join("\n"));
}
