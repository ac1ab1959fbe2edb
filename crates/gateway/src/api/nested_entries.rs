//! Puts the calls of a cell under the cell. Pure.
//!
//! A transcript is flat: the call of `exec`, the tool calls that its cell makes, and their results follow each other,
//! mixed with those of other cells. A reader gets one entry for each message and each control call; a control call has
//! `toolCalls` and, when it has ended, `result`.

use std::collections::VecDeque;

use serde_json::{Value, json};
use store::{Entry, EntryKind};

/// Collects entries in order and returns them nested, in the order in which they began.
#[derive(Debug)]
pub(super) struct NestedEntries {
    waiting: VecDeque<Node>,
    /// The entries in `waiting`, nested ones included.
    entries: usize,
    most: usize,
}

/// An entry of the first level.
#[derive(Debug)]
struct Node {
    entry: Entry,
    /// Set for an entry that others belong to.
    call_id: Option<String>,
    is_over: bool,
    calls: Vec<Value>,
}

impl NestedEntries {
    /// Returns a collection that holds back at most this many entries.
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: VecDeque::new(), entries: 0, most }
    }

    /// Adds the next entry of the transcript, and returns the entries that are complete.
    pub(super) fn push(&mut self, entry: Entry) -> Vec<Value> {
        self.add(entry);
        let mut ready = Vec::new();
        while self.entries > self.most || self.waiting.front().is_some_and(|node| node.is_over) {
            let Some(node) = self.waiting.pop_front() else { break };
            self.entries = self.entries.saturating_sub(1 + node.calls.len());
            ready.push(node.into_json());
        }
        ready
    }

    /// Returns the entries that are left, complete or not.
    pub(super) fn finish(self) -> Vec<Value> {
        self.waiting.into_iter().map(Node::into_json).collect()
    }

    fn add(&mut self, entry: Entry) {
        let text = |name: &str| entry.entry.get(name).and_then(Value::as_str).map(str::to_owned);
        let (own, parent) = (text("toolCallId"), text("parentToolCallId"));
        let open = |waiting: &VecDeque<Node>, id: &Option<String>| {
            let id = id.as_ref()?;
            waiting.iter().rposition(|node| node.call_id.as_ref() == Some(id))
        };
        match entry.kind {
            EntryKind::ControlCall => self.begin(entry, own),
            EntryKind::ControlResult => match open(&self.waiting, &own).and_then(|at| self.waiting.get_mut(at)) {
                Some(node) => node.end(&entry),
                None => self.alone(entry),
            },
            EntryKind::ToolCall => match open(&self.waiting, &parent).and_then(|at| self.waiting.get_mut(at)) {
                Some(node) => {
                    node.calls.push(flat(entry));
                    self.entries += 1;
                }
                // The model called the tool itself.
                None => self.begin(entry, own),
            },
            EntryKind::ToolResult => {
                let of_cell = open(&self.waiting, &parent).and_then(|at| self.waiting.get_mut(at));
                match of_cell.and_then(|node| node.call(own.as_deref())) {
                    Some(call) => settle(call, &entry),
                    None => match open(&self.waiting, &own).and_then(|at| self.waiting.get_mut(at)) {
                        Some(node) => node.end(&entry),
                        None => self.alone(entry),
                    },
                }
            }
            EntryKind::Note => {
                let of_cell = open(&self.waiting, &parent).and_then(|at| self.waiting.get_mut(at));
                match of_cell.and_then(|node| node.call(own.as_deref())) {
                    Some(call) => note(call, entry),
                    None => self.alone(entry),
                }
            }
            EntryKind::UserMessage | EntryKind::ModelMessage | EntryKind::TurnNote => self.alone(entry),
        }
    }

    fn begin(&mut self, entry: Entry, call_id: Option<String>) {
        let is_over = call_id.is_none();
        self.waiting.push_back(Node { entry, call_id, is_over, calls: Vec::new() });
        self.entries += 1;
    }

    fn alone(&mut self, entry: Entry) {
        self.waiting.push_back(Node { entry, call_id: None, is_over: true, calls: Vec::new() });
        self.entries += 1;
    }
}

impl Node {
    fn end(&mut self, entry: &Entry) {
        settle(&mut self.entry.entry, entry);
        self.is_over = true;
    }

    /// Returns the last nested call of this id.
    fn call(&mut self, id: Option<&str>) -> Option<&mut Value> {
        let id = id?;
        self.calls.iter_mut().rev().find(|call| call.get("toolCallId").and_then(Value::as_str) == Some(id))
    }

    fn into_json(self) -> Value {
        let is_control = self.entry.kind == EntryKind::ControlCall;
        let mut shown = flat(self.entry);
        if let Some(fields) = shown.as_object_mut().filter(|_| is_control) {
            fields.insert("toolCalls".to_owned(), Value::from(self.calls));
        }
        shown
    }
}

/// Returns an entry as one object.
fn flat(entry: Entry) -> Value {
    let mut shown = json!({"at": entry.at, "kind": entry.kind.as_str()});
    if let (Some(shown), Value::Object(fields)) = (shown.as_object_mut(), entry.entry) {
        shown.extend(fields);
    }
    shown
}

