//! What a request continues by name: a response, a message of a thread, or single items of earlier responses.

use contract::ids::TurnId;
use serde_json::{Map, Value};
use store::StoreError;
use wire::downstream::{ClientRequest, Thread, WireError};

use super::response::turn_error;
use super::stored::StoredResponse;
use crate::gateway::{Gateway, TurnError};

/// The most items of earlier responses that one request may refer to.
const MAX_REFERENCES: usize = 1_000;

/// Replaces references to items of earlier responses by these items.
pub(super) async fn resolve_references(
    gateway: &Gateway,
    principal: &str,
    fields: &mut Map<String, Value>,
) -> Result<(), WireError> {
    let Some(Value::Array(items)) = fields.get_mut("input") else { return Ok(()) };
    let is_reference = |item: &Value| item.get("type").and_then(Value::as_str) == Some("item_reference");
    if items.iter().filter(|item| is_reference(item)).count() > MAX_REFERENCES {
        let message = format!("a request may refer to at most {MAX_REFERENCES} items");
        return Err(WireError::new(400, message).in_field("input"));
    }
    let store = gateway.code_mode().store();
    let mut last: Option<StoredResponse> = None;
    for item in items.iter_mut().filter(|item| is_reference(item)) {
        let id = item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut found = last.as_ref().and_then(|stored| stored.item(&id).cloned());
        if found.is_none() {
            let row = store.response_of_item(principal, &id).await.map_err(store_error)?;
            last = row.as_ref().and_then(StoredResponse::read);
            found = last.as_ref().and_then(|stored| stored.item(&id).cloned());
        }
        *item = found.ok_or_else(|| {
            let message = format!("Item with id '{}' not found.", shown(&id));
            WireError::new(404, message).in_field("input")
        })?;
    }
    Ok(())
}

/// Returns the turn that a request continues by name. A request of a thread gets the tools and the instructions with which
/// the thread was created.
pub(super) async fn named_parent(
    gateway: &Gateway,
    principal: &str,
    request: &mut ClientRequest,
) -> Result<Option<TurnId>, WireError> {
    if let Some(id) = &request.previous_response_id {
        let unknown = || {
            let message = format!("Previous response with id '{}' not found.", shown(id));
            WireError::new(404, message).with_code("previous_response_not_found").in_field("previous_response_id")
        };
        return Ok(Some(turn_of(gateway, principal, id).await?.ok_or_else(unknown)?));
    }
    let Some(Thread::Continue { previous_message_id }) = &request.thread else { return Ok(None) };
    let unknown = || {
        let message = "the thread does not exist or has expired; create a new one with all messages";
        WireError::new(404, message).with_code("thread_not_found").in_field("thread")
    };
    let turn_id = turn_of(gateway, principal, previous_message_id).await?.ok_or_else(unknown)?;
    let record = match gateway.record(&turn_id, principal).await {
        Ok(record) => record,
        Err(TurnError::Unknown) => return Err(unknown()),
        Err(error) => return Err(turn_error(&error)),
    };
    if request.tools.is_empty() {
        request.tools.clone_from(&record.request().tools);
    }
    if request.instructions.is_empty() {
        request.instructions.clone_from(&record.request().instructions);
    }
    Ok(Some(turn_id))
}

async fn turn_of(gateway: &Gateway, principal: &str, response_id: &str) -> Result<Option<TurnId>, WireError> {
    let row = gateway.code_mode().store().response(principal, response_id).await.map_err(store_error)?;
    Ok(row.filter(|row| StoredResponse::read(row).is_some()).map(|row| row.turn_id))
}

pub(super) fn store_error(error: StoreError) -> WireError {
    turn_error(&TurnError::Store(error))
}

/// Returns an id of a client as far as it is shown in messages.
pub(super) fn shown(id: &str) -> String {
    id.chars().take(100).flat_map(char::escape_default).collect()
}
