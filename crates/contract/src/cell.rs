//! The input and result of a cell, in the contract's format.

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ErrorCode;
use crate::ids::{CallId, OutputHandle, RunId};
use crate::json;

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

/// An item that a cell output with `text`, `json`, `console`, `image` or `audio`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum OutputItem {
    /// What a cell output with `text` or `console`.
    Text {
        /// The text.
        text: String,
    },
    /// What a cell output with `json`.
    Json {
        /// The value, as JSON.
        value: Box<RawValue>,
    },
    /// What a cell output with `image`.
    Image(Media),
    /// What a cell output with `audio`.
    Audio(Media),
    /// An item that is too large for the result. The store has it.
    Stored(Preview),
}

/// An image or a sound. Clients receive the data as a content block of its own; it is never part of a text.
///
/// A cell that outputs the handle of a stored one gives a *reference*: it has the handle, an empty media type and no
/// data. A worker has no access to the store, so the driver reads the rest from there.
#[derive(Clone, Debug)]
pub struct Media {
    /// The media type, such as `image/png`.
    pub mime_type: String,
    /// The decoded data.
    pub data: Arc<[u8]>,
    /// The name of the stored data; `None` until the data is stored.
    pub handle: Option<OutputHandle>,
}

/// The two kinds of [`Media`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    Image,
    Audio,
}

impl MediaKind {
    /// Returns the `type` of the content block, which is also the first part of its media type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
        }
    }

    /// Returns whether the text is a media type of this kind.
    pub fn has(self, mime_type: &str) -> bool {
        Media::is_mime_type(mime_type) && mime_type.split('/').next() == Some(self.as_str())
    }

    pub fn item(self, media: Media) -> OutputItem {
        match self {
            Self::Image => OutputItem::Image(media),
            Self::Audio => OutputItem::Audio(media),
        }
    }
}

impl std::fmt::Display for MediaKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Media {
    /// The bytes of the longest media type.
    pub const MAX_MIME_TYPE_BYTES: usize = 100;

    /// Returns a reference to a stored image or sound.
    pub fn reference(handle: OutputHandle) -> Self {
        Self { mime_type: String::new(), data: Arc::default(), handle: Some(handle) }
    }

    /// Whether the media type and the data have to be read from the store.
    pub fn is_reference(&self) -> bool {
        self.mime_type.is_empty() && self.handle.is_some()
    }

    /// Whether the text has the form of a media type, such as `image/png`.
    pub fn is_mime_type(text: &str) -> bool {
        let is_token = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            !part.is_empty() && part.bytes().all(is_plain)
        };
        text.len() <= Self::MAX_MIME_TYPE_BYTES
            && text.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
    }
}

impl Serialize for Media {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Media", 3)?;
        fields.serialize_field("mimeType", &self.mime_type)?;
        fields.serialize_field("bytes", &self.data.len())?;
        match &self.handle {
            Some(handle) => fields.serialize_field("handle", handle)?,
            None => fields.skip_field("handle")?,
        }
        fields.end()
    }
}

/// What a result contains in place of a value that is too large for it. The store has the whole value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The name of the stored value, for `output.read` in a later cell.
    pub handle: OutputHandle,
    /// What the stored value is: `text`, or the JSON type `string`, `array`, `object`, `number`, `boolean` or `null`.
    pub of: String,
    /// The bytes of the stored text or JSON.
    pub bytes: u64,
    /// The shape of a JSON value as a short TypeScript type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The beginning of the text or JSON.
    pub first: String,
    /// The end of the text or JSON.
    pub last: String,
}

/// A call of a run that did not complete, which had an effect or may have had one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// The id of the tool.
    pub tool: String,
    /// The number of the call within its run.
    pub call: CallId,
    /// Whether it had an effect.
    pub state: EffectState,
}

/// Whether a call had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectState {
    /// The tool returned a result.
    Done,
    /// The tool reported an error. It may have had an effect before.
    Failed,
    /// The tool was called, and no result has arrived.
    Unknown,
}

