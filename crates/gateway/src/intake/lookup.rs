//! Reads from the store what a decision about a request needs.

use std::collections::HashMap;

use contract::ids::TurnId;
use executor::clock::now_ms;
use store::{DeliveryRow, Millis, Store, TurnRow};
use wire::conversation::Item;
use wire::downstream::ClientRequest;

use super::{MAX_ATTEMPTS, RESEND_MS, RequestFacts};
use crate::gateway::{Gateway, TurnError};
use crate::history;
use crate::turn::record::TurnRecord;

/// What the store and this process know about a request.
#[derive(Debug, Default)]
pub struct Lookups {
    pub now: Millis,
    pub equal_request: Option<EqualRequestTurn>,
    pub client_calls: Option<ClientCallTurn>,
    /// The turns of all calls in the request that are of this principal's turns, by the calls' ids.
    pub calls: HashMap<String, TurnId>,
    /// The turn that the client names, with its deliveries.
    pub named: Option<(TurnRow, Vec<DeliveryRow>)>,
    /// The longest known beginning of the conversation: the number of its items, and the turn that answered it.
    pub conversation: Option<(usize, TurnId)>,
    pub cut: Option<CutConversation>,
}

/// The newest turn that an equal request began.
#[derive(Debug)]
pub struct EqualRequestTurn {
    pub row: TurnRow,
    /// Whether the first response is complete, because the client was asked to make calls.
    pub has_delivered: bool,
    /// Whether this process runs the turn.
    pub is_live: bool,
}

/// The turn whose calls the end of the request refers to: it asked its client to make them.
#[derive(Debug)]
pub struct ClientCallTurn {
    pub row: TurnRow,
    pub deliveries: Vec<DeliveryRow>,
    pub record: TurnRecord,
    /// Whether this process runs the turn.
    pub is_live: bool,
}

/// A conversation whose last response had calls that the client may have dropped.
#[derive(Debug)]
pub struct CutConversation {
    /// The number of items before the new ones.
    pub end: usize,
    pub row: TurnRow,
    pub deliveries: Vec<DeliveryRow>,
}

pub(super) async fn look_up(
    gateway: &Gateway,
    request: &ClientRequest,
    facts: &RequestFacts,
) -> Result<Lookups, TurnError> {
    let (store, now) = (gateway.code_mode().store(), now_ms());
    let is_live = |turn_id: &TurnId| gateway.is_live(turn_id);
    let equal_request = match store.turn_by_request(&facts.principal, &facts.digest, now - RESEND_MS).await? {
        Some(row) => {
            let has_delivered = !store.deliveries_of_turn(&row.turn_id).await?.is_empty();
            let is_live = is_live(&row.turn_id);
            Some(EqualRequestTurn { row, has_delivered, is_live })
        }
        None => None,
    };
    let deliveries = store.deliveries(&facts.principal, &history::call_ids(&request.items)).await?;
    let client_calls = match turn_of_last_calls(request, &deliveries) {
        Some(turn_id) => read_client_calls(gateway, facts, turn_id).await?,
        None => None,
    };
    let named = match &facts.named_parent {
        Some(turn_id) => match own_turn(store, facts, turn_id).await? {
            Some(row) => Some((row, store.deliveries_of_turn(turn_id).await?)),
            None => return Err(TurnError::Unknown),
        },
        None => None,
    };
    let calls = deliveries.iter().map(|one| (one.call_id.clone(), one.turn_id.clone())).collect();
    let mut lookups = Lookups { now, equal_request, client_calls, calls, named, ..Lookups::default() };
    if lookups.named.is_none() {
        look_up_conversation(store, request, facts, &mut lookups).await?;
    }
    Ok(lookups)
}

async fn look_up_conversation(
    store: &Store,
    request: &ClientRequest,
    facts: &RequestFacts,
    lookups: &mut Lookups,
) -> Result<(), TurnError> {
    let prefixes = history::prefixes(&facts.agent, &request.items);
    for prefix in prefixes.answered {
        let found = store.turn_by_conversation(&facts.principal, &facts.agent, &prefix.digest).await?;
        if let Some(turn_id) = found {
            lookups.conversation = Some((prefix.end, turn_id));
            break;
        }
    }
    for prefix in prefixes.cut {
        let found = store.turn_by_conversation(&facts.principal, &facts.agent, &prefix.digest).await?;
        if let Some(turn_id) = found
            && let Some(row) = own_turn(store, facts, &turn_id).await?
        {
            let deliveries = store.deliveries_of_turn(&turn_id).await?;
            lookups.cut = Some(CutConversation { end: prefix.end, row, deliveries });
            break;
        }
    }
    Ok(())
}

/// Reads a turn that asked its client to make calls, as it was at one moment: it may change while it is read, because an
/// equal request is answered.
async fn read_client_calls(
    gateway: &Gateway,
    facts: &RequestFacts,
    turn_id: &TurnId,
) -> Result<Option<ClientCallTurn>, TurnError> {
    let store = gateway.code_mode().store();
    let mut current = own_turn(store, facts, turn_id).await?;
    for _ in 0..MAX_ATTEMPTS {
        let Some(row) = current else { return Ok(None) };
        let deliveries = store.deliveries_of_turn(turn_id).await?;
        let record = gateway.record(turn_id, &facts.principal).await?;
        current = own_turn(store, facts, turn_id).await?;
        if current.as_ref().is_some_and(|current| (current.state, current.steps) == (row.state, row.steps)) {
            return Ok(Some(ClientCallTurn { is_live: gateway.is_live(turn_id), row, deliveries, record }));
        }
    }
    // Another process or request works on it.
    Err(TurnError::HeldElsewhere)
}

async fn own_turn(store: &Store, facts: &RequestFacts, turn_id: &TurnId) -> Result<Option<TurnRow>, TurnError> {
    Ok(store.turn(turn_id).await?.filter(|row| row.principal == facts.principal))
}

/// Returns the turn whose calls the end of the request refers to: that of an open call, else that of the newest one.
fn turn_of_last_calls<'d>(request: &ClientRequest, deliveries: &'d [DeliveryRow]) -> Option<&'d TurnId> {
    let mut ids: Vec<&str> = request.trailing_results().map(|result| result.call_id.as_str()).collect();
    ids.extend(last_calls(&request.items));
    let named = deliveries.iter().filter(|one| ids.contains(&one.call_id.as_str()));
    let newest = named.max_by_key(|one| (one.answered_at.is_none(), one.sent_at, one.round));
    newest.map(|one| &one.turn_id)
}

/// Returns the ids of the calls of the last message of the model.
pub(super) fn last_calls(items: &[Item]) -> Vec<&str> {
    let is_before = |item: &&Item| !matches!(item, Item::Assistant(_));
    let last = items.iter().rev().skip_while(is_before);
    let messages = last.map_while(|item| match item {
        Item::Assistant(message) => Some(message),
        Item::System(_) | Item::User(_) | Item::Results(_) => None,
    });
    messages.flat_map(|message| &message.calls).map(|call| call.id.as_str()).collect()
}
