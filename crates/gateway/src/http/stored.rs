//! Responses as they are stored, for retrieval and for requests that continue them.

use contract::ids::TurnId;
use contract::limits::MAX_STORED_RESPONSE_BYTES;
use executor::clock::now_ms;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use store::{NewResponse, ResponseRow};
use wire::downstream::{ResponseWriter, WireError};
use wire::upstream::ModelEvent;

use crate::turn::TurnSummary;
use crate::turn::log::LogEnd;

/// How long a response can be retrieved and continued.
const RETENTION_MS: i64 = 30 * 24 * 3_600 * 1_000;

/// The bytes of a request's input that are kept with its response. A larger input cannot be listed.
const MAX_INPUT_BYTES: usize = 1 << 20;

/// The letters of ids.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The letters of an id without its prefix.
const ID_LETTERS: usize = 24;

/// Returns what the ids of a response are made from. It is as unguessable as the turn's id, and every connection that
/// reads this response gets the same.
pub(super) fn response_key(turn_id: &TurnId, round: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(b"response");
    hash.update(round.to_le_bytes());
    hash.update(turn_id.as_str().as_bytes());
    let letter = |byte: u8| LETTERS.get(usize::from(byte % 36)).map(|letter| char::from(*letter));
    hash.finalize().into_iter().take(ID_LETTERS).filter_map(letter).collect()
}

/// Returns the items of a request's `input`, each with an id.
pub(super) fn input_items(fields: &Map<String, Value>) -> Option<String> {
    let items = match fields.get("input")? {
        Value::String(text) => vec![json!({"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": text}]})],
        Value::Array(items) => items.clone(),
        _ => return None,
    };
    let identified = |(at, item): (usize, Value)| match item {
        Value::Object(mut item) => {
            item.entry("type").or_insert_with(|| json!("message"));
            item.entry("id").or_insert_with(|| json!(format!("item_{at}")));
            Value::Object(item)
        }
        other => other,
    };
    let items: Vec<Value> = items.into_iter().enumerate().map(identified).collect();
    let text = json!(items).to_string();
    (text.len() <= MAX_INPUT_BYTES).then_some(text)
}

/// Returns the row of a response that ends now. `writer` has not written anything.
pub(super) fn row(writer: ResponseWriter, input: Option<&str>, summary: &TurnSummary<'_>) -> Option<NewResponse> {
    let mut writer = writer.unstreamed();
    for event in summary.said {
        drop(match event {
            ModelEvent::Text(text) => writer.text(text),
            ModelEvent::Reasoning(text) => writer.reasoning(text),
        });
    }
    let response_id = writer.response_id();
    let (body, item_ids) = match summary.end {
        LogEnd::Done { stop, usage } => {
            let item_ids = writer.item_ids(&[]);
            (String::from_utf8(writer.end(&[], stop, *usage)).ok()?, item_ids)
        }
        LogEnd::Calls { calls, usage } => {
            let item_ids = writer.item_ids(calls);
            let stop = wire::conversation::StopReason::ToolCalls;
            (String::from_utf8(writer.end(calls, &stop, *usage)).ok()?, item_ids)
        }
        LogEnd::Failed { status, message, .. } => {
            let status_word = if *status == 499 { "cancelled" } else { "failed" };
            (writer.unfinished(status_word, &WireError::new(*status, message.clone())).to_string(), Vec::new())
        }
    };
    let body = format!("{{\"response\":{body},\"input\":{}}}", input.unwrap_or("null"));
    let expires_at = now_ms().saturating_add(RETENTION_MS);
    (body.len() <= MAX_STORED_RESPONSE_BYTES).then_some(NewResponse { response_id, body, item_ids, expires_at })
}

/// A stored response and the input that it belongs to.
#[derive(Debug)]
pub(super) struct StoredResponse {
    pub(super) response: Value,
    /// `None` if the input was too large.
    pub(super) input: Option<Vec<Value>>,
}

impl StoredResponse {
    /// Reads a row that has not expired.
    pub(super) fn read(row: &ResponseRow) -> Option<Self> {
        if row.expires_at <= now_ms() {
            return None;
        }
        let mut fields: Map<String, Value> = serde_json::from_str(&row.body).ok()?;
        let input = match fields.remove("input") {
            Some(Value::Array(items)) => Some(items),
            _ => None,
        };
        Some(Self { response: fields.remove("response")?, input })
    }

    /// Returns an item of the response by its id.
    pub(super) fn item(&self, id: &str) -> Option<&Value> {
        let output = self.response.get("output").and_then(Value::as_array);
        output.into_iter().flatten().find(|item| item.get("id").and_then(Value::as_str) == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::TurnId;
    use serde_json::{Value, json};

    use super::{MAX_INPUT_BYTES, input_items, response_key};

    #[test]
    fn each_response_of_a_turn_has_its_own_lasting_id() {
        let (one, other) = (TurnId::new("turn_a"), TurnId::new("turn_b"));
        assert_eq!(response_key(&one, 0), response_key(&one, 0));
        assert_ne!(response_key(&one, 0), response_key(&one, 1));
        assert_ne!(response_key(&one, 0), response_key(&other, 0));
        assert_eq!(response_key(&one, 0).len(), 24);
    }

    #[test]
    fn every_kept_input_item_has_a_type_and_an_id_and_too_large_inputs_are_not_kept() {
        let read = |input: Value| {
            let text = input_items(json!({"input": input}).as_object().unwrap())?;
            Some(serde_json::from_str::<Value>(&text).unwrap())
        };
        let items =
            read(json!([{"role": "user", "content": "a"}, {"type": "function_call_output", "id": "x"}])).unwrap();
        assert_eq!(
            (&items[0]["id"], &items[0]["type"], &items[1]["id"]),
            (&json!("item_0"), &json!("message"), &json!("x"))
        );
        assert_eq!(read(json!("hi")).unwrap()[0]["content"][0]["text"], "hi");
        assert!(read(json!("x".repeat(MAX_INPUT_BYTES))).is_none());
    }
}