impl OutputItem {
    /// Returns the bytes that the item counts against `maxOutputBytes`. An empty item counts too.
    pub fn bytes(&self) -> usize {
        ITEM_BYTES
            + match self {
                Self::Text { text } => text.len(),
                Self::Json { value } => value.get().len(),
                // The data has a budget of its own.
                Self::Image(media) | Self::Audio(media) => media.mime_type.len(),
                Self::Stored(preview) => preview.first.len() + preview.last.len(),
            }
    }
}

/// The bytes that an item needs in a result in addition to its content.
const ITEM_BYTES: usize = 16;

/// The result of `exec` and `wait`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum CellResult {
    /// The cell returned a value.
    Completed {
        /// The value, as JSON.
        value: Box<RawValue>,
        /// What the cell output since the last result.
        output: Vec<OutputItem>,
        /// What the run did and cost.
        telemetry: Telemetry,
    },
    /// The cell is suspended. `wait` resumes it.
    Waiting {
        /// The id for `wait`.
        run_id: RunId,
        /// Why the cell is suspended.
        reason: WaitingReason,
        /// The calls that the cell waits for.
        pending_tool_calls: Vec<PendingToolCall>,
        /// What the cell output since the last result.
        output: Vec<OutputItem>,
        /// What the run did and cost.
        telemetry: Telemetry,
    },
    /// The cell failed, or was not run.
    Failed {
        /// What failed and why, for the model.
        error: String,
        /// The code of the failure; `None` for an exception that the cell did not catch.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<ErrorCode>,
        /// What the cell output since the last result.
        output: Vec<OutputItem>,
        /// Calls that had an effect or may have had one, so that the model does not repeat them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        effects: Vec<Effect>,
        /// What the run did and cost.
        telemetry: Telemetry,
    },
}

impl CellResult {
    /// Returns the value that the cell returned; `None` if it has not completed.
    pub fn value(&self) -> Option<Value> {
        let Self::Completed { value, .. } = self else { return None };
        json::read(value.get()).ok()
    }

    /// Returns the id with which `wait` resumes the run; `None` if the run is over.
    pub fn run_id(&self) -> Option<&RunId> {
        let Self::Waiting { run_id, .. } = self else { return None };
        Some(run_id)
    }

    /// Returns the message of a cell that failed.
    pub fn error(&self) -> Option<&str> {
        let Self::Failed { error, .. } = self else { return None };
        Some(error)
    }

    /// Returns the code of a cell that failed; `None` for an exception that the cell did not catch, which has no code.
    pub fn code(&self) -> Option<ErrorCode> {
        let Self::Failed { code, .. } = self else { return None };
        *code
    }

    /// Returns what the cell output since the last result.
    pub fn output(&self) -> &[OutputItem] {
        match self {
            Self::Completed { output, .. } | Self::Waiting { output, .. } | Self::Failed { output, .. } => output,
        }
    }

    /// Whether the cell completed, returned no value and wrote no output, often because it lacks a `return`.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Completed { value, output, .. } if value.get() == "null" && output.is_empty())
    }

    /// Returns what the run did and cost.
    pub fn telemetry(&self) -> &Telemetry {
        match self {
            Self::Completed { telemetry, .. } | Self::Waiting { telemetry, .. } | Self::Failed { telemetry, .. } => {
                telemetry
            }
        }
    }

    /// Replaces the telemetry.
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
    /// The cell waits for calls of tools.
    PendingTools,
    /// The cell called `yield_control`.
    Yield,
}

/// A nested call that a suspended cell waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingToolCall {
    /// The number of the call within its run, as text.
    pub id: String,
    /// The operation, such as `call`.
    pub method: String,
    /// The id of the tool, if the call is one of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// What the call waits for.
    pub state: PendingState,
    /// When the call was made, in milliseconds since the run was started.
    pub since_ms: u64,
    /// The text that the cell passed to `yield_control`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a pending call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingState {
    /// The call waits for its turn.
    Queued,
    /// The call waits for its tool, which is working.
    Running,
    /// A person's approval or answer.
    Approval,
    /// The client that provides the tool.
    Client,
    /// The process that resumes its run: another one ended during the call.
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
    #[serde(skip_serializing_if = "StoredOutputs::is_none")]
    pub stored_outputs: StoredOutputs,
}

/// What a run has stored because its results do not show it. Not part of a result if there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredOutputs {
    pub count: u64,
    pub bytes: u64,
}

impl StoredOutputs {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
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
