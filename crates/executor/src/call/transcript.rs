//! Transcript entries of tool calls. Each names the control call that it was made from.

use contract::json::depth;
use contract::limits::MAX_BRIDGE_VALUE_DEPTH;
use contract::tool::ToolSpec;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use store::{Approval, ApprovalRequest, EntryKind, MAX_TRANSCRIPT_BYTES, NewEntry};

use super::CallRequest;
use crate::clock::now_ms;
use crate::outcome::{Outcome, UNKNOWN_OUTCOME};

pub(crate) struct RecordedCall<'a> {
    pub(crate) call: &'a CallRequest,
    pub(crate) tool_id: &'a str,
    pub(crate) name: &'a str,
}

pub(crate) fn recorded<'a>(request: &'a CallRequest, tool: &'a ToolSpec) -> RecordedCall<'a> {
    RecordedCall { call: request, tool_id: tool.id.as_str(), name: tool.id.name() }
}

/// An entry of a call.
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
struct MadeCall {
    arguments: Box<RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    is_error: bool,
    content: Box<RawValue>,
    details: Box<RawValue>,
}

impl RecordedCall<'_> {
    pub(crate) fn made(&self, input: &Value) -> NewEntry {
        self.entry(EntryKind::ToolCall, MadeCall { arguments: for_transcript(input) })
    }

    pub(crate) fn result(&self, outcome: &Outcome) -> NewEntry {
        let failed = |message: &str| (true, for_transcript(&[json!({"type": "text", "text": message})]), None);
        let (is_error, content, details) = match outcome {
            Outcome::Returned(returned) => (false, for_transcript(&returned.content), returned.details.as_ref()),
            Outcome::Failed(message) => failed(message),
            Outcome::Dropped(dropped) => failed(&dropped.message),
            Outcome::Unknown => failed(UNKNOWN_OUTCOME),
        };
        self.entry(EntryKind::ToolResult, CallResult { is_error, content, details: for_transcript(&details) })
    }

    pub(crate) fn asked(&self, asked: &ApprovalRequest) -> NewEntry {
        let more = json!({"note": "approval_asked", "approvalId": asked.approval_id, "reason": asked.reason});
        self.entry(EntryKind::Note, more)
    }

    pub(crate) fn decided(&self, decided: &Approval) -> NewEntry {
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

/// Returns the JSON of a value for the transcript. A value that is too long or too deep is replaced by its size, so that
/// the transcript stays readable.
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
