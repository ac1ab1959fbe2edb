//! What must be true whatever happened: judged by the tools' ledger, which no crash of the host can change.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::people::People;
use super::program::Program;

/// One effect.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub key: String,
    pub run: String,
    pub call: u32,
    pub input: Value,
}

pub fn lines(ledger: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    // A line that is just being written is not there yet.
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    whole
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

/// No call of a default tool is made twice; one that may be is made with the same key.
pub fn judge_effects(people: &People) {
    let mut made: BTreeMap<(String, u32), Vec<Line>> = BTreeMap::new();
    for line in lines(&people.ledger) {
        made.entry((line.run.clone(), line.call)).or_default().push(line);
    }
    for attempts in made.values() {
        assert!(attempts.len() == 1 || may_be_repeated(&attempts[0]), "made twice: {attempts:?}");
        assert!(attempts.iter().all(|line| line.key == attempts[0].key && line.input == attempts[0].input));
    }
}

/// A run that nobody can find has done nothing that counts.
pub fn judge_nothing(people: &People) {
    let left: Vec<Line> = lines(&people.ledger).into_iter().filter(|line| !may_be_repeated(line)).collect();
    assert!(left.is_empty(), "done for a run that is not there: {left:?}");
}

/// A run that ended by itself gave what its tools gave.
pub fn judge_end(people: &People, program: &Program, run_id: &str, end: &Value) {
    assert_eq!(end["status"], "completed", "{end}");
    let ledger = lines(&people.ledger);
    for (n, kind) in program.calls.iter().enumerate() {
        let got = &end["value"][n.to_string()];
        let line = ledger.iter().find(|line| line.run == run_id && line.input["n"] == n);
        if let Some(error) = got["error"].as_str() {
            assert!(error.starts_with("the outcome of this call is unknown"), "{n}: {error}");
            let reason = people.deaths > 0 || people.expects.unknown_outcomes;
            assert!(reason && !kind.may_be_repeated(), "{n} {kind:?} is unknown without a reason");
            if let Some(line) = line {
                let acknowledged = people.acknowledged.get(&(line.run.clone(), line.call));
                assert_eq!(acknowledged, None, "{n} was acknowledged and is lost");
            }
            continue;
        }
        let line = line.unwrap_or_else(|| panic!("{n} {kind:?} has a result and no effect: {got}"));
        if kind.is_brought() {
            let acknowledged = people.acknowledged.get(&(line.run.clone(), line.call));
            let brought = got["value"].as_str().unwrap();
            // What was brought just before a death, or whose answer was lost, may count without anybody having been told.
            let untold = people.deaths > 0 || people.expects.lost_answers;
            let known = acknowledged.map_or(untold, |value| *value == got["value"]);
            assert!(known && brought.starts_with(&format!("brought {} ", line.call)), "{n}: {got}, {acknowledged:?}");
        } else {
            assert_eq!(got["value"]["did"], line.input, "{n}");
        }
    }
}

/// Whoever asks again is told the same, by this host and the next.
pub fn judge_one_end(people: &mut People, run_id: &str, end: &Value, state: &str) {
    for _ in 0..2 {
        assert_eq!(people.told(run_id, end), *end);
    }
    let row = people.insist(&json!({"op": "run", "runId": run_id}));
    assert_eq!(row, json!({"state": state, "frozen": false}));
}
