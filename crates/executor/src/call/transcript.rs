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

impl<'a> RecordedCall<'a> {
    pub(crate) fn new(request: &'a CallRequest, tool: &'a ToolSpec) -> Self {
        Self { call: request, tool_id: tool.id.as_str(), name: tool.id.name() }
    }

    /// Returns the entry of the call itself, with its input.
    pub(crate) fn call_entry(&self, input: &Value) -> NewEntry {
        self.entry(EntryKind::ToolCall, |entry| entry.value("arguments", input))
    }

    /// Returns the entry of the call's result.
    pub(crate) fn result_entry(&self, outcome: &Outcome) -> NewEntry {
        let failed = |message: &str| {
            let content = [json!({"type": "text", "text": message})];
            self.entry(EntryKind::ToolResult, |entry| {
                entry.field("isError", &true).value("content", &content).field("details", &())
            })
        };
        match outcome {
            Outcome::Returned(returned) => self.entry(EntryKind::ToolResult, |entry| {
                let entry = entry.field("isError", &self.reports_error(returned));
                entry.value("content", &returned.content).value("details", &returned.details)
            }),
            Outcome::Failed(message) => failed(message),
            Outcome::Dropped(dropped) => failed(&dropped.message),
            Outcome::Unknown => failed(UNKNOWN_OUTCOME),
        }
    }

    /// Whether the result is one of an MCP tool with `isError`. Other tools report their errors as failed calls.
    fn reports_error(&self, returned: &ToolResult) -> bool {
        let is_mcp = self.tool_id.split(':').next() == Some(Source::Mcp.as_str());
        let flag = returned.details.as_ref().and_then(|details| details.get("isError"));
        is_mcp && flag == Some(&Value::Bool(true))
    }

    /// Returns the entry of a request for approval, or of a question of the tool.
    pub(crate) fn approval_request_entry(&self, asked: &ApprovalRequest) -> NewEntry {
        self.entry(EntryKind::Note, |entry| {
            let entry = entry.field("note", &"approval_asked").field("approvalId", &asked.approval_id);
            entry.field("reason", &asked.reason)
        })
    }

    /// Returns the entry of the decision about an approval.
    pub(crate) fn approval_decision_entry(&self, decided: &Approval) -> NewEntry {
        self.entry(EntryKind::Note, |entry| {
            let entry = entry.field("note", &"approval_decided").field("approvalId", &decided.approval_id);
            let entry = entry.field("call", &decided.call).field("decision", &decided.state);
            entry.field("by", &decided.decided_by).field("reason", &decided.note)
        })
    }

    /// Returns an entry with the fields that all entries of a call have, and those that `more` adds.
    fn entry(&self, kind: EntryKind, more: impl FnOnce(Fields) -> Fields) -> NewEntry {
        let fields = Fields::new()
            .field("toolCallId", &self.call.tool_call_id())
            .field("parentToolCallId", &self.call.parent)
            .field("toolId", &self.tool_id)
            .field("toolName", &self.name);
        NewEntry::from_json(now_ms(), kind, more(fields).into_object())
    }
}

/// The fields of an entry, as the text of an object that is not closed yet. Values are serialized once, into this text.
struct Fields(Vec<u8>);

impl Fields {
    fn new() -> Self {
        // Most entries are shorter.
        Self(Vec::with_capacity(512))
    }

    fn field(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.start(name);
        self.write(value);
        self
    }

    /// Adds a value that may be long or deep; see [`for_transcript`].
    fn value(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.start(name);
        let start = self.0.len();
        self.write(value);
        if let Some(replacement) = replacement(self.0.get(start..).unwrap_or_default()) {
            self.0.truncate(start);
            self.write(&replacement);
        }
        self
    }

    fn start(&mut self, name: &'static str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.write(&name);
        self.0.push(b':');
    }

    fn write(&mut self, value: &impl Serialize) {
        let start = self.0.len();
        // Serializing a JSON value does not fail.
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.0.truncate(start);
            self.0.extend(b"null");
        }
    }

    fn into_object(mut self) -> String {
        self.0.push(b'}');
        // JSON is always UTF-8.
        String::from_utf8(self.0).unwrap_or_default()
    }
}

/// Returns the JSON of a value for the transcript. A value that is too long or too deep is replaced by its length or
/// depth, so that the transcript stays readable.
pub fn for_transcript(value: &impl Serialize) -> Box<RawValue> {
    // Serializing a JSON value does not fail.
    let text = to_raw_value(value).unwrap_or_default();
    replacement(text.get().as_bytes()).map_or(text, |omitted| to_raw_value(&omitted).unwrap_or_default())
}

/// Returns what the transcript has in place of a JSON text that is too long or too deep.
fn replacement(text: &[u8]) -> Option<Value> {
    match depth(text) {
        levels if levels > MAX_BRIDGE_VALUE_DEPTH => Some(json!({"omittedLevels": levels})),
        _ if text.len() > MAX_TRANSCRIPT_BYTES => Some(json!({"omittedBytes": text.len()})),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_BRIDGE_VALUE_DEPTH;
    use serde_json::{Value, json};
    use store::MAX_TRANSCRIPT_BYTES;

    use super::{Fields, for_transcript};

    #[test]
    fn fields_become_an_object_in_which_long_and_deep_values_are_replaced() {
        let long = json!("a".repeat(MAX_TRANSCRIPT_BYTES));
        let deep = (0..=MAX_BRIDGE_VALUE_DEPTH).fold(Value::Null, |inner, _| json!([inner]));
        let fields = Fields::new().field("quoted", &"\"\n").field("nothing", &()).value("short", &json!({"a": [1]}));
        let text = fields.value("long", &long).value("deep", &deep).into_object();
        let object: Value = serde_json::from_str(&text).unwrap();
        let (bytes, levels) = (MAX_TRANSCRIPT_BYTES + 2, MAX_BRIDGE_VALUE_DEPTH + 1);
        let expected = json!({
            "quoted": "\"\n", "nothing": null, "short": {"a": [1]},
            "long": {"omittedBytes": bytes}, "deep": {"omittedLevels": levels},
        });
        assert_eq!(object, expected);
        assert_eq!(for_transcript(&long).get(), object["long"].to_string());
        assert_eq!(for_transcript(&json!([1])).get(), "[1]");
    }
}
