//! Finds the run that a user means: by its id, by the start of its id, or because it is the only one that lives.

use codemode::first_source_line;
use contract::ids::RunId;
use contract::text;
use executor::clock::now_ms;
use store::{Millis, RunFilter, RunListEntry, RunState, Store, StoreError};

use crate::age::span;

/// What run ids begin with: cells, direct calls, and cells of Tool Search. It may be omitted.
const KINDS: [&str; 3] = ["cm_", "tc_", "ts_"];

/// How many candidates an error names.
const MAX_CANDIDATES: u32 = 8;

/// How much of a candidate's code is shown.
const MAX_CODE_CHARS: usize = 60;

/// The longest text that can be the start of an id.
const MAX_TYPED_CHARS: usize = 100;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error("no run `{0}`; `cellmate runs list` lists the runs")]
    NotFound(String),
    #[error("`{typed}` is the start of several run ids; type more of it: {candidates}")]
    Several { typed: String, candidates: String },
    #[error("no run is live; `cellmate runs list` lists all runs, and `cellmate exec` starts one")]
    NoneLive,
    #[error("several runs are live; name the one to wait for: {0}")]
    SeveralLive(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the run with this id, or the only one whose id starts with the text.
pub(crate) async fn find_run(store: &Store, typed: &str) -> Result<RunId, FindError> {
    let typed = typed.trim();
    let exact = RunId::new(typed);
    if store.run(&exact).await?.is_some() {
        return Ok(exact);
    }
    let shown = text::line(typed, MAX_TYPED_CHARS);
    let found = match prefixes(typed) {
        prefixes if prefixes.is_empty() => Vec::new(),
        prefixes => store.runs(&RunFilter { prefixes, ..RunFilter::default() }, MAX_CANDIDATES + 1).await?,
    };
    match found.as_slice() {
        [] => Err(FindError::NotFound(shown)),
        [only] => Ok(only.run_id.clone()),
        several => Err(FindError::Several { typed: shown, candidates: candidates(several, now_ms()) }),
    }
}

/// Returns the only run of a cell that has not ended.
pub(crate) async fn only_live_run(store: &Store) -> Result<RunId, FindError> {
    let states = vec![RunState::Running, RunState::Waiting];
    let live = RunFilter { states, prefixes: vec!["cm_".to_owned()], ..RunFilter::default() };
    match store.runs(&live, MAX_CANDIDATES + 1).await?.as_slice() {
        [] => Err(FindError::NoneLive),
        [only] => Ok(only.run_id.clone()),
        several => Err(FindError::SeveralLive(candidates(several, now_ms()))),
    }
}

/// Returns the texts that the id of a run may start with. None if the typed text cannot be the start of an id.
fn prefixes(typed: &str) -> Vec<String> {
    let can_be_id = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if typed.is_empty() || typed.len() > MAX_TYPED_CHARS || !typed.chars().all(can_be_id) {
        return Vec::new();
    }
    if KINDS.iter().any(|kind| typed.starts_with(kind)) {
        return vec![typed.to_owned()];
    }
    let with_kind = KINDS.iter().map(|kind| format!("{kind}{typed}"));
    with_kind.chain([typed.to_owned()]).collect()
}

/// Describes a few runs on one line, so that the user can choose one.
fn candidates(runs: &[RunListEntry], now: Millis) -> String {
    let max = MAX_CANDIDATES as usize;
    let mut named: Vec<String> = runs.iter().take(max).map(|run| candidate(run, now)).collect();
    if runs.len() > max {
        named.push("and more".to_owned());
    }
    named.join("; ")
}

fn candidate(run: &RunListEntry, now: Millis) -> String {
    let (state, age) = (run.state.as_str(), span(now.saturating_sub(run.created_at)));
    format!("{} ({state}, {age} ago: {})", run.run_id, text::line(&run_summary(run), MAX_CODE_CHARS))
}

/// Returns what a run does, in one line: the first line of its code, or the tool that it calls directly.
pub(super) fn run_summary(run: &RunListEntry) -> String {
    match (first_source_line(&run.definition_head), &run.first_target) {
        (Some(line), _) => line,
        (None, Some(tool)) => format!("tools call {tool}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use contract::scope::Scope;
    use store::{RunListEntry, RunState};

    use super::{candidates, prefixes, run_summary};

    fn run(number: usize, definition: &str) -> RunListEntry {
        RunListEntry {
            run_id: format!("cm_{number}").into(),
            scope: Scope::default(),
            state: RunState::Waiting,
            created_at: 0,
            updated_at: 0,
            expires_at: 0,
            open_calls: 0,
            definition_head: definition.to_owned(),
            first_target: Some("mcp:s:push".to_owned()),
        }
    }

    #[test]
    fn the_kind_of_a_run_may_be_omitted_and_what_cannot_be_an_id_finds_nothing() {
        assert_eq!(prefixes("cm_9"), ["cm_9"]);
        assert_eq!(prefixes("97"), ["cm_97", "tc_97", "ts_97", "97"]);
        for wrong in ["", "cm_\u{9b}", "%", "cm 1", &"a".repeat(101)] {
            assert!(prefixes(wrong).is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn at_most_eight_candidates_are_named() {
        let runs: Vec<RunListEntry> = (0..9).map(|number| run(number, r#"{"source":"return 1\nx"#)).collect();
        let named = candidates(&runs, 5_000);
        assert!(named.starts_with("cm_0 (waiting, 5 s ago: return 1); cm_1 "), "{named}");
        assert!(named.ends_with("; and more") && !named.contains("cm_8"), "{named}");
        assert_eq!(candidates(&runs[..1], 5_000), "cm_0 (waiting, 5 s ago: return 1)");
    }

    #[test]
    fn a_direct_call_is_summarized_by_its_tool() {
        assert_eq!(run_summary(&run(1, r#"{"kind":"call"}"#)), "tools call mcp:s:push");
    }
}
