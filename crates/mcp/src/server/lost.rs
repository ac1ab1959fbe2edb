//! `wait` without a `runId`: finds runs whose answers may not have reached the client.

use codemode::Recent;
use contract::cell::CellResult;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{Millis, RunState};
use tokio::time::Instant;

use super::flight::InFlightRun;
use super::frontend::{Call, McpService, POLL_INTERVAL, failed, refused};
use super::plain;

/// How long a finished run can be found without its id. Its result is kept longer.
const JUST_OVER_MS: Millis = 15 * 60 * 1000;

/// The maximum number of runs that one answer lists.
const MAX_LISTED: u32 = 20;

/// How much of a cell's code a listing shows, so that the model recognizes it.
const MAX_CODE_CHARS: usize = 160;

/// The meaning of a `wait` call's arguments.
pub(crate) enum WaitTarget {
    Run(String),
    Listed(Value),
    Failed(Box<CellResult>),
}

impl McpService {
    /// Finds the run that a `wait` call refers to.
    pub(crate) async fn wait_target(&self, call: &Call) -> WaitTarget {
        let given = ["runId", "run_id"].iter().find_map(|name| call.arguments.get(*name));
        match given {
            Some(Value::String(run_id)) if !run_id.trim().is_empty() => {
                return WaitTarget::Run(run_id.trim().to_owned());
            }
            None | Some(Value::Null | Value::String(_)) => {}
            Some(_) => return WaitTarget::Failed(Box::new(refused("`runId` must be a string"))),
        }
        // A run that is just starting may be the one that the client means, and is known in a moment.
        while self.flights().is_starting(&call.principal) && Instant::now() < call.until {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let (scope, now) = (call.principal.scope(), now_ms());
        let flying = self.flights().of(&call.principal);
        let recent = self.code_mode().recent(&scope, now - JUST_OVER_MS, MAX_LISTED).await;
        match recent.map(|recent| merge_candidates(recent, flying, now)) {
            Ok(Candidates::Only(run_id)) => WaitTarget::Run(run_id),
            Ok(Candidates::Several(list)) => WaitTarget::Listed(list),
            Ok(Candidates::None) => {
                WaitTarget::Failed(Box::new(refused("no cell is live or finished recently; start one with `exec`")))
            }
            Err(error) => WaitTarget::Failed(Box::new(failed(&error.to_string()))),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Candidates {
    None,
    /// The run's id.
    Only(String),
    Several(Value),
}

/// Merges the runs in the store with those in flight, which may not be in the store yet.
fn merge_candidates(recent: Vec<Recent>, flying: Vec<InFlightRun>, now: Millis) -> Candidates {
    let unwritten = flying.into_iter().filter(|one| recent.iter().all(|other| other.run_id != one.run_id));
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

#[cfg(test)]
mod tests {
    use codemode::Recent;
    use serde_json::json;
    use store::RunState;

    use super::{Candidates, InFlightRun, merge_candidates};
    use crate::server::Principal;

    fn recent(run_id: &str, started_at: i64) -> Recent {
        let source = format!(" return \"{run_id}\"\n");
        Recent { run_id: run_id.to_owned(), state: RunState::Completed, started_at, moved_at: started_at, source }
    }

    #[test]
    fn a_single_run_is_chosen_and_several_are_listed_newest_first() {
        assert_eq!(merge_candidates(vec![], vec![], 0), Candidates::None);
        assert_eq!(merge_candidates(vec![recent("cm_1", 5)], vec![], 9), Candidates::Only("cm_1".to_owned()));
        let flying = |run_id: &str| InFlightRun {
            run_id: run_id.to_owned(),
            principal: Principal::local(),
            source: "f()".to_owned(),
            started_at: 7_000,
        };
        // A run that is both in flight and in the store counts once.
        assert_eq!(
            merge_candidates(vec![recent("cm_1", 5)], vec![flying("cm_1")], 9),
            Candidates::Only("cm_1".to_owned())
        );
        let Candidates::Several(list) = merge_candidates(vec![recent("cm_1", 5_000)], vec![flying("cm_2")], 9_500)
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
}
