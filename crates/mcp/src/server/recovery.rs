//! Recovery of answers that did not reach the client.
//!
//! `wait` without a `runId` finds runs whose answers may have been lost. Output of a turn that reached no client is
//! added to the run's next answer: a result contains only the output since the previous result, so output would be lost
//! if the server resumes the run itself, sends a question instead of the result, or finds the client disconnected.

use std::collections::VecDeque;
use std::sync::Arc;

use codemode::{CodeMode, Recent};
use contract::cell::{CellResult, OutputItem};
use contract::ids::RunId;
use executor::clock::now_ms;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Millis, RunState};
use tokio::time::Instant;

use super::answer::{failed, refused};
use super::calls::{Call, InFlight, InFlightRun, POLL_INTERVAL};
use super::plain;
use super::principal::Principal;

/// How long a finished run can be found without its id. Its result is kept longer.
const JUST_OVER_MS: Millis = 15 * 60 * 1000;

/// The maximum number of runs that one answer lists.
const MAX_LISTED: u32 = 20;

/// How much of a cell's code a listing shows, so that the model recognizes it.
const MAX_CODE_CHARS: usize = 160;

/// The maximum number of runs that output is kept for. A new run replaces the oldest.
const MAX_UNDELIVERED_RUNS: usize = 256;

/// The meaning of a `wait` call's arguments.
pub(crate) enum WaitTarget {
    Run(RunId),
    Listed(Value),
    Failed(Box<CellResult>),
}

