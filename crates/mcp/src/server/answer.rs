//! A result as clients receive it: the same compact JSON as text and as structured content, because about half of the
//! clients show the model the text and the others show it the structured content.
//!
//! A result with images, sounds or links has no structured content: clients that show it would show nothing else. Its first
//! block is the JSON, the others follow.
//!
//! It contains only what the model needs: empty lists are left out, and telemetry is in the response's `_meta`, which
//! models do not see.
//!
//! `isError` is set only if the call could not be carried out at all (bad input, an unknown run), not if a cell ran and
//! failed: some clients cut the text of an error, some count it against a retry budget, some end the agent's run with
//! it. How a cell ended is in `status`, which every model sees.

use std::time::Duration;

use codemode::ToolSearchAnswer;
use codemode::tool_search::is_failure;
use contract::cell::{CellResult, PendingToolCall, Telemetry, WaitingReason};
use contract::error::ErrorCode;
use contract::frame::Method;
use contract::ids::RunId;
use contract::json;
use contract::limits::MAX_CONTROL_ANSWER_BYTES;
use serde_json::{Value, json};
use store::Approval;

use super::media::{Attachments, MediaBlock, MediaBudget, OutputLink, take_media};
use super::{elicitation, plain};

/// The maximum number of approvals that one answer lists. The message gives the total number.
const MAX_NAMED_APPROVALS: usize = 16;

/// The maximum number of pending calls that one answer lists. A cell may have a thousand.
const MAX_NAMED_CALLS: usize = 32;

/// The maximum length of the reason why the configuration is invalid.
const MAX_WHY_CHARS: usize = 500;

/// The note of a result with images or sounds for which there is no room.
const LEFT_OUT: &str = "An output with `shown: false` exceeds what one result shows. It is stored: image(handle) or \
                        audio(handle) shows it in the result of another cell.";

/// The response to a control call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub value: Value,
    /// What the run did and cost; without a run, the catalog and the tools that the model sees.
    pub telemetry: Value,
    pub is_error: bool,
    /// Images and sounds, which are sent after the JSON.
    pub media: Vec<MediaBlock>,
    /// Stored outputs that the JSON names.
    pub links: Vec<OutputLink>,
}

impl Answer {
    pub fn of(result: &CellResult, asked: &[Approval]) -> Self {
        Self::with_media(result, asked, MediaBudget::default())
    }

