//! Transcript entries of tool calls. Each contains the id of the control call, such as `exec`, that the call was made
//! from.

use contract::json::depth;
use contract::limits::MAX_BRIDGE_VALUE_DEPTH;
use contract::tool::{Source, ToolSpec};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use store::{Approval, ApprovalRequest, EntryKind, MAX_TRANSCRIPT_BYTES, NewEntry};

use super::CallRequest;
use crate::clock::now_ms;
use crate::outcome::{Outcome, ToolResult, UNKNOWN_OUTCOME};

/// A call whose transcript entries are written.
pub(crate) struct RecordedCall<'a> {
    pub(crate) call: &'a CallRequest,
    pub(crate) tool_id: &'a str,
    pub(crate) name: &'a str,
}

/// The fields that all entries of a call have, and those of one kind of entry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallEntry<'a, M> {
    tool_call_id: String,
    parent_tool_call_id: &'a str,
    tool_id: &'a str,
    tool_name: &'a str,
    #[serde(flatten)]
    more: M,
}

#[derive(Serialize)]
struct CallArguments {
    arguments: Box<RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    is_error: bool,
    content: Box<RawValue>,
    details: Box<RawValue>,
}

impl<'a> RecordedCall<'a> {
    pub(crate) fn new(request: &'a CallRequest, tool: &'a ToolSpec) -> Self {
        Self { call: request, tool_id: tool.id.as_str(), name: tool.id.name() }
    }

    /// Returns the entry of the call itself, with its input.
    pub(crate) fn call_entry(&self, input: &Value) -> NewEntry {
        self.entry(EntryKind::ToolCall, CallArguments { arguments: for_transcript(input) })
    }

    /// Returns the entry of the call's result.
    pub(crate) fn result_entry(&self, outcome: &Outcome) -> NewEntry {
        let failed = |message: &str| (true, for_transcript(&[json!({"type": "text", "text": message})]), None);
        let (is_error, content, details) = match outcome {
            Outcome::Returned(returned) => {
                (self.reports_error(returned), for_transcript(&returned.content), returned.details.as_ref())
            }
            Outcome::Failed(message) => failed(message),
            Outcome::Dropped(dropped) => failed(&dropped.message),
            Outcome::Unknown => failed(UNKNOWN_OUTCOME),
        };
        self.entry(EntryKind::ToolResult, CallResult { is_error, content, details: for_transcript(&details) })
    }

    /// Whether the result is one of an MCP tool with `isError`. Other tools report their errors as failed calls.
    fn reports_error(&self, returned: &ToolResult) -> bool {
        let is_mcp = self.tool_id.split(':').next() == Some(Source::Mcp.as_str());
        let flag = returned.details.as_ref().and_then(|details| details.get("isError"));
        is_mcp && flag == Some(&Value::Bool(true))
    }

    /// Returns the entry of a request for approval, or of a question of the tool.
    pub(crate) fn approval_request_entry(&self, asked: &ApprovalRequest) -> NewEntry {
        let more = json!({"note": "approval_asked", "approvalId": asked.approval_id, "reason": asked.reason});
        self.entry(EntryKind::Note, more)
    }

    /// Returns the entry of the decision about an approval.
    pub(crate) fn approval_decision_entry(&self, decided: &Approval) -> NewEntry {
        let more = json!({
            "note": "approval_decided", "approvalId": decided.approval_id, "call": decided.call,
            "decision": decided.state, "by": decided.decided_by, "reason": decided.note,
        });
        self.entry(EntryKind::Note, more)
    }

    fn entry(&self, kind: EntryKind, more: impl Serialize) -> NewEntry {
        let entry = CallEntry {
            tool_call_id: self.call.tool_call_id(),
            parent_tool_call_id: &self.call.parent,
            tool_id: self.tool_id,
            tool_name: self.name,
            more,
        };
        NewEntry::new(now_ms(), kind, &entry)
    }
}

/// Returns the JSON of a value for the transcript. A value that is too long or too deep is replaced by its length or
/// depth, so that the transcript stays readable.
pub fn for_transcript(value: &impl Serialize) -> Box<RawValue> {
    // Serializing a JSON value does not fail.
    let text = to_raw_value(value).unwrap_or_default();
    let omitted = match depth(text.get().as_bytes()) {
        levels if levels > MAX_BRIDGE_VALUE_DEPTH => json!({"omittedLevels": levels}),
        _ if text.get().len() > MAX_TRANSCRIPT_BYTES => json!({"omittedBytes": text.get().len()}),
        _ => return text,
    };
    to_raw_value(&omitted).unwrap_or_default()
}
