//! Replays of recorded runs.

use codemode::pool::Pool;
use codemode::replay::{MAX_MANUAL_REPLAY_MS, Record, ReplayError, ReplayFailure, Step};
use contract::cell::OutputItem;
use contract::frame::{HostCall, LegEnd, Reply, ReplyValue};
use contract::ids::{CallId, RunId};
use serde::Serialize;
use serde_json::{Value, json};
use store::Store;

use crate::error::{self, Result};

/// A recorded run that was run again with its recorded replies; see [`Cellmate::replay`](crate::Cellmate::replay).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Replay {
    /// The steps that were run, up to the first that differs from the record.
    pub steps: Vec<ReplayedStep>,
    /// How the last step differs from the record, or why the replay stopped. `None` if all steps match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

impl Replay {
    /// Returns whether the whole run did again what the record says.
    pub fn matches(&self) -> bool {
        self.difference.is_none()
    }
}

/// A step of a replayed run: what the cell received, and what it did until it ended or waited again.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ReplayedStep {
    /// The recorded replies that the cell received. The first step has none.
    pub replies: Vec<ReplayedReply>,
    /// The calls that the cell made.
    pub calls: Vec<ReplayedCall>,
    /// What the cell output.
    pub output: Vec<OutputItem>,
    /// How the step ended.
    pub end: StepEnd,
}

/// A recorded reply to a call of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayedReply {
    /// The call that was answered.
    pub call: CallId,
    /// The value that the call resolved to, or the error that it was rejected with.
    pub value: Value,
    /// Whether the call was rejected.
    pub rejected: bool,
}

/// A call that a cell made to its host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayedCall {
    /// The number of the call in its run.
    pub call: CallId,
    /// What the cell called: `call` for a tool, `search`, `timer` and so on.
    pub method: String,
    /// The id of the tool, or the name of the namespace.
    pub target: String,
    /// The arguments.
    pub arguments: Value,
}

/// How a step of a cell ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum StepEnd {
    /// The cell waited for replies.
    Waited,
    /// The cell returned this value.
    Returned(Value),
    /// The cell failed with this message.
    Failed(String),
}

/// Runs a recorded run again.
pub(crate) async fn replay(pool: &Pool, store: &Store, run_id: &RunId) -> Result<Replay> {
    let record = Record::read(store, run_id).await.map_err(|error| error::record(&error))?;
    let pool = pool.for_principal(&record.run.scope.agent_id);
    let (mut steps, mut difference) = (Vec::new(), None);
    let replayed = record.replay(&pool, MAX_MANUAL_REPLAY_MS, |step| {
        difference = step.verdict.as_ref().err().map(ToString::to_string);
        steps.push(ReplayedStep::from(step));
    });
    match replayed.await {
        Ok(_) => Ok(Replay { steps, difference }),
        Err(ReplayError::Failed(ReplayFailure::Pool(error))) => Err(error::pool(&error)),
        Err(ReplayError::Failed(failure)) => Ok(Replay { steps, difference: Some(failure.to_string()) }),
        Err(ReplayError::Record(error)) => Err(error::record(&error)),
    }
}

impl From<&Step<'_>> for ReplayedStep {
    fn from(step: &Step<'_>) -> Self {
        let (calls, end) = match &step.ran.end {
            LegEnd::Suspended { calls, .. } => (calls.as_slice(), StepEnd::Waited),
            LegEnd::Completed { value } => (&[][..], StepEnd::Returned(parsed(value.get()))),
            LegEnd::Failed(failure) => (&[][..], StepEnd::Failed(failure.message.clone())),
        };
        Self {
            replies: step.given.iter().map(ReplayedReply::from).collect(),
            calls: calls.iter().map(ReplayedCall::from).collect(),
            output: step.ran.output.clone(),
            end,
        }
    }
}

impl From<&Reply> for ReplayedReply {
    fn from(reply: &Reply) -> Self {
        let (text, rejected) = match &reply.value {
            ReplyValue::Resolved(text) => (text, false),
            ReplyValue::Rejected(text) => (text, true),
        };
        Self { call: reply.call, value: parsed(&String::from_utf8_lossy(text)), rejected }
    }
}

impl From<&HostCall> for ReplayedCall {
    fn from(call: &HostCall) -> Self {
        let arguments = parsed(&String::from_utf8_lossy(&call.payload));
        Self { call: call.id, method: call.method.as_str().to_owned(), target: call.target.clone(), arguments }
    }
}

/// Parses a recorded value. Text that is not JSON, or has too many values to be parsed, stays text.
fn parsed(text: &str) -> Value {
    contract::json::read(text).unwrap_or_else(|_| json!(text))
}
