//! Recovery of answers that did not reach the client.
//!
//! `wait` without a `runId` means the only live run of the same client. If there is none, it finds runs that have just ended, whose answers
//! may have been lost. Output of a turn that reached no client is added to the run's next answer: a result contains only
//! the output since the previous result, so output would be lost if the server resumes the run itself, sends a question
//! instead of the result, or finds the client disconnected.

use std::collections::VecDeque;
use std::sync::Arc;

use codemode::{CodeMode, RecentRun};
use contract::cell::{CellResult, OutputItem};
use contract::ids::RunId;
use contract::limits::MAX_UNDELIVERED_BYTES;
use executor::clock::now_ms;
use executor::internal_message;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Millis, RunState, StoreError};
use telemetry::LogIgnored;

use super::answer::{Answer, failed, refused};
use super::calls::{Call, InFlightRun, InFlightRuns};
use super::plain;
use super::principal::{Principal, PrincipalScope};

/// How long a finished run can be found without its id. Its result is kept longer.
const JUST_OVER_MS: Millis = 15 * 60 * 1000;

/// The maximum number of runs that one answer lists.
const MAX_LISTED: u32 = 10;

/// How much of a cell's code a listing shows, so that the model recognizes it.
const MAX_CODE_CHARS: usize = 120;

/// The maximum number of runs that output is kept for. With more, or with more bytes, the oldest is dropped.
const MAX_UNDELIVERED_RUNS: usize = 256;

/// The meaning of a `wait` call's arguments.
pub(crate) enum WaitTarget {
    Run(RunId),
    /// There is no run to wait for.
    Nothing(Answer),
}

/// Finds the run that a `wait` call refers to.
pub(crate) async fn wait_target(code_mode: &CodeMode, in_flight: &InFlightRuns, call: &Call) -> WaitTarget {
    let given = ["runId", "run_id"].iter().find_map(|name| call.arguments.get(*name));
    match given {
        Some(Value::String(run_id)) if !run_id.trim().is_empty() => {
            return named(code_mode, in_flight, call, run_id.trim().into()).await;
        }
        None | Some(Value::Null | Value::String(_)) => {}
        Some(_) => return WaitTarget::Nothing(Answer::of(&refused("`runId` must be a string"), &[])),
    }
    // A run that is just starting may be the one that the client means, and is known in a moment.
    let started = in_flight.wait_for_start(&call.principal, &call.client);
    tokio::time::timeout_at(call.until, started).await.log_expected("wait for a run that is starting");
    unnamed(code_mode, in_flight, call).await.unwrap_or_else(|error| {
        let advice = "the store cannot be read, so no cell was found; try again";
        let message = internal_message("find the run of a `wait` without a run id", &error, advice);
        WaitTarget::Nothing(Answer::of(&failed(&message), &[]))
    })
}

/// Checks that a run exists. If it does not, the answer lists the caller's live runs.
async fn named(code_mode: &CodeMode, in_flight: &InFlightRuns, call: &Call, run_id: RunId) -> WaitTarget {
    if in_flight.has(&run_id, &call.principal) {
        return WaitTarget::Run(run_id);
    }
    match code_mode.has_run(&call.principal.scope(), &run_id).await {
        // If the store cannot be read, `wait` reports it.
        Ok(true) | Err(_) => WaitTarget::Run(run_id),
        Ok(false) => {
            let live = live(code_mode, in_flight, call).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the live runs of a client cannot be listed");
                Vec::new()
            });
            let message = match live.as_slice() {
                [] => {
                    "no such run, and you have no live cell; `wait` takes the `runId` of a result whose status is \
                       \"waiting\""
                }
                [_] => "no such run; your live cell is in `runs`, and `wait` without `runId` waits for it",
                _ => "no such run; your live cells are in `runs`, newest first",
            };
            let now = now_ms();
            let runs = live.iter().map(|run| shown(run, now)).collect();
            WaitTarget::Nothing(Answer::of(&refused(message), &[]).with_runs(runs))
        }
    }
}

/// Finds the run that a call without a `runId` means: the only live run, or else the only one that has just ended.
async fn unnamed(code_mode: &CodeMode, in_flight: &InFlightRuns, call: &Call) -> Result<WaitTarget, StoreError> {
    let live = live(code_mode, in_flight, call).await?;
    let now = now_ms();
    let (candidates, message) = match live.as_slice() {
        [] => {
            let scope = call.client.scope(&call.principal);
            let ended = code_mode.recent(&scope, now.saturating_sub(JUST_OVER_MS), MAX_LISTED).await?;
            (
                ended,
                "No cell is live. These ended in the last 15 minutes; `wait` with a `runId` returns a result again.",
            )
        }
        [_, ..] => (live, "Several cells are live; call `wait` with the `runId` of the one you mean."),
    };
    Ok(match candidates.as_slice() {
        [] => WaitTarget::Nothing(Answer::of(&refused("no cell is live; start one with `exec`"), &[])),
        [only] => WaitTarget::Run(only.run_id.clone()),
        several => WaitTarget::Nothing(Answer::listed(json!({
            "status": "listed",
            "message": message,
            "runs": several.iter().map(|run| shown(run, now)).collect::<Vec<_>>(),
        }))),
    })
}

/// Returns the live runs that the caller has started, newest first.
async fn live(code_mode: &CodeMode, in_flight: &InFlightRuns, call: &Call) -> Result<Vec<RecentRun>, StoreError> {
    let in_flight = in_flight.of(&call.principal, &call.client);
    Ok(merged(code_mode.live(&call.client.scope(&call.principal), MAX_LISTED).await?, in_flight))
}

