//! What a client's request means: a new turn, results for a turn that waits for them, or a request sent before.
//!
//! [`decide`] is pure. [`plan`] reads from the store what it needs, and completes what it decided.

mod decide;
mod lookup;

use std::collections::{BTreeMap, HashMap};

use contract::ids::TurnId;
use http::HeaderMap;
use sha2::{Digest, Sha256};
use store::{DeliveryRow, EntryKind, NewEntry, TurnRow};
use telemetry::LogIgnored;
use wire::conversation::{CallResult, Item};
use wire::downstream::{ClientRequest, WireError};

use crate::gateway::{Gateway, TurnError, TurnHandle};
use crate::history::{self, KnownTurn, KnownTurns};
use crate::turn::record::ClientResults;

pub use decide::{Decision, LateResult, Start, decide};
pub use lookup::{ClientCallTurn, CutConversation, EqualRequestTurn, Lookups};

/// How long the recorded response is resent to a request that is sent again.
pub const RESEND_MS: i64 = 10 * 60 * 1_000;

/// The most bytes of an idempotency key.
const MAX_KEY_BYTES: usize = 256;

/// The maximum number of attempts to read a turn and make a plan: the turn may change in the meantime.
const MAX_ATTEMPTS: usize = 4;

/// What must be done for a request.
#[derive(Debug)]
pub enum Plan {
    /// A new turn, which continues the conversation of `parent` with these items.
    Start {
        parent: Option<TurnId>,
        items: Vec<Item>,
        /// The session of the conversation, if the store knows it: in it, the model can resume runs of earlier turns.
        session_id: Option<String>,
    },
    /// A waiting turn continues with what its client sends.
    Continue {
        turn: Box<TurnRow>,
        results: ClientResults,
    },
    /// An equal request already has a response, in progress or recorded.
    Follow(TurnHandle),
    /// The turn of an equal request was interrupted, and can be continued.
    Resume(Box<TurnRow>),
    Refuse(WireError),
}

/// What is known about a request besides its body.
#[derive(Clone, Debug, Default)]
pub struct RequestFacts {
    pub principal: String,
    pub agent: String,
    /// The digest of the request.
    pub digest: String,
    /// The turn that the client names: by a response, or by a message of a thread. It is in the body, so the caller of
    /// [`from_headers`](Self::from_headers) sets it.
    pub named_parent: Option<TurnId>,
    /// How often the client has sent this request before, as it says.
    pub retry_count: u32,
    /// The client's key for this request. The digest contains it.
    pub idempotency_key: Option<String>,
}

impl RequestFacts {
    /// Returns the facts of a request to this path, without `named_parent`.
    pub fn from_headers(principal: &str, agent: &str, path: &str, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let key = text("idempotency-key").filter(|key| !key.is_empty() && key.len() <= MAX_KEY_BYTES);
        Self {
            principal: principal.to_owned(),
            agent: agent.to_owned(),
            digest: request_digest(principal, path, key.unwrap_or_default(), body),
            named_parent: None,
            retry_count: text("x-stainless-retry-count").and_then(|count| count.parse().ok()).unwrap_or(0),
            idempotency_key: key.map(str::to_owned),
        }
    }

    /// Returns whether an earlier equal request counts as an attempt at this one: it has an idempotency key or a retry
    /// count. Otherwise it is another question with the same words.
    pub fn may_be_retry(&self) -> bool {
        self.retry_count > 0 || self.idempotency_key.is_some()
    }
}