    /// Returns the answer for a result that may show this much media.
    pub(crate) fn with_media(result: &CellResult, asked: &[Approval], budget: MediaBudget) -> Self {
        let Attachments { media, links, left_out } = Attachments::of(result, budget);
        let text = serde_json::to_string(result).unwrap_or_default();
        let mut value = json::read(&text).unwrap_or_else(|error| {
            json!({"status": "failed", "error": format!("the result cannot be shown: {error}"), "code": "internal_error"})
        });
        let is_error = was_not_run(result);
        let telemetry = json!(result.telemetry());
        if let Some(fields) = value.as_object_mut() {
            fields.shift_remove("telemetry");
            if let CellResult::Waiting { pending_tool_calls, .. } = result {
                fields.insert("pendingToolCalls".to_owned(), pending(pending_tool_calls));
                if let Some(reason) = pending_tool_calls.iter().find_map(|call| call.reason.as_ref()) {
                    fields.insert("yieldReason".to_owned(), json!(reason));
                }
                if !asked.is_empty() {
                    fields.insert("message".to_owned(), json!(message(asked, "call `wait` with the runId")));
                    fields.insert("approvals".to_owned(), named(asked));
                }
            }
            // The cell's own value is not touched.
            for name in ["output", "pendingToolCalls"] {
                if fields.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty) {
                    fields.shift_remove(name);
                }
            }
        }
        for at in &left_out {
            if let Some(item) = value.pointer_mut(&format!("/output/{at}")).and_then(Value::as_object_mut) {
                item.insert("shown".to_owned(), Value::Bool(false));
            }
        }
        let note = if left_out.is_empty() { note(result) } else { Some(LEFT_OUT) };
        if let (Some(note), Some(fields)) = (note, value.as_object_mut()) {
            fields.insert("note".to_owned(), json!(note));
        }
        Self { value, telemetry, is_error, media, links }
    }

    /// Returns an answer that lists runs, because the call did not say which run it means.
    pub(crate) fn listed(value: Value) -> Self {
        let telemetry = json!(Telemetry::default());
        Self { value, telemetry, is_error: false, media: Vec::new(), links: Vec::new() }
    }

    #[must_use]
    pub(crate) fn with_telemetry(self, telemetry: &Telemetry) -> Self {
        Self { telemetry: json!(telemetry), ..self }
    }

    /// The answer of a Tool Search tool. Its telemetry is only in the response's `_meta`, and its length is bounded.
    pub fn of_search(answer: ToolSearchAnswer) -> Self {
        let ToolSearchAnswer { mut value, telemetry, media: shown } = answer;
        let code = value.get("code").and_then(Value::as_str);
        let not_run = [ErrorCode::InvalidInput, ErrorCode::RuntimeUnavailable].map(ErrorCode::as_str);
        let is_error = is_failure(&value) && code.is_some_and(|code| not_run.contains(&code));
        if let Some(fields) = value.as_object_mut() {
            if fields.contains_key("ok") {
                fields.shift_remove("telemetry");
            }
            if fields.get("logs").and_then(Value::as_array).is_some_and(Vec::is_empty) && fields.contains_key("ok") {
                fields.shift_remove("logs");
            }
        }
        // The result of a tool that was called.
        let mut budget = MediaBudget::default();
        let mut media = Attachments::of_output(&shown, &mut budget).media;
        if let Some(result) = value.get_mut("result") {
            take_media(result, &mut budget, &mut media);
        }
        Self { value: bounded(value), telemetry, is_error, media, links: Vec::new() }
    }

    /// Adds the caller's live runs to the answer to a call for an unknown run.
    pub(crate) fn with_runs(mut self, runs: Vec<Value>) -> Self {
        if let (false, Some(fields)) = (runs.is_empty(), self.value.as_object_mut()) {
            fields.insert("runs".to_owned(), Value::from(runs));
        }
        self
    }
}

/// Returns the value, or its beginning if it is too long.
fn bounded(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_CONTROL_ANSWER_BYTES {
        return value;
    }
    let beginning = text.get(..text.floor_char_boundary(MAX_CONTROL_ANSWER_BYTES / 4)).unwrap_or_default();
    json!({
        "ok": true,
        "note": format!(
            "The answer has {} bytes of JSON; the limit is {MAX_CONTROL_ANSWER_BYTES}. `beginning` is the start of its \
             text. A tool that was called has taken effect: do not repeat the call, ask it for less.",
            text.len()
        ),
        "beginning": beginning,
    })
}

/// Returns the calls that the cell waits for. A yield is not one of them: `wait` continues it.
fn pending(calls: &[PendingToolCall]) -> Value {
    let calls = calls.iter().filter(|call| call.method != Method::Yield.as_str()).take(MAX_NAMED_CALLS);
    json!(calls.collect::<Vec<_>>())
}

/// Returns the note for a cell that gave the model nothing to read, often because it lacks a `return`.
fn note(result: &CellResult) -> Option<&'static str> {
    result.is_empty().then_some("The cell returned no value and wrote no output. Use `return value` or text(value).")
}

/// Whether the cell never started: the telemetry of a started run counts at least the `exec` that started it.
fn was_not_run(result: &CellResult) -> bool {
    match result {
        CellResult::Failed { telemetry, .. } => telemetry.exec_count == 0,
        CellResult::Completed { .. } | CellResult::Waiting { .. } => false,
    }
}

/// Returns the message that the model passes on to its user. It contains no command that approves: a model must not
/// approve its own call.
///
/// `then` is what the model does after the decision.
pub(crate) fn message(asked: &[Approval], then: &str) -> String {
    let first = asked.first().map_or_else(String::new, |approval| {
        let (tool, id) = (elicitation::tool(approval), &approval.approval_id);
        match elicitation::question(approval) {
            Some(ask) => format!("answer what `{tool}` asks ({id}): {}", elicitation::asked(&ask)),
            None => format!("approve or deny a call to `{tool}` ({id})"),
        }
    });
    let more = match asked.len() {
        0 | 1 => String::new(),
        number => format!(" ({} more below)", number - 1),
    };
    format!(
        "Waiting for a person to {first}{more}. Ask your user to run `cellmate approvals` in a terminal and to decide \
         there, then {then}."
    )
}

