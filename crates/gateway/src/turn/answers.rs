//! The results that a client sends, and how they reach the calls of cells that wait for them.

use codemode::CodeMode;
use executor::{CallToken, Outcome, ToolResult};
use serde_json::{Value, json};
use store::{SettleError, StoreError};
use wire::conversation::{CallResult, Image, Part};

use super::record::{DeliveredCall, Step, TurnRecord};

/// Gives the client's results to the calls that wait for them. A result that was given before is ignored.
pub(super) async fn settle_answers(code_mode: &CodeMode, record: &TurnRecord) -> Result<(), StoreError> {
    for (token, outcome) in answered_calls(record) {
        fault::point("answer.before_settle")?;
        match code_mode.settle(&token, &outcome).await {
            // A call that has a result keeps it.
            Ok(_) | Err(SettleError::NotWaiting) => {}
            // Without the result, the cell would seem to wait for the client.
            Err(SettleError::Store(error)) => return Err(error),
        }
        fault::point("answer.after_settle")?;
    }
    Ok(())
}

/// Returns the calls that the client has answered, with their outcomes.
fn answered_calls(record: &TurnRecord) -> Vec<(CallToken, Outcome)> {
    let (mut delivered, mut answered): (Vec<&DeliveredCall>, Vec<&CallResult>) = (Vec::new(), Vec::new());
    for step in record.steps() {
        match step {
            Step::Delivered(calls) => {
                // The results of earlier rounds have reached their cells: without them there would be no new calls.
                delivered = calls.iter().collect();
                answered = Vec::new();
            }
            Step::Answered(answers) => answered.extend(&answers.results),
            Step::Request(_) | Step::Model(_) | Step::Result(_) | Step::Steered(_) | Step::Ended(_) => {}
        }
    }
    let of = |result: &CallResult| {
        let call: &&DeliveredCall = delivered.iter().find(|call| call.client.id == result.call_id)?;
        Some((CallToken { run: call.run_id.clone(), call: call.call }, outcome(result)))
    };
    answered.into_iter().filter_map(of).collect()
}

/// Returns the outcome that a client's result stands for. A text that is JSON is also given as a value.
pub(crate) fn outcome(result: &CallResult) -> Outcome {
    let text: Vec<&str> = result
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image(_) | Part::Other(..) => None,
        })
        .collect();
    let text = text.join("\n");
    if result.is_error {
        return Outcome::Failed(if text.is_empty() { "the client's tool failed".to_owned() } else { text });
    }
    let block = |part: &Part| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image(Image::Base64 { mime_type, data }) => json!({"type": "image", "mimeType": mime_type, "data": data}),
        Part::Image(Image::Url(url)) => json!({"type": "text", "text": url}),
        Part::Other(_, raw) => json!({"type": "text", "text": raw.get()}),
    };
    let only_text = result.parts.iter().all(|part| matches!(part, Part::Text(_)));
    let details: Option<Value> = if only_text { contract::json::read(&text).ok() } else { None };
    Outcome::Returned(ToolResult {
        content: result.parts.iter().map(block).collect(),
        details,
        ..ToolResult::default()
    })
}
