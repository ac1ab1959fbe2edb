//! The input and result of a cell, in the contract's format.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::ErrorCode;
use crate::ids::RunId;

/// The language of a cell's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    JavaScript,
    TypeScript,
}

impl Language {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "javascript" => Some(Self::JavaScript),
            "typescript" => Some(Self::TypeScript),
            _ => None,
        }
    }
}

/// One item that a cell output with `text`, `json` or `console`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum OutputItem {
    Text { text: String },
    Json { value: Box<RawValue> },
}

impl OutputItem {
    /// Returns the bytes that the item counts against `maxOutputBytes`. An empty item counts too.
    pub fn bytes(&self) -> usize {
        ITEM_BYTES
            + match self {
                Self::Text { text } => text.len(),
                Self::Json { value } => value.get().len(),
            }
    }
}

/// The bytes that an item needs in a result in addition to its content.
const ITEM_BYTES: usize = 16;

/// The result of `exec` and `wait`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum CellResult {
    Completed {
        value: Box<RawValue>,
        output: Vec<OutputItem>,
        telemetry: Telemetry,
    },
    Waiting {
        run_id: RunId,
        reason: WaitingReason,
        pending_tool_calls: Vec<PendingToolCall>,
        output: Vec<OutputItem>,
        telemetry: Telemetry,
    },
    Failed {
        error: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<ErrorCode>,
        output: Vec<OutputItem>,
        telemetry: Telemetry,
    },
}

impl CellResult {
    pub fn output(&self) -> &[OutputItem] {
        match self {
            Self::Completed { output, .. } | Self::Waiting { output, .. } | Self::Failed { output, .. } => output,
        }
    }

    pub fn telemetry(&self) -> &Telemetry {
        match self {
            Self::Completed { telemetry, .. } | Self::Waiting { telemetry, .. } | Self::Failed { telemetry, .. } => {
                telemetry
            }
        }
    }

    #[must_use]
    pub fn with_telemetry(mut self, new: Telemetry) -> Self {
        match &mut self {
            Self::Completed { telemetry, .. } | Self::Waiting { telemetry, .. } | Self::Failed { telemetry, .. } => {
                *telemetry = new;
            }
        }
        self
    }
}

/// Why a cell is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingReason {
    PendingTools,
    Yield,
}

/// A nested call that a suspended cell waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingToolCall {
    pub id: String,
    pub method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    pub state: PendingState,
    pub since_ms: u64,
    /// The text that the cell passed to `yield_control`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingState {
    Queued,
    Running,
    Approval,
    Client,
    Interrupted,
}

/// Statistics of one run: numbers and tool ids, never inputs or results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Telemetry {
    pub catalog_size: usize,
    pub sources: Sources,
    pub visible_tools: Vec<String>,
    pub exec_count: u64,
    pub wait_count: u64,
    pub search_count: u64,
    pub describe_count: u64,
    pub call_count: u64,
    pub nested_tool_ids: Vec<String>,
    pub limit_failures: LimitFailures,
    pub snapshots: Snapshots,
    pub duration_ms: Durations,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sources {
    pub openclaw: usize,
    pub plugin: usize,
    pub mcp: usize,
    pub client: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitFailures {
    pub timeout: u64,
    pub memory: u64,
    pub snapshot: u64,
    pub output: u64,
}

/// What has happened to the snapshots of a run. A run has at most one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshots {
    pub taken: u64,
    pub restored: u64,
    /// Snapshots that a later one replaced, or that were deleted when the run ended.
    pub deleted: u64,
    /// 1 if the run expired with a snapshot.
    pub expired: u64,
    /// The size of the last one.
    pub bytes: u64,
}

impl Snapshots {
    /// The last snapshot is kept, the others are replaced.
    #[must_use]
    pub fn of_live_run(self) -> Self {
        Self { deleted: self.taken.saturating_sub(1), expired: 0, ..self }
    }

    /// None is kept.
    #[must_use]
    pub fn of_ended_run(self) -> Self {
        Self { deleted: self.taken, expired: 0, ..self }
    }

    /// The last one has expired.
    #[must_use]
    pub fn of_expired_run(self) -> Self {
        Self { deleted: self.taken.saturating_sub(1), expired: self.taken.min(1), ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Durations {
    pub guest: u64,
    pub tools: u64,
    pub total: u64,
}
