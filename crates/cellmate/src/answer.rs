//! The answer to a call of the model.

use codemode::tool_search::is_failure;
use contract::cell::{CellResult, PendingState};
use contract::error::ErrorCode;
use contract::ids::RunId;
use executor::{CallEnd, DirectCall, Outcome, UNKNOWN_OUTCOME, stopped_message};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The answer to a call of the model; see [`AgentRun::call`](crate::AgentRun::call). As JSON, it is what the model
/// receives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The result of `exec` or `wait`.
    Cell(Box<CellResult>),
    /// The answer of a tool of Tool Search.
    ToolSearch(Value),
    /// The result of a tool that is shown directly.
    Returned(Value),
    /// A call that was not made, or failed.
    Failed {
        /// The code of the failure.
        code: ErrorCode,
        /// What failed and why.
        error: String,
    },
    /// A tool that is shown directly waits for a person, or for an outcome that is settled later.
    /// [`AgentRun::resume`](crate::AgentRun::resume) continues the call.
    Waiting {
        /// The run of the call.
        run_id: RunId,
        /// What the call waits for.
        state: PendingState,
    },
}

impl Answer {
    /// Whether the call was not made, or failed. A cell that ran and failed is an error, too.
    pub fn is_error(&self) -> bool {
        match self {
            Self::Cell(result) => matches!(**result, CellResult::Failed { .. }),
            Self::ToolSearch(answer) => is_failure(answer),
            Self::Failed { .. } => true,
            Self::Returned(_) | Self::Waiting { .. } => false,
        }
    }

    pub(crate) fn of_direct_call(call: DirectCall) -> Self {
        match call.end {
            CallEnd::Settled(Outcome::Returned(returned)) => Self::Returned(returned.into_cell_value()),
            CallEnd::Settled(Outcome::Failed(error)) => Self::Failed { code: ErrorCode::NestedToolFailed, error },
            CallEnd::Settled(Outcome::Dropped(dropped)) => {
                Self::Failed { code: ErrorCode::NestedToolFailed, error: dropped.message }
            }
            CallEnd::Settled(Outcome::Unknown) => {
                Self::Failed { code: ErrorCode::NestedToolFailed, error: UNKNOWN_OUTCOME.to_owned() }
            }
            CallEnd::Parked(state) => Self::Waiting { run_id: call.run_id, state },
            CallEnd::Stopped(error) => {
                Self::Failed { code: ErrorCode::InternalError, error: stopped_message(&call.run_id, &error) }
            }
        }
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Cell(result) => result.serialize(serializer),
            Self::ToolSearch(value) | Self::Returned(value) => value.serialize(serializer),
            Self::Failed { code, error } => {
                json!({"status": "failed", "error": error, "code": code}).serialize(serializer)
            }
            Self::Waiting { run_id, state } => {
                json!({"status": "waiting", "runId": run_id, "state": state}).serialize(serializer)
            }
        }
    }
}
