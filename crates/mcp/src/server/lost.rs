//! `wait` without a `runId`: the cells whose answers may have been lost on their way.

use codemode::Recent;
use contract::cell::CellResult;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{Millis, RunState};
use tokio::time::Instant;

use super::flight::InFlightRun;
use super::frontend::{Call, LOOK_EVERY, McpService, failed, refused};
use super::plain;

/// How long a cell that is over can be found without its id. Its result is kept longer.
const JUST_OVER_MS: Millis = 15 * 60 * 1000;

/// Cells that one answer lists.
const MAX_LISTED: u32 = 20;

/// What of a cell's code tells it from others.
const MAX_CODE_CHARS: usize = 160;

/// What `wait` was asked for.
pub(crate) enum WaitTarget {
    Run(String),
    Listed(Value),
    Failed(Box<CellResult>),
}

impl McpService {
    /// Which run `wait` means.
    pub(crate) async fn wanted(&self, call: &Call) -> WaitTarget {
        let given = ["runId", "run_id"].iter().find_map(|name| call.arguments.get(*name));
        match given {
            Some(Value::String(run_id)) if !run_id.trim().is_empty() => {
                return WaitTarget::Run(run_id.trim().to_owned());
            }
            None | Some(Value::Null | Value::String(_)) => {}
            Some(_) => return WaitTarget::Failed(Box::new(refused("`runId` must be a string"))),
        }
        // One that is only starting will be there in a moment, and may be the one that is meant.
        while self.flights().is_starting(&call.principal) && Instant::now() < call.until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (scope, now) = (call.principal.scope(), now_ms());
        let flying = self.flights().of(&call.principal);
        let recent = self.code_mode().recent(&scope, now - JUST_OVER_MS, MAX_LISTED).await;
        match recent.map(|recent| found(recent, flying, now)) {
            Ok(Found::Only(run_id)) => WaitTarget::Run(run_id),
            Ok(Found::Several(list)) => WaitTarget::Listed(list),
            Ok(Found::Nothing) => {
                WaitTarget::Failed(Box::new(refused("no cell of yours is live or just over; start one with `exec`")))
            }
            Err(error) => WaitTarget::Failed(Box::new(failed(&error.to_string()))),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Found {
    Nothing,
    /// Its run.
    Only(String),
    Several(Value),
}

/// Flights are cells that the store may not have yet.
fn found(recent: Vec<Recent>, flying: Vec<InFlightRun>, now: Millis) -> Found {
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
        [] => Found::Nothing,
        [only] => Found::Only(only.run_id.clone()),
        several => Found::Several(json!({
            "status": "listed",
            "message": "Several cells are live or just over; call `wait` with the `runId` of the one you mean.",
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

    use super::{Found, InFlightRun, found};
    use crate::server::Principal;

    fn recent(run_id: &str, started_at: i64) -> Recent {
        let source = format!(" return \"{run_id}\"\n");
        Recent { run_id: run_id.to_owned(), state: RunState::Completed, started_at, moved_at: started_at, source }
    }

    #[test]
    fn a_single_run_is_chosen_and_several_are_listed_newest_first() {
        assert_eq!(found(vec![], vec![], 0), Found::Nothing);
        assert_eq!(found(vec![recent("cm_1", 5)], vec![], 9), Found::Only("cm_1".to_owned()));
        let flying = |run_id: &str| InFlightRun {
            run_id: run_id.to_owned(),
            principal: Principal::local(),
            source: "f()".to_owned(),
            started_at: 7_000,
        };
        // An in-flight run that is already in the store counts once.
        assert_eq!(found(vec![recent("cm_1", 5)], vec![flying("cm_1")], 9), Found::Only("cm_1".to_owned()));
        let Found::Several(list) = found(vec![recent("cm_1", 5_000)], vec![flying("cm_2")], 9_500) else { panic!() };
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
