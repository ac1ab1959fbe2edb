//! Checks the properties that every history of turns must have, regardless of the faults in it.

use std::collections::{BTreeMap, BTreeSet};

use contract::ids::{CallId, RunId, TurnId};
use gateway::turn::record::{NextStep, Step, TurnEnd, TurnRecord};
use serde_json::{Value, json};
use store::{RunState, TurnState};
use wire::conversation::{CallResult, Part};

use super::history::{ObservedTurn, TurnHistory};

type CheckResult = Result<(), String>;

fn ensure(condition: bool, message: impl FnOnce() -> String) -> CheckResult {
    if condition { Ok(()) } else { Err(message()) }
}

/// Checks a history: the properties below of each turn, and that no message of a user is added to turns twice.
pub(super) fn judge(history: &TurnHistory) -> CheckResult {
    let (mut steered, mut delivered) = (BTreeSet::new(), BTreeMap::new());
    for turn in history.turns.values() {
        let steps: Result<Vec<Step>, _> = turn.steps.iter().map(|step| serde_json::from_str(&step.body)).collect();
        let steps = steps.map_err(|error| format!("{} cannot be read: {error}", turn.row.turn_id))?;
        check_end(turn, &steps)?;
        check_deliveries(history, turn, &steps, &mut delivered)?;
        check_answers(history, turn, &steps)?;
        for parts in steps.iter().filter_map(|step| if let Step::Steered(parts) = step { Some(parts) } else { None }) {
            let text = json!(parts).to_string();
            ensure(steered.insert(text.clone()), || format!("{} has {text} twice", turn.row.turn_id))?;
        }
    }
    check_effects(history)
}

/// A turn that has ended has one end, and it is the last step. A turn without an end waits for the client. No turn fails:
/// the faults of the simulation are not a reason.
fn check_end(turn: &ObservedTurn, steps: &[Step]) -> CheckResult {
    let ends: Vec<&TurnEnd> =
        steps.iter().filter_map(|step| if let Step::Ended(end) = step { Some(end) } else { None }).collect();
    let (id, state) = (&turn.row.turn_id, turn.row.state);
    let expected = match ends.as_slice() {
        [] => TurnState::Waiting,
        [TurnEnd::Completed(_) | TurnEnd::Held { .. }] => TurnState::Completed,
        [TurnEnd::Failed { .. }] => TurnState::Failed,
        [TurnEnd::Aborted { .. }] => TurnState::Aborted,
        _ => return Err(format!("{id} has {} ends: {steps:?}", ends.len())),
    };
    ensure(state == expected, || format!("{id} is {state:?} with these steps: {steps:?}"))?;
    ensure(ends.is_empty() || matches!(steps.last(), Some(Step::Ended(_))), || {
        format!("{id} continues after its end")
    })?;
    ensure(state != TurnState::Failed, || format!("{id} failed for no reason: {steps:?}"))?;
    let record = TurnRecord::from_steps(steps.to_vec()).map_err(|error| error.to_string())?;
    let waits = matches!(record.next(), NextStep::Client(_));
    ensure(waits == (state == TurnState::Waiting), || format!("{id} is {state:?} before {:?}", record.next()))
}

/// A call of a run is sent to the client once, by one turn: if the client received it again under another id, it would
/// make it again. Every call that was sent is stored as a delivery.
fn check_deliveries(
    history: &TurnHistory,
    turn: &ObservedTurn,
    steps: &[Step],
    delivered: &mut BTreeMap<(RunId, CallId), TurnId>,
) -> CheckResult {
    let id = &turn.row.turn_id;
    let rows = history.inspector.deliveries_of_turn(id);
    let mut calls = 0;
    for call in steps.iter().flat_map(|step| if let Step::Delivered(calls) = step { calls.as_slice() } else { &[] }) {
        calls += 1;
        let before = delivered.insert((call.run_id.clone(), call.call), id.clone());
        ensure(before.is_none(), || format!("{id} sent {call:?}, which {before:?} has sent"))?;
        let row = rows.iter().find(|row| row.call_id == call.client.id);
        let is_stored = row.is_some_and(|row| row.run_id == call.run_id && row.call == call.call);
        ensure(is_stored, || format!("{id} sent {call:?}, which is stored as {row:?}"))?;
    }
    ensure(calls == rows.len(), || format!("{id} has {calls} calls in its steps and {} rows", rows.len()))
}

/// A turn has one result for each call, a client has sent it, and the cell receives it.
fn check_answers(history: &TurnHistory, turn: &ObservedTurn, steps: &[Step]) -> CheckResult {
    let id = &turn.row.turn_id;
    let mut answers: BTreeMap<String, String> = BTreeMap::new();
    for step in steps {
        let Step::Answered(given) = step else { continue };
        for result in &given.results {
            let text = text_of(result);
            let before = answers.insert(result.call_id.clone(), text.clone());
            ensure(before.is_none(), || format!("{id}: {} has two results", result.call_id))?;
            let sent = history.conversations.iter().filter_map(|one| one.results.get(&result.call_id));
            let value: Value = serde_json::from_str(&text).unwrap_or_default();
            let is_sent = sent.flatten().any(|sent| value == *sent);
            ensure(is_sent, || format!("{id}: no client sent {text} for {}", result.call_id))?;
        }
    }
    let record = TurnRecord::from_steps(steps.to_vec()).map_err(|error| error.to_string())?;
    let calls = steps.iter().flat_map(|step| if let Step::Delivered(calls) = step { calls.as_slice() } else { &[] });
    for call in calls {
        let Some(answer) = answers.get(&call.client.id) else { continue };
        let run = history.inspector.row(&call.run_id);
        let row = history.inspector.calls(&call.run_id).into_iter().find(|row| row.call == call.call);
        let outcome = row.and_then(|row| row.outcome).unwrap_or_default();
        let value: Value = serde_json::from_str(answer).unwrap_or_default();
        let is_applied = outcome.contains(value.as_str().unwrap_or("no result"));
        // An aborted run may have ended before it received the result.
        let is_aborted = run.state == RunState::Aborted || turn.row.state == TurnState::Aborted;
        ensure(is_applied || is_aborted, || {
            format!("{id}: {} was answered with {answer}, and its cell has {outcome}", call.client.id)
        })?;
        if run.state == RunState::Completed {
            check_value(&record, &call.client.arguments, &value)?;
        }
    }
    Ok(())
}

/// The result of a completed cell that the model received contains the client's result.
fn check_value(record: &TurnRecord, arguments: &str, value: &Value) -> CheckResult {
    let arguments: Value = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    for step in record.steps() {
        let Step::Result(given) = step else { continue };
        let result: Value = serde_json::from_str(&text_of(&given.result)).unwrap_or_default();
        let got = &result["value"]["got"][arguments["n"].to_string()];
        ensure(got.is_null() || got == value, || format!("a cell received {got} instead of {value}: {result}"))?;
    }
    Ok(())
}

/// Returns the texts of a result, joined.
fn text_of(result: &CallResult) -> String {
    let texts =
        result.parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None });
    texts.collect()
}

/// No call of a tool that must not be repeated is made twice.
fn check_effects(history: &TurnHistory) -> CheckResult {
    let mut made = BTreeSet::new();
    for effect in history.world.effects().iter().filter(|effect| !effect.kind.may_be_repeated()) {
        let is_new = made.insert((effect.run.clone(), effect.call));
        ensure(is_new, || format!("made twice: {effect:?}"))?;
    }
    Ok(())
}
