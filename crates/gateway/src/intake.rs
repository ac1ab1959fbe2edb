//! What a client's request means: a new turn, results for a turn that waits for them, or a repeated request.

use contract::ids::TurnId;
use sha2::{Digest, Sha256};
use store::{TurnRow, TurnState};
use wire::conversation::{CallResult, Item};
use wire::downstream::{ClientRequest, WireError};

use crate::gateway::{Gateway, TurnError};
use crate::history;

/// What a request means.
#[derive(Debug)]
pub enum Plan {
    /// A new turn, which continues the conversation of `parent` with these items.
    Start {
        parent: Option<TurnId>,
        items: Vec<Item>,
    },
    /// The results of all calls that a turn has asked its client for.
    Answer {
        turn: Box<TurnRow>,
        results: Vec<CallResult>,
    },
    /// The turn of an equal request is in progress in this process.
    Join(TurnId),
    /// The turn of an equal request was interrupted, and can be continued.
    Resume(Box<TurnRow>),
    Refuse(WireError),
}

/// What is known about a request besides its body.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    pub principal: String,
    pub agent: String,
    /// The digest of the body.
    pub digest: String,
    /// The turn that the client names: by a response, or by a message of a thread.
    pub named_parent: Option<TurnId>,
}

/// Returns the digest of a request, which is the same for a repeated one.
pub fn request_digest(principal: &str, path: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [principal.as_bytes(), path.as_bytes(), body] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

/// Decides what a request means.
pub async fn plan(gateway: &Gateway, request: &ClientRequest, facts: &RequestFacts) -> Result<Plan, TurnError> {
    let store = gateway.code_mode().store();
    if let Some(row) = store.turn_by_request(&facts.principal, &facts.digest, i64::MIN).await?
        && row.state == TurnState::Running
    {
        let is_live = gateway.live(&row.turn_id, &facts.principal).is_some();
        return Ok(if is_live { Plan::Join(row.turn_id) } else { Plan::Resume(Box::new(row)) });
    }
    let results: Vec<&CallResult> = request.trailing_results().collect();
    let ids: Vec<String> = results.iter().map(|result| result.call_id.clone()).collect();
    let deliveries = store.deliveries(&facts.principal, &ids).await?;
    let open = deliveries.iter().find(|delivery| delivery.answered_at.is_none());
    if let Some(delivery) = open
        && let Some(row) = store.turn(&delivery.turn_id).await?
        && row.state == TurnState::Waiting
    {
        let all = store.deliveries_of_turn(&row.turn_id).await?;
        let missing: Vec<&str> = all
            .iter()
            .filter(|one| one.answered_at.is_none() && !ids.contains(&one.call_id))
            .map(|one| one.call_id.as_str())
            .collect();
        if !missing.is_empty() {
            let message =
                format!("tool_use ids were found without tool_result blocks immediately after: {}", missing.join(", "));
            return Ok(Plan::Refuse(WireError::new(400, message)));
        }
        let is_asked = |result: &&&CallResult| all.iter().any(|one| one.call_id == result.call_id);
        let results = results.iter().filter(is_asked).map(|result| (*result).clone()).collect();
        return Ok(Plan::Answer { turn: Box::new(row), results });
    }
    if let Some(parent) = &facts.named_parent {
        return Ok(Plan::Start { parent: Some(parent.clone()), items: request.items.clone() });
    }
    let (before, new) = history::split(&request.items);
    if !before.is_empty() {
        let digest = history::digest(&facts.agent, before);
        if let Some(parent) = store.turn_by_conversation(&facts.principal, &facts.agent, &digest).await? {
            return Ok(Plan::Start { parent: Some(parent), items: new.to_vec() });
        }
    }
    Ok(Plan::Start { parent: None, items: request.items.clone() })
}