/// Adds its result to a call.
fn settle(call: &mut Value, result: &Entry) {
    let Some(fields) = call.as_object_mut() else { return };
    let mut own = json!({"at": result.at});
    if let (Some(own), Value::Object(result)) = (own.as_object_mut(), &result.entry) {
        let is_own = |name: &str| !matches!(name, "toolCallId" | "parentToolCallId" | "toolId" | "toolName" | "runId");
        own.extend(result.iter().filter(|(name, _)| is_own(name)).map(|(name, value)| (name.clone(), value.clone())));
    }
    fields.insert("result".to_owned(), own);
}

/// Adds a note to a call: an approval that was asked for or decided.
fn note(call: &mut Value, entry: Entry) {
    let Some(fields) = call.as_object_mut() else { return };
    let notes = fields.entry("notes").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(notes) = notes.as_array_mut() {
        notes.push(flat(entry));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use store::{Entry, EntryKind};

    use super::NestedEntries;

    fn entry(kind: EntryKind, entry: Value) -> Entry {
        Entry { at: 1, kind, entry }
    }

    fn call(id: &str, parent: &str) -> Value {
        json!({"toolCallId": id, "parentToolCallId": parent, "toolId": "mcp:s:t", "toolName": "t"})
    }

    fn nested(entries: Vec<Entry>, most: usize) -> Vec<Value> {
        let mut nested = NestedEntries::new(most);
        let mut all: Vec<Value> = entries.into_iter().flat_map(|entry| nested.push(entry)).collect();
        all.extend(nested.finish());
        all
    }

    #[test]
    fn calls_of_two_cells_at_once_are_under_their_own_cells_in_the_order_of_the_cells() {
        let all = nested(
            vec![
                entry(EntryKind::UserMessage, json!({"text": "hello"})),
                entry(EntryKind::ControlCall, json!({"toolCallId": "a", "toolName": "exec"})),
                entry(EntryKind::ControlCall, json!({"toolCallId": "b", "toolName": "exec"})),
                entry(EntryKind::ToolCall, call("b1", "b")),
                entry(EntryKind::ToolCall, call("a1", "a")),
                entry(EntryKind::ToolCall, call("a2", "a")),
                entry(EntryKind::ToolResult, json!({"toolCallId": "a1", "parentToolCallId": "a", "isError": false})),
                entry(EntryKind::ToolResult, json!({"toolCallId": "b1", "parentToolCallId": "b", "isError": true})),
                entry(EntryKind::ControlResult, json!({"toolCallId": "b", "result": 2})),
                entry(EntryKind::ModelMessage, json!({"text": "later"})),
                entry(EntryKind::ControlResult, json!({"toolCallId": "a", "result": 1})),
            ],
            100,
        );
        let kinds: Vec<&str> = all.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["user_message", "control_call", "control_call", "model_message"]);
        assert_eq!((&all[1]["toolCallId"], &all[1]["result"]["result"]), (&json!("a"), &json!(1)));
        let ids = |entry: &Value| -> Vec<String> {
            entry["toolCalls"]
                .as_array()
                .unwrap()
                .iter()
                .map(|call| call["toolCallId"].as_str().unwrap().into())
                .collect()
        };
        assert_eq!((ids(&all[1]), ids(&all[2])), (vec!["a1".to_owned(), "a2".to_owned()], vec!["b1".to_owned()]));
        assert_eq!(all[1]["toolCalls"][0]["result"], json!({"at": 1, "isError": false}));
        assert_eq!(all[1]["toolCalls"][1].get("result"), None);
        assert_eq!(all[2]["toolCalls"][0]["result"]["isError"], true);
    }

    #[test]
    fn a_note_about_a_call_is_with_the_call_and_other_entries_without_their_cell_stay() {
        let mut asked = call("a1", "a");
        asked["note"] = json!("approval_asked");
        let all = nested(
            vec![
                entry(EntryKind::ControlCall, json!({"toolCallId": "a"})),
                entry(EntryKind::ToolCall, call("a1", "a")),
                entry(EntryKind::Note, asked),
                entry(EntryKind::Note, json!({"note": "late_result"})),
                entry(EntryKind::ToolResult, call("x1", "x")),
                entry(EntryKind::ControlResult, json!({"toolCallId": "y"})),
                entry(EntryKind::ToolCall, call("direct", "call_7")),
                entry(EntryKind::ToolResult, call("direct", "call_7")),
            ],
            100,
        );
        assert_eq!(all[0]["toolCalls"][0]["notes"][0]["note"], "approval_asked");
        let kinds: Vec<&str> = all.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["control_call", "note", "tool_result", "control_result", "tool_call"]);
        assert!(all[4]["result"].is_object());
    }

    #[test]
    fn a_cell_that_never_ends_does_not_hold_back_more_than_the_limit() {
        let mut entries = vec![entry(EntryKind::ControlCall, json!({"toolCallId": "a"}))];
        entries.extend((0..50).map(|_| entry(EntryKind::UserMessage, json!({}))));
        let mut nested = NestedEntries::new(10);
        let early: usize = entries.into_iter().map(|entry| nested.push(entry).len()).sum();
        assert_eq!(early, 51);
        assert!(nested.finish().is_empty());
    }
}
