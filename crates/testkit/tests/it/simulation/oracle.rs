//! Checks the properties that every history must have, regardless of the faults in it.

use std::collections::{BTreeMap, BTreeSet};

use contract::ids::{CallId, RunId};
use serde_json::{Value, json};
use store::{ApprovalState, CallState, Decision, RunState};

use super::history::{History, StartedCell};
use super::programs::Kind;
use super::tools::Effect;

type CheckResult = Result<(), String>;

fn ensure(condition: bool, message: impl FnOnce() -> String) -> CheckResult {
    if condition { Ok(()) } else { Err(message()) }
}

/// Whether a result is final, and not the temporary failure of a node that cannot reach the store or a worker.
pub(super) fn is_end(result: &Value) -> bool {
    let temporary = ["internal_error", "runtime_unavailable"].iter().any(|code| result["code"] == *code);
    match result["status"].as_str() {
        Some("completed") => true,
        Some("failed") => !temporary,
        _ => false,
    }
}

pub(super) fn judge(history: &mut History) -> CheckResult {
    check_effects(history)?;
    check_session_values(history)?;
    for cell in 0..history.cells.len() {
        match history.cells[cell].run.clone() {
            Some(run) => check_run(history, cell, &run)?,
            None => check_missing_run(history, cell)?,
        }
    }
    Ok(())
}

/// No call of a non-repeatable tool is made twice. A retry of a repeatable one has the same key and input.
fn check_effects(history: &History) -> CheckResult {
    let mut made: BTreeMap<(RunId, CallId), Vec<Effect>> = BTreeMap::new();
    for effect in history.world.effects().iter() {
        made.entry((effect.run.clone(), effect.call)).or_default().push(effect.clone());
    }
    for attempts in made.values() {
        let first = &attempts[0];
        ensure(attempts.len() == 1 || first.kind.may_be_repeated(), || format!("made twice: {attempts:?}"))?;
        let same = attempts.iter().all(|effect| effect.key == first.key && effect.input == first.input);
        ensure(same, || format!("retried with another key or input: {attempts:?}"))?;
    }
    Ok(())
}

/// The list that all cells add to has every text of a completed run once, and those of other runs at most once. The value
/// that only one cell writes is the last that it stored.
fn check_session_values(history: &History) -> CheckResult {
    let log = history.inspector.session_value("log").unwrap_or_else(|| json!([]));
    let times = |token: &str| log.as_array().into_iter().flatten().filter(|one| **one == token).count();
    for cell in &history.cells {
        let completed = cell.run.as_ref().is_some_and(|run| history.inspector.row(run).state == RunState::Completed);
        for token in &cell.tokens {
            let count = times(token);
            ensure(count <= 1, || format!("{token} was written {count} times: {log}"))?;
            ensure(count == 1 || !completed, || format!("{token} was acknowledged and is lost: {log}"))?;
        }
        if let Some(last) = cell.tokens.last().filter(|_| completed) {
            let own = history.inspector.session_value(&cell.agent_run);
            ensure(own == Some(json!(last)), || format!("{} is {own:?} and not {last}", cell.agent_run))?;
        }
    }
    Ok(())
}

/// A cell whose run is not in the store has made no non-repeatable call, and its end was not reported.
fn check_missing_run(history: &History, cell: usize) -> CheckResult {
    let cell = &history.cells[cell];
    ensure(cell.ends.is_empty() || history.faults_injected.errors, || format!("reported but not stored: {cell:?}"))?;
    let known: BTreeSet<&RunId> = history.cells.iter().filter_map(|cell| cell.run.as_ref()).collect();
    let effects = history.world.effects();
    let stray = effects.iter().find(|effect| !known.contains(&effect.run) && !effect.kind.may_be_repeated());
    ensure(stray.is_none(), || format!("effect of a run that does not exist: {stray:?}"))
}

fn check_run(history: &mut History, cell: usize, run: &RunId) -> CheckResult {
    let state = history.inspector.row(run).state;
    let end = history.final_result(0, cell, run)?;
    for node in 1..history.nodes.len() {
        let other = history.final_result(node, cell, run)?;
        ensure(other == end, || format!("{run} is reported as {end} and as {other}"))?;
    }
    let started = &history.cells[cell];
    ensure(started.ends.iter().all(|other| *other == end), || format!("{run} had two ends: {:?}", started.ends))?;
    ensure(history.inspector.row(run).state == state, || format!("{run} changed its state after its end"))?;
    check_deliveries(history, run, state)?;
    check_approvals(history, run)?;
    match state {
        RunState::Completed => check_value(history, started, run, &end),
        RunState::Aborted => {
            ensure(started.aborted, || format!("{run} was aborted, but no client requested it"))?;
            check_listed_effects(history, run, &end)
        }
        RunState::Failed => {
            ensure(history.faults_injected.errors, || format!("{run} failed for no reason: {end}"))?;
            check_listed_effects(history, run, &end)
        }
        RunState::Running | RunState::Waiting | RunState::Expired => Err(format!("{run} is {state:?} in the end")),
    }
}

