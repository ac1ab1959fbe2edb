//! What must be true of every history, whatever went wrong in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use store::{ApprovalState, CallState, Decision, RunState};

use super::history::{History, Started};
use super::programs::Kind;
use super::tools::Effect;

type Judged = Result<(), String>;

fn must(so: bool, what: impl FnOnce() -> String) -> Judged {
    if so { Ok(()) } else { Err(what()) }
}

/// An end, and not what a node says while something stands in its way.
pub fn is_end(result: &Value) -> bool {
    let passing = ["internal_error", "runtime_unavailable"].iter().any(|code| result["code"] == *code);
    match result["status"].as_str() {
        Some("completed") => true,
        Some("failed") => !passing,
        _ => false,
    }
}

pub fn judge(history: &mut History) -> Judged {
    made_once(history)?;
    for cell in 0..history.cells.len() {
        match history.cells[cell].run.clone() {
            Some(run) => judge_run(history, cell, &run)?,
            None => left_nothing(history, cell)?,
        }
    }
    Ok(())
}

/// No call of a default tool is made twice; one that may be is made with the same key.
fn made_once(history: &History) -> Judged {
    let mut made: BTreeMap<(String, u32), Vec<Effect>> = BTreeMap::new();
    for effect in history.world.effects().iter() {
        made.entry((effect.run.clone(), effect.call)).or_default().push(effect.clone());
    }
    for attempts in made.values() {
        let first = &attempts[0];
        must(attempts.len() == 1 || first.kind.may_be_repeated(), || format!("made twice: {attempts:?}"))?;
        let same = attempts.iter().all(|effect| effect.key == first.key && effect.input == first.input);
        must(same, || format!("repeated as another call: {attempts:?}"))?;
    }
    Ok(())
}

/// A run that nobody can find has done nothing that counts, and was told of to nobody.
fn left_nothing(history: &History, cell: usize) -> Judged {
    let cell = &history.cells[cell];
    must(cell.ends.is_empty() || history.troubles.errors, || format!("told and not written: {cell:?}"))?;
    let known: BTreeSet<&str> = history.cells.iter().filter_map(|cell| cell.run.as_deref()).collect();
    let effects = history.world.effects();
    let stray = effects.iter().find(|effect| !known.contains(effect.run.as_str()) && !effect.kind.may_be_repeated());
    must(stray.is_none(), || format!("done for a run that is not there: {stray:?}"))
}

fn judge_run(history: &mut History, cell: usize, run: &str) -> Judged {
    let state = history.eye.row(run).state;
    let end = history.told_of(0, cell, run)?;
    for node in 1..history.nodes.len() {
        let other = history.told_of(node, cell, run)?;
        must(other == end, || format!("{run} is told as {end}, and as {other}"))?;
    }
    let started = &history.cells[cell];
    must(started.ends.iter().all(|other| *other == end), || format!("{run} had two ends: {:?}", started.ends))?;
    must(history.eye.row(run).state == state, || format!("{run} ended, and then it was something else"))?;
    delivered_once(history, run, state)?;
    approved_once(history, run)?;
    match state {
        RunState::Completed => judge_value(history, started, run, &end),
        RunState::Aborted => must(started.aborted, || format!("{run} was aborted by nobody")),
        RunState::Failed => must(history.troubles.errors, || format!("{run} failed for no reason: {end}")),
        RunState::Running | RunState::Waiting | RunState::Expired => Err(format!("{run} is {state:?} in the end")),
    }
}

/// Every recorded result goes to its cell once.
fn delivered_once(history: &History, run: &str, state: RunState) -> Judged {
    let mut delivered = BTreeSet::new();
    for leg in history.eye.legs(run) {
        for call in leg.replies {
            must(delivered.insert(call), || format!("{run}: the result of call {call} was delivered twice"))?;
        }
    }
    for call in history.eye.calls(run) {
        if state == RunState::Completed && call.method == "call" {
            let told = call.state == CallState::Delivered && delivered.contains(&call.call);
            must(told, || format!("{run}: call {} has a result that was not delivered", call.call))?;
        }
    }
    Ok(())
}

/// Nothing is done without a yes; a yes is good for one call, with the input it was given for.
fn approved_once(history: &History, run: &str) -> Judged {
    let approvals = history.eye.approvals(run);
    for effect in history.world.effects().iter().filter(|effect| effect.run == run && effect.kind == Kind::Ask) {
        let approval = approvals.iter().find(|one| one.call == effect.call && one.state == ApprovalState::Used);
        let Some(approval) = approval else { return Err(format!("done without a yes: {effect:?}, {approvals:?}")) };
        let said = history.said.get(&approval.approval_id).cloned().unwrap_or_default();
        let allowed = said.iter().any(|decision| match decision {
            Decision::Approve { edited_input, .. } => edited_input.as_ref().unwrap_or(&approval.input) == &effect.input,
            Decision::Deny { .. } => false,
        });
        must(allowed, || format!("done otherwise than allowed: {effect:?}, {said:?}"))?;
    }
    Ok(())
}

/// A run that ended by itself gave what its tools gave.
fn judge_value(history: &History, started: &Started, run: &str, end: &Value) -> Judged {
    must(end["status"] == "completed", || format!("{run} is completed and told as {end}"))?;
    let effects = history.world.effects();
    for (n, kind) in started.calls.iter().enumerate() {
        let got = &end["value"][n.to_string()];
        let effect = effects.iter().find(|effect| effect.run == run && effect.input["n"] == n);
        let acknowledged = effect.and_then(|effect| history.acknowledged.get(&(run.to_owned(), effect.call)));
        let error = got["error"].as_str().unwrap_or_default();
        if error.starts_with("the outcome of this call is unknown") {
            let reason = history.troubles.nodes || history.troubles.errors;
            must(reason && !kind.may_be_repeated(), || format!("{run}: {n} {kind:?} is unknown without a reason"))?;
            must(acknowledged.is_none(), || format!("{run}: {n} was acknowledged and is lost"))?;
        } else if let Some(effect) = effect {
            let right = match kind {
                Kind::Task | Kind::Pick => {
                    let brought = got["value"].as_str().unwrap_or_default();
                    let known = acknowledged.is_none_or(|value| *value == got["value"]);
                    known && brought.starts_with(&format!("brought {} ", effect.call))
                }
                Kind::Fails => error.contains("it does that"),
                Kind::Slow | Kind::Read | Kind::Keyed | Kind::Ask => got["value"] == json!({"did": effect.input}),
            };
            must(right, || format!("{run}: {n} {kind:?} gave {got}; done was {effect:?}, told {acknowledged:?}"))?;
        } else {
            let denied = *kind == Kind::Ask && error.contains("denied");
            must(denied, || format!("{run}: {n} {kind:?} has a result and no effect: {got}"))?;
        }
    }
    Ok(())
}