/// Returns the digest of a request, which is the same if the request is sent again.
pub fn request_digest(principal: &str, path: &str, key: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [principal.as_bytes(), path.as_bytes(), key.as_bytes(), body] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

/// Finds out what a request means. The caller must hold the request's [`crate::RequestLock`] until the plan is
/// carried out, so that an equal request finds its turn.
pub async fn plan(gateway: &Gateway, request: &ClientRequest, facts: &RequestFacts) -> Result<Plan, TurnError> {
    for _ in 0..MAX_ATTEMPTS {
        let lookups = lookup::look_up(gateway, request, facts).await?;
        match decide(request, facts, &lookups) {
            Decision::Refuse(error) => return Ok(Plan::Refuse(error)),
            Decision::Join(turn_id) => {
                if let Some(handle) = gateway.live(&turn_id, &facts.principal) {
                    return Ok(Plan::Follow(handle));
                }
                // The turn has ended since it was looked up.
            }
            Decision::Resume(row) => {
                let current = gateway.code_mode().store().turn(&row.turn_id).await?;
                if current.is_some_and(|current| current.state == row.state) {
                    return Ok(Plan::Resume(row));
                }
                // It has ended, or waits for its client, since it was looked up.
            }
            Decision::Resend { turn, response } => {
                let record = gateway.record(&turn, &facts.principal).await?;
                return Ok(match gateway.resend(&turn, &record, response) {
                    Some(handle) => Plan::Follow(handle),
                    // The response is not complete, so there is nothing to resend.
                    None => Plan::Start { parent: None, items: request.items.clone(), session_id: None },
                });
            }
            Decision::Continue { turn, results, late } => {
                note_late(gateway, &turn, &late).await;
                return Ok(Plan::Continue { turn, results });
            }
            Decision::Start(start) => {
                if let Some(turn) = &lookups.client_calls {
                    note_late(gateway, &turn.row, &start.late).await;
                }
                return start_plan(gateway, facts, &lookups, start).await;
            }
        }
    }
    // The turn has changed during every attempt, so another process or request works on it.
    Err(TurnError::HeldElsewhere)
}

/// Completes the plan of a new turn: what the client's history shows of earlier turns is replaced by what the model saw.
async fn start_plan(
    gateway: &Gateway,
    facts: &RequestFacts,
    lookups: &Lookups,
    start: Start,
) -> Result<Plan, TurnError> {
    let Start { mut parent, mut items, fork, late: _ } = start;
    if let Some(turn_id) = fork {
        // The client names an earlier response of a turn. Its conversation up to there is that of the turn's parent, the
        // turn's request, and the exchanges until the calls whose results the client sends.
        let record = gateway.record(&turn_id, &facts.principal).await?;
        parent.clone_from(&record.request().parent);
        let ids = history::call_ids(&items).into_iter().filter(|id| lookups.calls.contains_key(id));
        let call = |id: String| wire::downstream::ClientCall { id, name: String::new(), arguments: String::new() };
        let calls: Vec<_> = ids.map(call).collect();
        let mut whole = history::with_answer(&record.request().items, "", &calls);
        whole.append(&mut items);
        items = whole;
    }
    let known = known_turns(gateway, facts, lookups, &items).await?;
    let before = items;
    let items = if known.calls.is_empty() { before.clone() } else { history::rebuild(&before, &known) };
    let earlier = match &parent {
        Some(parent) => Some(parent),
        None => history::call_ids_in_order(&before).rev().find_map(|id| known.calls.get(id)),
    };
    let session_id = match earlier {
        Some(turn_id) => gateway.code_mode().store().turn(turn_id).await?.map(|row| row.session_id),
        None => None,
    };
    Ok(Plan::Start { parent, items, session_id })
}

/// Reads the turns whose calls occur in these items.
async fn known_turns(
    gateway: &Gateway,
    facts: &RequestFacts,
    lookups: &Lookups,
    items: &[Item],
) -> Result<KnownTurns, TurnError> {
    let ids = history::call_ids(items).into_iter();
    let calls: HashMap<String, TurnId> =
        ids.filter_map(|id| lookups.calls.get(&id).map(|turn_id| (id.clone(), turn_id.clone()))).collect();
    let mut turns = HashMap::new();
    let wanted: BTreeMap<&str, &TurnId> = calls.values().map(|turn_id| (turn_id.as_str(), turn_id)).collect();
    for turn_id in wanted.into_values() {
        let record = match gateway.record(turn_id, &facts.principal).await {
            Ok(record) => record,
            Err(TurnError::Unknown) => continue,
            Err(error) => return Err(error),
        };
        let open = gateway.open_results(turn_id, &record).await?;
        let open = open.into_iter().map(|result| (result.call_id.clone(), result)).collect();
        turns.insert(turn_id.clone(), KnownTurn { record, open });
    }
    Ok(KnownTurns { turns, calls })
}

/// Records results that arrived after other results of the same calls, or after the calls' end.
async fn note_late(gateway: &Gateway, row: &TurnRow, late: &[LateResult]) {
    for LateResult { delivery, result } in late {
        let DeliveryRow { call_id, run_id, call, .. } = delivery;
        let text: String = crate::turn::outcome(result).to_json().chars().take(MAX_NOTE_CHARS).collect();
        let entry = serde_json::json!({
            "note": "late_result", "call": call, "callId": call_id, "turnId": row.turn_id, "outcome": text,
        });
        let entry = NewEntry::new(executor::clock::now_ms(), EntryKind::Note, &entry);
        let noted = gateway.code_mode().store().note(&row.session_id, run_id, &[entry]).await;
        noted.log_ignored("record a late result of a client");
    }
}

/// The most characters of a late result in a transcript.
const MAX_NOTE_CHARS: usize = 2_000;

/// Returns whether two results are equal for the cell that receives them.
fn is_equal(one: &CallResult, other: &CallResult) -> bool {
    let outcome = |result: &CallResult| crate::turn::outcome(result).to_json();
    outcome(one) == outcome(other)
}

#[cfg(test)]
mod tests;