/// Finds the run that a `wait` call refers to.
pub(crate) async fn wait_target(code_mode: &CodeMode, in_flight: &InFlight, call: &Call) -> WaitTarget {
    let given = ["runId", "run_id"].iter().find_map(|name| call.arguments.get(*name));
    match given {
        Some(Value::String(run_id)) if !run_id.trim().is_empty() => {
            return WaitTarget::Run(run_id.trim().into());
        }
        None | Some(Value::Null | Value::String(_)) => {}
        Some(_) => return WaitTarget::Failed(Box::new(refused("`runId` must be a string"))),
    }
    // A run that is just starting may be the one that the client means, and is known in a moment.
    while in_flight.is_starting(&call.principal) && Instant::now() < call.until {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let (scope, now) = (call.principal.scope(), now_ms());
    let in_flight = in_flight.of(&call.principal);
    let recent = code_mode.recent(&scope, now - JUST_OVER_MS, MAX_LISTED).await;
    match recent.map(|recent| merge_candidates(recent, in_flight, now)) {
        Ok(Candidates::Only(run_id)) => WaitTarget::Run(run_id),
        Ok(Candidates::Several(list)) => WaitTarget::Listed(list),
        Ok(Candidates::None) => {
            WaitTarget::Failed(Box::new(refused("no cell is live or finished recently; start one with `exec`")))
        }
        Err(error) => WaitTarget::Failed(Box::new(failed(&error.to_string()))),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Candidates {
    None,
    /// The run's id.
    Only(RunId),
    Several(Value),
}

/// Merges the runs in the store with those in flight, which may not be in the store yet.
fn merge_candidates(recent: Vec<Recent>, in_flight: Vec<InFlightRun>, now: Millis) -> Candidates {
    let unwritten = in_flight.into_iter().filter(|one| recent.iter().all(|other| other.run_id != one.run_id));
    let unwritten = unwritten.map(|one| Recent {
        run_id: one.run_id,
        state: RunState::Running,
        started_at: one.started_at,
        moved_at: one.started_at,
        source: one.source,
    });
    let mut all: Vec<Recent> = unwritten.collect();
    all.extend(recent);
    all.sort_by(|a, b| b.started_at.cmp(&a.started_at).then_with(|| a.run_id.cmp(&b.run_id)));
    all.truncate(MAX_LISTED as usize);
    match all.as_slice() {
        [] => Candidates::None,
        [only] => Candidates::Only(only.run_id.clone()),
        several => Candidates::Several(json!({
            "status": "listed",
            "message": "Several cells are live or finished recently; call `wait` with the `runId` of the one you mean.",
            "runs": several.iter().map(|run| shown(run, now)).collect::<Vec<_>>(),
        })),
    }
}

fn shown(run: &Recent, now: Millis) -> Value {
    let ago = |then: Millis| now.saturating_sub(then).max(0) / 1000;
    json!({
        "runId": run.run_id,
        "state": run.state.as_str(),
        "startedSecondsAgo": ago(run.started_at),
        "movedSecondsAgo": ago(run.moved_at),
        "code": plain(run.source.trim(), MAX_CODE_CHARS),
    })
}

/// Output that reached no client. It is kept in this process only: the final result of a run is stored complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct UndeliveredOutput(Arc<Mutex<VecDeque<RunOutput>>>);

/// The output of one run. It is looked up by principal and run id: a client that guesses a run's id must not get its
/// output.
#[derive(Debug)]
struct RunOutput {
    principal: Principal,
    run_id: RunId,
    output: Vec<OutputItem>,
}

impl UndeliveredOutput {
    /// Takes the output out of a result that is not sent. Final results are stored and need no copy here.
    pub(crate) fn keep(&self, principal: &Principal, result: &mut CellResult) {
        let CellResult::Waiting { run_id, output, .. } = result else { return };
        let output = std::mem::take(output);
        if output.is_empty() {
            return;
        }
        let mut kept = self.0.lock();
        if let Some(more) = kept.iter_mut().find(|kept| kept.is_of(principal, run_id)) {
            more.output.extend(output);
            return;
        }
        if kept.len() == MAX_UNDELIVERED_RUNS {
            kept.pop_front();
        }
        kept.push_back(RunOutput { principal: principal.clone(), run_id: run_id.clone(), output });
    }

    /// Prepends the kept output of a run to the output of its current result.
    pub(crate) fn prepend_to(&self, principal: &Principal, run_id: &RunId, result: &mut CellResult) {
        let mut kept = self.0.lock();
        let Some(position) = kept.iter().position(|kept| kept.is_of(principal, run_id)) else { return };
        let Some(RunOutput { output: mut before, .. }) = kept.remove(position) else { return };
        match result {
            CellResult::Completed { output, .. }
            | CellResult::Waiting { output, .. }
            | CellResult::Failed { output, .. } => {
                before.append(output);
                *output = before;
            }
        }
    }
}

impl RunOutput {
    fn is_of(&self, principal: &Principal, run_id: &RunId) -> bool {
        self.principal == *principal && self.run_id == *run_id
    }
}

#[cfg(test)]
mod tests {
    use codemode::Recent;
    use contract::cell::{CellResult, OutputItem, Telemetry, WaitingReason};
    use serde_json::json;
    use store::RunState;

    use super::{Candidates, InFlightRun, UndeliveredOutput, merge_candidates};
    use crate::server::Principal;

    fn recent(run_id: &str, started_at: i64) -> Recent {
        let source = format!(" return \"{run_id}\"\n");
        Recent { run_id: run_id.into(), state: RunState::Completed, started_at, moved_at: started_at, source }
    }

    #[test]
    fn a_single_run_is_chosen_and_several_are_listed_newest_first() {
        assert_eq!(merge_candidates(vec![], vec![], 0), Candidates::None);
        assert_eq!(merge_candidates(vec![recent("cm_1", 5)], vec![], 9), Candidates::Only("cm_1".into()));
        let in_flight = |run_id: &str| InFlightRun {
            run_id: run_id.into(),
            principal: Principal::local(),
            source: "f()".to_owned(),
            started_at: 7_000,
        };
        // A run that is both in flight and in the store counts once.
        assert_eq!(
            merge_candidates(vec![recent("cm_1", 5)], vec![in_flight("cm_1")], 9),
            Candidates::Only("cm_1".into())
        );
        let Candidates::Several(list) = merge_candidates(vec![recent("cm_1", 5_000)], vec![in_flight("cm_2")], 9_500)
        else {
            panic!()
        };
        assert_eq!(list["status"], "listed");
        assert_eq!(
            list["runs"],
            json!([
                {"runId": "cm_2", "state": "running", "startedSecondsAgo": 2, "movedSecondsAgo": 2, "code": "f()"},
                {"runId": "cm_1", "state": "completed", "startedSecondsAgo": 4, "movedSecondsAgo": 4,
                 "code": "return \"cm_1\""},
            ])
        );
    }

    fn waiting(run_id: &str, texts: &[&str]) -> CellResult {
        CellResult::Waiting {
            run_id: run_id.into(),
            reason: WaitingReason::Yield,
            pending_tool_calls: Vec::new(),
            output: texts.iter().map(|text| OutputItem::Text { text: (*text).to_owned() }).collect(),
            telemetry: Telemetry::default(),
        }
    }

    fn texts(result: &CellResult) -> Vec<&str> {
        let items = result.output().iter();
        items.map(|item| if let OutputItem::Text { text } = item { text.as_str() } else { "" }).collect()
    }

    #[test]
    fn undelivered_output_precedes_the_next_output_once() {
        let undelivered = UndeliveredOutput::default();
        let (me, other) = (Principal::local(), Principal::named("other").unwrap());
        undelivered.keep(&me, &mut waiting("a", &["1"]));
        undelivered.keep(&me, &mut waiting("a", &["2"]));
        undelivered.keep(&me, &mut waiting("b", &["of another run"]));
        let mut guessed = waiting("a", &[]);
        undelivered.prepend_to(&other, &"a".into(), &mut guessed);
        assert!(texts(&guessed).is_empty());
        let mut next = waiting("a", &["3"]);
        undelivered.prepend_to(&me, &"a".into(), &mut next);
        assert_eq!(texts(&next), ["1", "2", "3"]);
        let mut later = waiting("a", &["4"]);
        undelivered.prepend_to(&me, &"a".into(), &mut later);
        assert_eq!(texts(&later), ["4"]);
    }
}
