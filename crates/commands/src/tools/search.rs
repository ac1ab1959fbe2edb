//! `cellmate tools search`: searches the tools that a run may use, as `tools.search` does in a cell, and explains the
//! scores.

use std::process::ExitCode;

use catalog::View;
use catalog::search::ScoreExplanation;
use clap::Args;
use client_config::display;
use contract::text;
use serde_json::{Value, json};

use super::list;
use super::run::{ListSource, RunArguments, RunOptions};
use crate::{hint, render};

/// The longest description of a tool that is shown.
const MAX_ABOUT_CHARS: usize = 120;

#[derive(Debug, Args)]
pub(super) struct SearchArguments {
    /// Words to search for. Without words, lists all tools, up to the limit.
    query: Vec<String>,
    /// Maximum number of tools to list.
    #[arg(long, default_value_t = 8, value_name = "N")]
    limit: usize,
    /// Show the score of each tool and the words that it matches.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    lists: ListSource,
    #[command(flatten)]
    run: RunArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &SearchArguments) -> Result<ExitCode, String> {
    let loaded = arguments.run.loaded()?;
    let servers: Vec<_> = loaded.servers.iter().filter(|server| server.enabled).cloned().collect();
    let ready = arguments.run.ready(&loaded, servers, arguments.lists, RunOptions::default()).await?;
    ready.note_provider();
    let query = arguments.query.join(" ");
    let catalog = ready.catalog();
    let why = |id: &str| arguments.explain.then(|| catalog.explain(&query, id)).flatten();
    let found = catalog.search(View::ToolSearch, &query, arguments.limit);
    let is_empty = found.is_empty();
    let hits = found.into_iter().map(|hit| {
        let why = why(hit.get("id").and_then(Value::as_str).unwrap_or_default());
        (hit, why)
    });
    if arguments.json {
        let hits: Vec<Value> = hits.map(|(hit, why)| with_explanation(hit, why.as_ref())).collect();
        render::print_json(&json!({"tools": hits}));
    } else {
        hits.for_each(|(hit, why)| render::print(&to_text(&hit, why.as_ref())));
        if is_empty && ready.tools().is_empty() {
            list::note_no_tools(&loaded);
        } else if is_empty {
            render::note(&format!("no tool matches `{query}`; `{}` lists all", hint::command("tools list")));
        }
        ready.report();
    }
    Ok(ready.exit_code())
}

fn to_text(hit: &Value, why: Option<&ScoreExplanation>) -> String {
    let field = |key: &str| display::plain(hit.get(key).and_then(Value::as_str).unwrap_or_default());
    let mut line = format!("{}  {}\n", field("id"), field("signature"));
    let about = text::line(hit.get("description").and_then(Value::as_str).unwrap_or_default(), MAX_ABOUT_CHARS);
    if !about.is_empty() {
        line += &format!("    {about}\n");
    }
    if let Some(why) = why {
        let words: Vec<String> =
            why.matched.iter().map(|(word, score)| format!("{} {score:.1}", display::plain(word))).collect();
        let meaning = why.meaning.map_or_else(|| "none".to_owned(), |meaning| format!("{meaning:.2}"));
        let exact = if why.exact { "exact name; " } else { "" };
        line += &format!("    {exact}words {:.2} ({}), meaning {meaning}\n", why.words, words.join(", "));
    }
    line
}

/// Adds the explanation to a hit, as `why`.
fn with_explanation(mut hit: Value, why: Option<&ScoreExplanation>) -> Value {
    if let (Some(fields), Some(why)) = (hit.as_object_mut(), why) {
        let matched: serde_json::Map<String, Value> =
            why.matched.iter().map(|(word, score)| (word.clone(), json!(score))).collect();
        let why = json!({"exact": why.exact, "words": why.words, "meaning": why.meaning, "matched": matched});
        fields.insert("why".to_owned(), why);
    }
    hit
}
