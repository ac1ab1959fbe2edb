//! Checks after a hostile cell that other runs are unharmed: a new one completes quickly, a suspended one resumes.

use std::time::{Duration, Instant};

use contract::cell::CellResult;
use contract::ids::RunId;
use serde_json::{Map, json};

use super::Result;
use super::lab::{Lab, PreparedSession};

/// How long the trivial cell may take, before the time factor.
const MAX_CANARY_TIME: Duration = Duration::from_secs(1);

/// Runs a trivial cell in a separate session and describes the problem if it does not complete in time. `time_factor`
/// multiplies the time that it may take.
pub(super) async fn canary(lab: &Lab, time_factor: u32) -> Option<String> {
    let began = Instant::now();
    let prepared = match lab.prepare("canary", &Map::new(), 1) {
        Ok(prepared) => prepared,
        Err(error) => return Some(format!("no new run could be prepared: {error}")),
    };
    let input = json!({"code": "return 1+1"});
    let result = lab.code_mode.exec(&prepared.executor, &prepared.config, "exec-1", &input).await;
    let took = began.elapsed();
    match returned(&result) {
        Some("2") if took <= MAX_CANARY_TIME * time_factor => None,
        Some("2") => Some(format!("a new run took {} ms", took.as_millis())),
        _ => Some(format!("a new run did not complete: {}", json!(result))),
    }
}

/// A run of another session, suspended before the hostile cell starts.
#[derive(Debug)]
pub(super) struct Bystander {
    prepared: PreparedSession,
    run_id: RunId,
}

impl Bystander {
    /// Starts a run that yields, so that it is suspended.
    pub(super) async fn start_suspended(lab: &Lab, name: &str) -> Result<Self> {
        let prepared = lab.prepare(&format!("bystander-{name}"), &Map::new(), 1)?;
        let input = json!({"code": "const kept = { n: 41 }; await yield_control(); return kept.n + 1"});
        match lab.code_mode.exec(&prepared.executor, &prepared.config, "exec-1", &input).await {
            CellResult::Waiting { run_id, .. } => Ok(Self { prepared, run_id }),
            other => Err(format!("a run that yields was not suspended: {}", json!(other)).into()),
        }
    }

    /// Resumes the run and describes the problem if it does not complete with its result.
    pub(super) async fn resume(self, lab: &Lab) -> Option<String> {
        let input = json!({"runId": self.run_id});
        let PreparedSession { executor, config, .. } = &self.prepared;
        let result = lab.code_mode.wait_json(executor, config, "wait-1", &input).await;
        (returned(&result) != Some("42")).then(|| format!("a suspended run did not resume: {}", json!(result)))
    }
}

fn returned(result: &CellResult) -> Option<&str> {
    match result {
        CellResult::Completed { value, .. } => Some(value.get()),
        CellResult::Waiting { .. } | CellResult::Failed { .. } => None,
    }
}
