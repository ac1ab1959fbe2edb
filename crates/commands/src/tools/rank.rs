//! `cellmate tools rank`: runs a search for each line of standard input, to measure search quality.

use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use catalog::search::{Document, EmbeddingTable, Index, Weights};
use clap::Args;
use contract::text::escape_json;
use serde_json::{Value, json};

/// The maximum number of tools that a search returns if its line has no `limit`.
const DEFAULT_LIMIT: usize = 8;

#[derive(Debug, Args)]
pub(super) struct RankArguments {
    /// File of tools, one JSON object per line: id, name, description, parameters, sourceName.
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// Match words only, without the embedding table.
    #[arg(long)]
    words_only: bool,
    /// Accepted for uniformity: the output is always lines of JSON.
    #[arg(long)]
    json: bool,
}

/// Reads `{"qid", "query", "limit"}` lines and writes a `{"qid", "ids", "us"}` line for each: the ids of the tools that
/// were found, best first, and the duration of the search in microseconds.
pub(super) fn run(arguments: &RankArguments) -> Result<ExitCode, String> {
    let shown = arguments.tools.display();
    let text = fs::read_to_string(&arguments.tools).map_err(|error| format!("{shown}: {error}"))?;
    let documents = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let tool: Value =
                serde_json::from_str(line).map_err(|error| format!("{shown}:{}: invalid JSON: {error}", number + 1))?;
            Document::from_json(&tool).ok_or_else(|| format!("{shown}:{}: the tool has no `id`", number + 1))
        })
        .collect::<Result<Vec<Document>, String>>()?;
    let ids: Vec<String> = documents.iter().map(|document| document.id.clone()).collect();
    let meaning = if arguments.words_only { None } else { EmbeddingTable::shipped() };
    let index = Index::new(documents, meaning, Weights::SHIPPED);
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| format!("standard input: {error}"))?;
        let asked: Value =
            serde_json::from_str(&line).map_err(|error| format!("standard input: invalid JSON: {error}"))?;
        let query = asked.get("query").and_then(Value::as_str).ok_or("standard input: the line has no `query`")?;
        let limit = asked.get("limit").and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
        let start = Instant::now();
        let hits = index.rank(query, limit.unwrap_or(DEFAULT_LIMIT), |_| true);
        let took = start.elapsed();
        let found: Vec<&String> = hits.iter().filter_map(|hit| ids.get(hit.position)).collect();
        let answer =
            json!({"qid": asked.get("qid"), "ids": found, "us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX)});
        writeln!(out, "{}", escape_json(&answer.to_string()))
            .and_then(|()| out.flush())
            .map_err(|error| format!("standard output: {error}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