fn named(asked: &[Approval]) -> Value {
    let one = |approval: &Approval| {
        let mut named = json!({"approvalId": approval.approval_id, "tool": elicitation::tool(approval)});
        if let (Some(question), Some(fields)) = (&approval.question, named.as_object_mut()) {
            fields.insert("question".to_owned(), question.clone());
        }
        named
    };
    Value::from(asked.iter().take(MAX_NAMED_APPROVALS).map(one).collect::<Vec<_>>())
}

/// Returns the result of a call that ends before its run's first turn is written.
pub(crate) fn unwritten(run_id: &RunId) -> CellResult {
    CellResult::Waiting {
        run_id: run_id.clone(),
        reason: WaitingReason::PendingTools,
        pending_tool_calls: Vec::new(),
        output: Vec::new(),
        telemetry: Telemetry::default(),
    }
}

/// Adds the time since a result was made to the ages of its pending calls.
pub(crate) fn age(result: &mut CellResult, passed: Duration) {
    let CellResult::Waiting { pending_tool_calls, .. } = result else { return };
    let passed = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
    for call in pending_tool_calls {
        call.since_ms = call.since_ms.saturating_add(passed);
    }
}

/// Returns the result of an `exec` while the configuration is invalid.
pub(crate) fn invalid_config(why: &str) -> CellResult {
    let why = plain(why, MAX_WHY_CHARS);
    let message = format!(
        "the configuration was changed and is invalid, so no cell is started: {why}. Ask your user to correct it \
         (`cellmate config check` checks it), then try again"
    );
    failure(ErrorCode::InvalidConfig, &message)
}

/// Returns the result of a call that this program failed to carry out.
pub(crate) fn failed(message: &str) -> CellResult {
    failure(ErrorCode::InternalError, message)
}

/// Returns the result of a call with invalid input.
pub(crate) fn refused(message: &str) -> CellResult {
    failure(ErrorCode::InvalidInput, message)
}

fn failure(code: ErrorCode, message: &str) -> CellResult {
    CellResult::Failed {
        error: message.to_owned(),
        code: Some(code),
        output: Vec::new(),
        effects: Vec::new(),
        telemetry: Telemetry::default(),
    }
}

#[cfg(test)]
mod tests {
    use codemode::ToolSearchAnswer;
    use contract::cell::{
        CellResult, Effect, EffectState, Media, OutputItem, PendingState, PendingToolCall, Telemetry, WaitingReason,
    };
    use contract::error::ErrorCode;
    use contract::ids::{CallId, OutputHandle};
    use contract::limits::MAX_CONTROL_ANSWER_BYTES;
    use serde_json::json;
    use serde_json::value::RawValue;

    use std::time::Duration;

    use super::{Answer, MAX_NAMED_CALLS, MediaBudget, age};

    #[test]
    fn a_pending_call_is_as_old_as_it_is_when_the_answer_is_sent() {
        let pending = PendingToolCall {
            id: "bridge:call:1".to_owned(),
            method: "call".to_owned(),
            tool_id: None,
            state: PendingState::Approval,
            since_ms: 17,
            reason: None,
        };
        let mut result = CellResult::Waiting {
            run_id: "cm_1".into(),
            reason: WaitingReason::PendingTools,
            pending_tool_calls: vec![pending],
            output: Vec::new(),
            telemetry: Telemetry::default(),
        };
        age(&mut result, Duration::from_secs(44));
        assert_eq!(Answer::of(&result, &[]).value["pendingToolCalls"][0]["sinceMs"], 44_017);
    }

