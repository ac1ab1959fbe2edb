//! Searches results, transcripts and files on disk for secrets that must not leak.

use std::path::Path;

use serde_json::Value;

use super::drive::Outcome;
use super::index::Cell;
use super::lab::{Lab, PreparedSession};

const SECRETS: [&str; 2] = ["CANARY_SECRET", "/srv/gateway/secret"];

pub(super) async fn leaked(lab: &Lab, prepared: &PreparedSession, cell: &Cell, outcome: &Outcome) -> Vec<String> {
    let transcript = match lab.code_mode.store().export(&prepared.session).await {
        Ok(transcript) => transcript,
        Err(error) => return vec![format!("cannot read the transcript: {error}")],
    };
    // The transcript contains the cell's source, which is not a leak.
    let own = Value::from(cell.source.as_str()).to_string();
    let transcript = transcript.replace(own.trim_matches('"'), "");
    let mut found = Vec::new();
    for secret in SECRETS.into_iter().chain(cell.forbid.iter().map(String::as_str)) {
        if outcome.results.iter().any(|result| result.contains(secret)) {
            found.push(format!("`{secret}` is in a result"));
        }
        if transcript.contains(secret) {
            found.push(format!("`{secret}` is in the transcript"));
        }
    }
    found
}

/// Searches the store's files, which contain the journal and telemetry of all runs.
pub(super) fn on_disk(state: &Path, cells: &[Cell]) -> Vec<String> {
    let written: Vec<Vec<u8>> = std::fs::read_dir(state)
        .into_iter()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.ok()?.path()).ok())
        .collect();
    let leaked = |secret: &&str| {
        // A secret that is in a cell's source is on disk with the source.
        let in_source = cells.iter().any(|cell| cell.source.contains(*secret));
        !in_source && written.iter().any(|file| file.windows(secret.len()).any(|window| window == secret.as_bytes()))
    };
    SECRETS.iter().filter(|secret| leaked(secret)).map(|secret| format!("`{secret}` is on disk")).collect()
}