/// Merges the runs in the store with those in flight, which may not be in the store yet.
fn merged(stored: Vec<RecentRun>, in_flight: Vec<InFlightRun>) -> Vec<RecentRun> {
    let unwritten = in_flight.into_iter().filter(|one| stored.iter().all(|other| other.run_id != one.run_id));
    let unwritten = unwritten.map(|one| RecentRun {
        run_id: one.run_id,
        state: RunState::Running,
        started_at: one.started_at,
        moved_at: one.started_at,
        source: one.source,
    });
    let mut all: Vec<RecentRun> = unwritten.collect();
    all.extend(stored);
    all.sort_by(|a, b| b.started_at.cmp(&a.started_at).then_with(|| a.run_id.cmp(&b.run_id)));
    all.truncate(MAX_LISTED as usize);
    all
}

fn shown(run: &RecentRun, now: Millis) -> Value {
    let ago = |then: Millis| now.saturating_sub(then).max(0) / 1000;
    json!({
        "runId": run.run_id,
        "state": run.state.as_str(),
        "startedSecondsAgo": ago(run.started_at),
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
        let former = kept.iter().position(|kept| kept.is_of(principal, run_id));
        let mut run = former.and_then(|position| kept.remove(position)).unwrap_or_else(|| RunOutput {
            principal: principal.clone(),
            run_id: run_id.clone(),
            output: Vec::new(),
        });
        run.output.extend(output);
        kept.push_back(run);
        let mut bytes: usize = kept.iter().map(RunOutput::bytes).sum();
        while kept.len() > MAX_UNDELIVERED_RUNS || bytes > MAX_UNDELIVERED_BYTES {
            let Some(oldest) = kept.pop_front() else { break };
            tracing::warn!(run_id = oldest.run_id.as_str(), "output that reached no client is dropped");
            bytes = bytes.saturating_sub(oldest.bytes());
        }
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
    /// The bytes in memory, with those of images and sounds.
    fn bytes(&self) -> usize {
        let of = |item: &OutputItem| match item {
            OutputItem::Image(media) | OutputItem::Audio(media) => item.bytes() + media.data.len(),
            OutputItem::Text { .. } | OutputItem::Json { .. } | OutputItem::Stored(_) => item.bytes(),
        };
        self.output.iter().map(of).sum()
    }

    fn is_of(&self, principal: &Principal, run_id: &RunId) -> bool {
        self.principal == *principal && self.run_id == *run_id
    }
}

#[cfg(test)]
mod tests {
    use codemode::RecentRun;
    use contract::cell::{CellResult, Media, OutputItem, Telemetry, WaitingReason};
    use serde_json::json;
    use store::RunState;

    use super::{InFlightRun, MAX_LISTED, MAX_UNDELIVERED_BYTES, UndeliveredOutput, merged, shown};
    use crate::server::Principal;
    use crate::server::client_key::ClientKey;

    fn recent(run_id: &str, started_at: i64) -> RecentRun {
        let source = format!(" return \"{run_id}\"\n");
        RecentRun { run_id: run_id.into(), state: RunState::Completed, started_at, moved_at: started_at, source }
    }

    #[test]
    fn runs_are_listed_once_newest_first_and_bounded() {
        assert!(merged(vec![], vec![]).is_empty());
        let in_flight = |run_id: &str| InFlightRun {
            run_id: run_id.into(),
            principal: Principal::local(),
            client: ClientKey::new("test", None),
            source: "f()".to_owned(),
            started_at: 7_000,
        };
        // A run that is both in flight and in the store counts once.
        assert_eq!(merged(vec![recent("cm_1", 5)], vec![in_flight("cm_1")]), [recent("cm_1", 5)]);
        let both = merged(vec![recent("cm_1", 5_000)], vec![in_flight("cm_2")]);
        let listed: Vec<_> = both.iter().map(|run| shown(run, 9_500)).collect();
        assert_eq!(
            listed,
            [
                json!({"runId": "cm_2", "state": "running", "startedSecondsAgo": 2, "code": "f()"}),
                json!({"runId": "cm_1", "state": "completed", "startedSecondsAgo": 4, "code": "return \"cm_1\""}),
            ]
        );
        let many: Vec<_> = (0..100).map(|number| in_flight(&format!("cm_{number}"))).collect();
        assert_eq!(merged(vec![recent("cm_x", 5)], many).len(), MAX_LISTED as usize);
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
    fn undelivered_output_has_bounded_bytes_with_its_media() {
        let undelivered = UndeliveredOutput::default();
        let me = Principal::local();
        let with_image = |run_id: &str, bytes: usize| {
            let mut result = waiting(run_id, &["1"]);
            let CellResult::Waiting { output, .. } = &mut result else { unreachable!() };
            let media = Media { mime_type: "image/png".to_owned(), data: vec![0; bytes].into(), handle: None };
            output.push(OutputItem::Image(media));
            result
        };
        undelivered.keep(&me, &mut with_image("a", MAX_UNDELIVERED_BYTES / 2));
        undelivered.keep(&me, &mut with_image("b", MAX_UNDELIVERED_BYTES / 2));
        let mut next = waiting("a", &[]);
        undelivered.prepend_to(&me, &"a".into(), &mut next);
        assert!(next.output().is_empty(), "the oldest was dropped");
        let mut next = waiting("b", &[]);
        undelivered.prepend_to(&me, &"b".into(), &mut next);
        assert_eq!(next.output().len(), 2);
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
