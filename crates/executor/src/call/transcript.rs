//! Transcript entries of tool calls. Each names the control call that it was made from.

use contract::json::depth;
use contract::limits::MAX_BRIDGE_VALUE_DEPTH;
use contract::tool::ToolSpec;
use serde_json::{Value, json};
use store::{Approval, ApprovalRequest, Entry, EntryKind, MAX_TRANSCRIPT_BYTES};

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

impl RecordedCall<'_> {
    pub(crate) fn made(&self, input: &Value) -> Entry {
        self.entry(EntryKind::ToolCall, json!({"arguments": for_transcript(input)}))
    }

    pub(crate) fn result(&self, outcome: &Outcome) -> Entry {
        // Details may be large, so they are borrowed, not copied.
        let (is_error, content, details) = match outcome {
            Outcome::Returned(returned) => (false, Value::from(returned.content.clone()), returned.details.as_ref()),
            Outcome::Failed(message) => (true, text(message), None),
            Outcome::Dropped(dropped) => (true, text(&dropped.message), None),
            Outcome::Unknown => (true, text(UNKNOWN_OUTCOME), None),
        };
        let details = for_transcript(details.unwrap_or(&Value::Null));
        let result = json!({"isError": is_error, "content": for_transcript(&content), "details": details});
        self.entry(EntryKind::ToolResult, result)
    }

    pub(crate) fn asked(&self, asked: &ApprovalRequest) -> Entry {
        let more = json!({"note": "approval_asked", "approvalId": asked.approval_id, "reason": asked.reason});
        self.entry(EntryKind::Note, more)
    }

    pub(crate) fn decided(&self, decided: &Approval) -> Entry {
        let more = json!({
            "note": "approval_decided", "approvalId": decided.approval_id, "call": decided.call,
            "decision": decided.state, "by": decided.decided_by, "reason": decided.note,
        });
        self.entry(EntryKind::Note, more)
    }

    fn entry(&self, kind: EntryKind, more: Value) -> Entry {
        let mut entry = json!({
            "toolCallId": self.call.tool_call_id(),
            "parentToolCallId": self.call.parent,
            "toolId": self.tool_id,
            "toolName": self.name,
        });
        if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
            entry.extend(more);
        }
        Entry { at: now_ms(), kind, entry }
    }
}

fn text(message: &str) -> Value {
    json!([{"type": "text", "text": message}])
}

/// Returns the value for the transcript. A value that is too long or too deep is replaced by its size, so that the
/// transcript stays readable.
pub fn for_transcript(value: &Value) -> Value {
    let text = value.to_string();
    match depth(text.as_bytes()) {
        levels if levels > MAX_BRIDGE_VALUE_DEPTH => json!({"omittedLevels": levels}),
        _ if text.len() > MAX_TRANSCRIPT_BYTES => json!({"omittedBytes": text.len()}),
        _ => value.clone(),
    }
}