    #[test]
    fn status_comes_first_and_only_a_cell_that_did_not_run_is_an_error() {
        let ran = Telemetry { exec_count: 1, ..Telemetry::default() };
        let failed = |telemetry: &Telemetry| CellResult::Failed {
            error: "no".to_owned(),
            code: Some(ErrorCode::InvalidInput),
            output: Vec::new(),
            effects: Vec::new(),
            telemetry: telemetry.clone(),
        };
        let value = RawValue::from_string("{\"b\":1,\"a\":[2]}".to_owned()).unwrap();
        let completed = CellResult::Completed { value, output: Vec::new(), telemetry: ran.clone() };
        let answer = Answer::of(&completed, &[]);
        assert_eq!(answer.value.to_string(), "{\"status\":\"completed\",\"value\":{\"b\":1,\"a\":[2]}}");
        assert!(!answer.is_error);
        assert_eq!(answer.telemetry, json!(ran));
        assert_eq!(answer.value.get("note"), None);
        assert!(!Answer::of(&failed(&ran), &[]).is_error);
        let refused = Answer::of(&failed(&Telemetry::default()), &[]);
        assert!(refused.is_error);
        assert_eq!(refused.value["code"], json!("invalid_input"));
        assert_eq!(refused.telemetry, json!(Telemetry::default()));
    }

    #[test]
    fn an_answer_of_tool_search_has_its_telemetry_beside_it_and_a_bounded_length() {
        let answer = |value: serde_json::Value| {
            Answer::of_search(ToolSearchAnswer { value, telemetry: json!({"mode": "code"}), media: Vec::new() })
        };
        let done = answer(json!({"ok": true, "value": {"telemetry": 1, "logs": []}, "logs": [], "telemetry": {}}));
        assert_eq!(done.value, json!({"ok": true, "value": {"telemetry": 1, "logs": []}}));
        assert_eq!((done.telemetry, done.is_error), (json!({"mode": "code"}), false));
        let logged = answer(json!({"ok": false, "error": "no", "code": "timeout", "logs": ["a"]}));
        assert!(!logged.is_error);
        assert_eq!(logged.value["logs"], json!(["a"]));
        assert!(answer(json!({"ok": false, "error": "no", "code": "invalid_input", "logs": []})).is_error);
        // A tool's own result is not touched, whatever its fields are called.
        let own = json!({"tool": {"id": "mcp:s:t"}, "result": {"ok": false, "telemetry": 1}});
        assert_eq!(answer(own.clone()).value, own);
        let hits = json!([{"id": "mcp:s:t"}]);
        assert_eq!(answer(hits.clone()).value, hits);

        let long = answer(json!({"tool": {}, "result": "\u{e9}\"".repeat(MAX_CONTROL_ANSWER_BYTES)}));
        assert!(long.value.to_string().len() < MAX_CONTROL_ANSWER_BYTES, "{}", long.value.to_string().len());
        assert!(long.value["note"].as_str().unwrap().contains("do not repeat the call"), "{}", long.value["note"]);
        assert!(long.value["beginning"].as_str().unwrap().starts_with("{\"tool\":{},"));
    }

    fn media(bytes: usize) -> Media {
        let handle = Some(OutputHandle::of(&"cm_1".into(), "l1n0"));
        Media { mime_type: "image/png".to_owned(), data: vec![7; bytes].into(), handle }
    }

    #[test]
    fn an_image_is_named_in_the_json_and_its_data_is_beside_it() {
        let value = RawValue::from_string("1".to_owned()).unwrap();
        let output =
            vec![OutputItem::Text { text: "a".to_owned() }, OutputItem::Image(media(3)), OutputItem::Audio(media(4))];
        let result = CellResult::Completed { value, output, telemetry: Telemetry::default() };
        let answer = Answer::of(&result, &[]);
        assert_eq!(
            answer.value["output"],
            json!([
                {"type": "text", "text": "a"},
                {"type": "image", "mimeType": "image/png", "bytes": 3, "handle": "out_cm_1_l1n0"},
                {"type": "audio", "mimeType": "image/png", "bytes": 4, "handle": "out_cm_1_l1n0"},
            ])
        );
        assert_eq!((answer.media.len(), answer.links.len(), answer.value.get("note")), (2, 0, None));
        let cut = Answer::with_media(&result, &[], MediaBudget { blocks: 1, bytes: 100 });
        assert_eq!(cut.value["output"][2]["shown"], json!(false));
        assert!(cut.value["note"].as_str().unwrap().contains("image(handle)"), "{}", cut.value);
        assert_eq!((cut.media.len(), cut.value["output"][1].get("shown")), (1, None));
    }

