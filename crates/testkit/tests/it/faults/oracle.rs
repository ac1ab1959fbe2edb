//! Checks the properties that every history must have by the tools' ledger, which a crash of the host cannot change.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::clients::Clients;
use super::program::Program;

/// An effect in the ledger.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub name: String,
    pub key: String,
    pub run: String,
    pub call: u32,
    pub input: Value,
}

pub(super) fn lines(ledger: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    // Ignores a line that is only partly written.
    let complete = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    complete
        .map(|line| {
            let mut parts = line.splitn(5, ' ').map(str::to_owned);
            let mut next = || parts.next().unwrap();
            let (name, key, run, call) = (next(), next(), next(), next().parse().unwrap());
            Line { name, key, run, call, input: serde_json::from_str(&next()).unwrap() }
        })
        .collect()
}

fn may_be_repeated(line: &Line) -> bool {
    ["read", "keyed"].contains(&line.name.as_str())
}

/// No call of a non-repeatable tool is made twice. A retry of a repeatable one has the same key and input.
pub(super) fn judge_effects(clients: &Clients) {
    let mut made: BTreeMap<(String, u32), Vec<Line>> = BTreeMap::new();
    for line in lines(&clients.ledger) {
        made.entry((line.run.clone(), line.call)).or_default().push(line);
    }
    for attempts in made.values() {
        assert!(attempts.len() == 1 || may_be_repeated(&attempts[0]), "made twice: {attempts:?}");
        assert!(attempts.iter().all(|line| line.key == attempts[0].key && line.input == attempts[0].input));
    }
}

/// A run that is not in the store has made no non-repeatable call.
pub(super) fn judge_missing_run(clients: &Clients) {
    let left: Vec<Line> = lines(&clients.ledger).into_iter().filter(|line| !may_be_repeated(line)).collect();
    assert!(left.is_empty(), "effects of a run that does not exist: {left:?}");
}

/// The value of a completed run consists of the results of its tools.
pub(super) fn judge_end(clients: &Clients, program: &Program, run_id: &str, end: &Value) {
    assert_eq!(end["status"], "completed", "{end}");
    let ledger = lines(&clients.ledger);
    for (n, kind) in program.calls.iter().enumerate() {
        let got = &end["value"][n.to_string()];
        let line = ledger.iter().find(|line| line.run == run_id && line.input["n"] == n);
        if let Some(error) = got["error"].as_str() {
            assert!(error.starts_with("the outcome of this call is unknown"), "{n}: {error}");
            let reason = clients.deaths > 0 || clients.tolerance.unknown_outcomes;
            assert!(reason && !kind.may_be_repeated(), "{n} {kind:?} is unknown without a reason");
            if let Some(line) = line {
                let acknowledged = clients.acknowledged.get(&(line.run.clone(), line.call));
                assert_eq!(acknowledged, None, "{n} was acknowledged and is lost");
            }
            continue;
        }
        let line = line.unwrap_or_else(|| panic!("{n} {kind:?} has a result and no effect: {got}"));
        if kind.is_settled_externally() {
            let acknowledged = clients.acknowledged.get(&(line.run.clone(), line.call));
            let value = got["value"].as_str().unwrap();
            // An outcome may be stored without an acknowledgement if the host died or the answer was lost.
            let may_be_unacknowledged = clients.deaths > 0 || clients.tolerance.lost_answers;
            let known = acknowledged.map_or(may_be_unacknowledged, |value| *value == got["value"]);
            assert!(known && value.starts_with(&format!("settled {} ", line.call)), "{n}: {got}, {acknowledged:?}");
        } else {
            assert_eq!(got["value"]["did"], line.input, "{n}");
        }
    }
}

/// Every acknowledged write of a session value is there, once. `tokens` are those of a run that has completed.
pub(super) fn judge_values(clients: &mut Clients, tokens: &[String]) {
    let end = clients.exec_to_end("return [await load('log') ?? [], await load('last') ?? null]");
    assert_eq!(end["value"], json!([tokens, tokens.last()]), "{end}");
}

/// Every further `wait` returns the same result, and the stored state is the expected one.
pub(super) fn judge_one_end(clients: &mut Clients, run_id: &str, end: &Value, state: &str) {
    for _ in 0..2 {
        assert_eq!(clients.wait_again(run_id, end), *end);
    }
    let row = clients.ask_until_answered(&json!({"op": "run", "runId": run_id}));
    assert_eq!(row, json!({"state": state, "frozen": false}));
}
