//! A result as clients receive it: the same compact JSON as text and as structured content, because about half of the
//! clients show the model the text and the others show it the structured content.
//!
//! `isError` is set only if the call could not be carried out at all (bad input, an unknown run), not if a cell ran and
//! failed: some clients cut the text of an error, some count it against a retry budget, some end the agent's run with
//! it. How a cell ended is in `status`, which every model sees.

use contract::cell::{CellResult, Telemetry, WaitingReason};
use contract::error::ErrorCode;
use contract::ids::RunId;
use contract::json;
use serde_json::{Value, json};
use store::Approval;

use super::elicitation;

/// The maximum number of approvals that one answer lists. The message gives the total number.
const MAX_NAMED_APPROVALS: usize = 16;

/// The response to a control call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) is_error: bool,
}

impl Answer {
    pub(crate) fn of(result: &CellResult, asked: &[Approval]) -> Self {
        let text = serde_json::to_string(result).unwrap_or_default();
        let mut value = json::read(&text).unwrap_or_else(|error| {
            json!({"status": "failed", "error": format!("the result cannot be shown: {error}"), "code": "internal_error"})
        });
        if let (CellResult::Waiting { .. }, false, Some(fields)) = (result, asked.is_empty(), value.as_object_mut()) {
            fields.insert("message".to_owned(), json!(message(asked)));
            fields.insert("approvals".to_owned(), named(asked));
        }
        if let (Some(note), Some(fields)) = (note(result), value.as_object_mut()) {
            fields.insert("note".to_owned(), json!(note));
        }
        Self { value, is_error: was_not_run(result) }
    }

    pub(crate) fn listed(value: Value) -> Self {
        Self { value, is_error: false }
    }
}

/// Returns the note for a cell that gave the model nothing to read, often because it lacks a `return`.
fn note(result: &CellResult) -> Option<&'static str> {
    match result {
        CellResult::Completed { value, output, .. } if value.get() == "null" && output.is_empty() => {
            Some("The cell returned no value and wrote no output. Use `return value` or text(value).")
        }
        _ => None,
    }
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
fn message(asked: &[Approval]) -> String {
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
         there, then call `wait` with the runId."
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

/// Returns the result of a call that ends before its run's turn does.
pub(crate) fn still_waiting(run_id: &RunId) -> CellResult {
    CellResult::Waiting {
        run_id: run_id.clone(),
        reason: WaitingReason::PendingTools,
        pending_tool_calls: Vec::new(),
        output: Vec::new(),
        telemetry: Telemetry::default(),
    }
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
        telemetry: Telemetry::default(),
    }
}

#[cfg(test)]
mod tests {
    use contract::cell::{CellResult, OutputItem, Telemetry};
    use contract::error::ErrorCode;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::Answer;

    #[test]
    fn status_comes_first_and_only_a_cell_that_did_not_run_is_an_error() {
        let ran = Telemetry { exec_count: 1, ..Telemetry::default() };
        let failed = |telemetry: &Telemetry| CellResult::Failed {
            error: "no".to_owned(),
            code: Some(ErrorCode::InvalidInput),
            output: Vec::new(),
            telemetry: telemetry.clone(),
        };
        let value = RawValue::from_string("{\"b\":1,\"a\":[2]}".to_owned()).unwrap();
        let completed = CellResult::Completed { value, output: Vec::new(), telemetry: ran.clone() };
        let answer = Answer::of(&completed, &[]);
        assert!(answer.value.to_string().starts_with("{\"status\":\"completed\",\"value\":{\"b\":1,\"a\":[2]}"));
        assert!(!answer.is_error);
        assert_eq!(answer.value.get("note"), None);
        assert!(!Answer::of(&failed(&ran), &[]).is_error);
        let refused = Answer::of(&failed(&Telemetry::default()), &[]);
        assert!(refused.is_error);
        assert_eq!(refused.value["code"], json!("invalid_input"));
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
