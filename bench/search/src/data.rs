//! Labelled requests: a set is a folder of `tools.jsonl` and `queries.dev.jsonl`.

use std::fs;
use std::path::Path;

use catalog::search::Document;
use serde_json::Value;

use crate::Result;

pub(crate) const SETS: [&str; 7] =
    ["livemcp_agent", "livemcp_task", "metatool", "bfcl", "sealtools", "apizoo", "stabletoolbench"];

/// The set of all tools together; it is not part of the mean of the seven sets.
pub(crate) const MIXED: &str = "mixed";

#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) documents: Vec<Document>,
    pub(crate) queries: Vec<Query>,
}

#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) text: String,
    /// Positions of the relevant documents.
    pub(crate) relevant: Vec<usize>,
    /// The fold (a fifth of the requests) that it belongs to; the same in every run.
    pub(crate) fold: usize,
}

pub(crate) const FOLDS: usize = 5;

pub(crate) fn read(data: &Path, name: &str) -> Result<Set> {
    let folder = data.join(name);
    let tools = fs::read_to_string(folder.join("tools.jsonl")).map_err(|error| {
        format!("{}: {error}; set TOOLSEARCH_DATA to the folder of labelled sets", folder.display())
    })?;
    let mut documents = Vec::new();
    for line in tools.lines() {
        let tool: Value = serde_json::from_str(line)?;
        documents.push(Document::from_json(&tool).ok_or_else(|| format!("{name}: a tool without an id"))?);
    }
    let positions: std::collections::HashMap<&str, usize> =
        documents.iter().enumerate().map(|(position, document)| (document.id.as_str(), position)).collect();
    let mut queries = Vec::new();
    for (number, line) in fs::read_to_string(folder.join("queries.dev.jsonl"))?.lines().enumerate() {
        let value: Value = serde_json::from_str(line)?;
        let text = value.get("query").and_then(Value::as_str).unwrap_or_default().to_owned();
        let relevant = value.get("relevant").and_then(Value::as_array).into_iter().flatten();
        let relevant = relevant.filter_map(Value::as_str).filter_map(|id| positions.get(id).copied()).collect();
        queries.push(Query { text, relevant, fold: number % FOLDS });
    }
    Ok(Set { documents, queries })
}