    #[test]
    fn a_failed_cell_lists_the_calls_that_had_effects() {
        let effect = |call, state| Effect { tool: "mcp:s:push".to_owned(), call: CallId(call), state };
        let failed = CellResult::Failed {
            error: "no".to_owned(),
            code: Some(ErrorCode::Timeout),
            output: Vec::new(),
            effects: vec![effect(1, EffectState::Done), effect(2, EffectState::Unknown)],
            telemetry: Telemetry { exec_count: 1, ..Telemetry::default() },
        };
        let expected = "{\"status\":\"failed\",\"error\":\"no\",\"code\":\"timeout\",\"effects\":[\
                        {\"tool\":\"mcp:s:push\",\"call\":1,\"state\":\"done\"},\
                        {\"tool\":\"mcp:s:push\",\"call\":2,\"state\":\"unknown\"}]}";
        assert_eq!(Answer::of(&failed, &[]).value.to_string(), expected);
    }

    #[test]
    fn the_image_of_a_called_tool_is_beside_the_answer_of_tool_search() {
        let block = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});
        let value = json!({"tool": {"id": "mcp:s:t"}, "result": {"content": [block]}});
        let answer = Answer::of_search(ToolSearchAnswer { value, telemetry: json!({}), media: Vec::new() });
        assert_eq!(answer.value["result"]["content"][0], json!({"type": "image", "mimeType": "image/png", "bytes": 3}));
        assert_eq!(*answer.media[0].data, [0, 1, 2]);
    }

    #[test]
    fn the_fields_of_a_cells_own_value_are_kept() {
        let text = "{\"telemetry\":1,\"output\":[],\"pendingToolCalls\":[]}";
        let value = RawValue::from_string(text.to_owned()).unwrap();
        let completed = CellResult::Completed { value, output: Vec::new(), telemetry: Telemetry::default() };
        assert_eq!(
            Answer::of(&completed, &[]).value.to_string(),
            format!("{{\"status\":\"completed\",\"value\":{text}}}")
        );
    }

    #[test]
    fn a_waiting_answer_names_pending_calls_and_the_reason_of_a_yield() {
        let call = |method: &str, tool_id: Option<&str>, reason: Option<&str>| PendingToolCall {
            id: format!("bridge:{method}:1"),
            method: method.to_owned(),
            tool_id: tool_id.map(str::to_owned),
            state: PendingState::Running,
            since_ms: 5,
            reason: reason.map(str::to_owned),
        };
        let waiting = |reason: WaitingReason, pending_tool_calls: Vec<PendingToolCall>| CellResult::Waiting {
            run_id: "cm_1".into(),
            reason,
            pending_tool_calls,
            output: Vec::new(),
            telemetry: Telemetry::default(),
        };
        let yielded = Answer::of(&waiting(WaitingReason::Yield, vec![call("yield", None, Some("phase 0"))]), &[]);
        let expected = json!({"status": "waiting", "runId": "cm_1", "reason": "yield", "yieldReason": "phase 0"});
        assert_eq!(yielded.value, expected);
        let slow = call("namespace", Some("mcp:s:slow"), None);
        let answer = Answer::of(&waiting(WaitingReason::PendingTools, vec![slow; 1024]), &[]);
        let listed = answer.value["pendingToolCalls"].as_array().unwrap();
        assert_eq!((listed.len(), &listed[0]["toolId"]), (MAX_NAMED_CALLS, &json!("mcp:s:slow")));
    }

    #[test]
    fn a_cell_without_value_and_output_gets_a_note() {
        let completed = |value: &str, output| CellResult::Completed {
            value: RawValue::from_string(value.to_owned()).unwrap(),
            output,
            telemetry: Telemetry::default(),
        };
        let note = |result: &CellResult| Answer::of(result, &[]).value.get("note").cloned();
        assert!(note(&completed("null", Vec::new())).is_some());
        assert_eq!(note(&completed("null", vec![OutputItem::Text { text: "x".to_owned() }])), None);
        assert_eq!(note(&completed("0", Vec::new())), None);
    }
}