/// The result of a run that did not complete lists every call of a non-repeatable tool that took effect, and no call that
/// only reads. A call of a repeatable tool may be made before it is journaled.
fn check_listed_effects(history: &History, run: &RunId, end: &Value) -> CheckResult {
    let listed = |effect: &Effect| {
        let mut effects = end["effects"].as_array().into_iter().flatten();
        effects.any(|one| one["call"] == effect.call.0 && one["tool"] == effect.kind.tool())
    };
    for effect in history.world.effects().iter().filter(|effect| effect.run == *run) {
        let known = listed(effect) || effect.kind.may_be_repeated();
        ensure(known, || format!("{run} does not list {effect:?}: {end}"))?;
        ensure(effect.kind != Kind::Read || !listed(effect), || format!("{run} lists a call that only reads: {end}"))?;
    }
    Ok(())
}

/// Every stored result is delivered to its cell exactly once.
fn check_deliveries(history: &History, run: &RunId, state: RunState) -> CheckResult {
    let mut delivered = BTreeSet::new();
    for leg in history.inspector.legs(run) {
        for call in leg.replies {
            ensure(delivered.insert(call), || format!("{run}: the result of call {call} was delivered twice"))?;
        }
    }
    for call in history.inspector.calls(run) {
        if state == RunState::Completed && call.method == "call" {
            let is_delivered = call.state == CallState::Delivered && delivered.contains(&call.call);
            ensure(is_delivered, || format!("{run}: call {} has a result that was not delivered", call.call))?;
        }
    }
    Ok(())
}

/// A call that needs approval has an approval of its own, for the input it was made with.
fn check_approvals(history: &History, run: &RunId) -> CheckResult {
    let approvals = history.inspector.approvals(run);
    for effect in history.world.effects().iter().filter(|effect| effect.run == *run && effect.kind == Kind::Ask) {
        let approval = approvals.iter().find(|one| one.call == effect.call && one.state == ApprovalState::Used);
        let Some(approval) = approval else {
            return Err(format!("effect without approval: {effect:?}, {approvals:?}"));
        };
        let decisions = history.decisions.get(&approval.approval_id).cloned().unwrap_or_default();
        let allowed = decisions.iter().any(|decision| match decision {
            Decision::Approve { edited_input, .. } => edited_input.as_ref().unwrap_or(&approval.input) == &effect.input,
            Decision::Deny { .. } => false,
        });
        ensure(allowed, || format!("effect differs from the approved input: {effect:?}, {decisions:?}"))?;
    }
    Ok(())
}

/// The value of a completed run consists of the results of its tools.
fn check_value(history: &History, started: &StartedCell, run: &RunId, end: &Value) -> CheckResult {
    ensure(end["status"] == "completed", || format!("{run} is completed but reported as {end}"))?;
    let effects = history.world.effects();
    for (n, kind) in started.calls.iter().enumerate() {
        let got = &end["value"][n.to_string()];
        let effect = effects.iter().find(|effect| effect.run == *run && effect.input["n"] == n);
        let acknowledged = effect.and_then(|effect| history.acknowledged.get(&(run.clone(), effect.call)));
        let error = got["error"].as_str().unwrap_or_default();
        if error.starts_with("the outcome of this call is unknown") {
            let reason = history.faults_injected.nodes || history.faults_injected.errors;
            ensure(reason && !kind.may_be_repeated(), || format!("{run}: {n} {kind:?} is unknown without a reason"))?;
            ensure(acknowledged.is_none(), || format!("{run}: {n} was acknowledged and is lost"))?;
        } else if let Some(effect) = effect {
            let right = match kind {
                Kind::Task | Kind::Pick => {
                    let value = got["value"].as_str().unwrap_or_default();
                    let known = acknowledged.is_none_or(|value| *value == got["value"]);
                    known && value.starts_with(&format!("settled {} ", effect.call))
                }
                Kind::Fails => error.contains("it does that"),
                Kind::Slow | Kind::Read | Kind::Keyed | Kind::Ask => got["value"] == json!({"did": effect.input}),
            };
            ensure(right, || {
                format!("{run}: {n} {kind:?} gave {got}; the effect was {effect:?}, acknowledged {acknowledged:?}")
            })?;
        } else {
            let denied = *kind == Kind::Ask && error.contains("denied");
            ensure(denied, || format!("{run}: {n} {kind:?} has a result and no effect: {got}"))?;
        }
    }
    Ok(())
}
