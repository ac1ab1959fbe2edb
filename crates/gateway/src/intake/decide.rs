//! Decides what a request means. Does no I/O.

use std::collections::HashSet;

use contract::ids::TurnId;
use store::{DeliveryRow, TurnRow, TurnState};
use wire::Wire;
use wire::conversation::{CallResult, Item, Part};
use wire::downstream::{ClientRequest, WireError};

use super::lookup::{ClientCallTurn, CutConversation, EqualRequestTurn, Lookups, last_calls};
use super::{RESEND_MS, RequestFacts, is_equal};
use crate::turn::record::ClientResults;

/// The outcome of a call that did not arrive at the client.
pub(super) const NOT_TAKEN: &str = "the client did not take this call";

/// What a request means.
#[derive(Debug)]
pub enum Decision {
    Start(Start),
    /// The results of all calls that a waiting turn has asked its client for.
    Continue {
        turn: Box<TurnRow>,
        results: ClientResults,
        late: Vec<LateResult>,
    },
    /// The turn of an equal request is in progress in this process.
    Join(TurnId),
    /// The turn of an equal request was interrupted, and can be continued.
    Resume(Box<TurnRow>),
    /// The request is sent again, and the turn has recorded its response. Responses are numbered from 0.
    Resend {
        turn: TurnId,
        response: usize,
    },
    Refuse(WireError),
}

/// A new turn.
#[derive(Debug, Default)]
pub struct Start {
    pub parent: Option<TurnId>,
    /// The items after the parent's conversation, as the client sent them.
    pub items: Vec<Item>,
    /// The turn from whose middle the new one branches off.
    pub fork: Option<TurnId>,
    pub late: Vec<LateResult>,
}

/// A result of a call that has another result, or has ended.
#[derive(Debug)]
pub struct LateResult {
    pub delivery: DeliveryRow,
    pub result: CallResult,
}

/// Decides what a request means.
pub fn decide(request: &ClientRequest, facts: &RequestFacts, lookups: &Lookups) -> Decision {
    let equal = lookups.equal_request.as_ref().and_then(|turn| equal_request(turn, facts, lookups));
    if let Some(decision) = equal {
        return decision;
    }
    let mut late = Vec::new();
    if let Some(turn) = &lookups.client_calls {
        match client_results(request, facts, turn, lookups) {
            Ok(decision) => return decision,
            Err(not_taken) => late = not_taken,
        }
        if lookups.named.is_some() {
            let (items, fork) = (request.items.clone(), Some(turn.row.turn_id.clone()));
            return Decision::Start(Start { parent: None, items, fork, late });
        }
    }
    if let Some((row, deliveries)) = &lookups.named {
        let open = open(deliveries);
        if is_waiting(row, lookups) && !open.is_empty() {
            return missing(request.wire, &open);
        }
        return Decision::Start(Start {
            parent: Some(row.turn_id.clone()),
            items: request.items.clone(),
            fork: None,
            late,
        });
    }
    // A client that went back to an earlier round has not lost the calls of a later one.
    let cut = lookups.cut.as_ref().filter(|_| lookups.client_calls.is_none());
    if let Some(decision) = cut.and_then(|cut| dropped_calls(request, facts, cut, lookups)) {
        return decision;
    }
    let (end, parent) = match &lookups.conversation {
        Some((end, turn_id)) => (*end, Some(turn_id.clone())),
        None => (0, None),
    };
    let items = request.items.iter().skip(end).cloned().collect();
    Decision::Start(Start { parent, items, fork: None, late })
}

/// Decides about a request that equals the one which began a turn. `None` if it begins a new turn.
fn equal_request(turn: &EqualRequestTurn, facts: &RequestFacts, lookups: &Lookups) -> Option<Decision> {
    let EqualRequestTurn { row, has_delivered, is_live } = turn;
    if row.state == TurnState::Running && !has_delivered {
        return Some(in_progress(row, *is_live));
    }
    // A response that failed is not resent: the client tries again because of it.
    let has_response = *has_delivered || row.state == TurnState::Completed;
    let is_recent = row.updated_at >= lookups.now - RESEND_MS;
    let resend = Decision::Resend { turn: row.turn_id.clone(), response: 0 };
    (has_response && is_recent && facts.may_be_retry()).then_some(resend)
}

fn in_progress(row: &TurnRow, is_live: bool) -> Decision {
    if is_live { Decision::Join(row.turn_id.clone()) } else { Decision::Resume(Box::new(row.clone())) }
}

/// Decides about a request whose end refers to calls of a turn. If it begins a new turn, returns the results that come too
/// late.
fn client_results(
    request: &ClientRequest,
    facts: &RequestFacts,
    turn: &ClientCallTurn,
    lookups: &Lookups,
) -> Result<Decision, Vec<LateResult>> {
    let ClientCallTurn { row, deliveries, record, is_live } = turn;
    let mut given: Vec<(&DeliveryRow, &CallResult)> = Vec::new();
    let mut late = Vec::new();
    for result in request.trailing_results() {
        let Some(delivery) = deliveries.iter().find(|one| one.call_id == result.call_id) else { continue };
        let first = given.iter().find(|(one, _)| one.call_id == delivery.call_id).map(|(_, first)| *first);
        match record.result_of(&result.call_id).or(first) {
            Some(first) if !is_equal(first, result) => {
                late.push(LateResult { delivery: delivery.clone(), result: result.clone() });
            }
            Some(_) => {}
            None => given.push((delivery, result)),
        }
    }
    let last = last_calls(&request.items);
    let open = open(deliveries);
    let is_shown = |one: &&&DeliveryRow| last.contains(&one.call_id.as_str());
    let is_given = |one: &DeliveryRow| given.iter().any(|(given, _)| given.call_id == one.call_id);
    if is_waiting(row, lookups) && open.iter().any(|one| is_given(one) || is_shown(&one)) {
        // If the client shows the model's message, calls that are not in it did not arrive.
        let shows_message = open.iter().any(|one| is_shown(&one));
        let not_given: Vec<&DeliveryRow> = open.iter().filter(|one| !is_given(one)).copied().collect();
        let (unanswered, not_taken): (Vec<&DeliveryRow>, Vec<&DeliveryRow>) =
            not_given.into_iter().partition(|one| !shows_message || is_shown(&one));
        if !unanswered.is_empty() {
            return Ok(missing(request.wire, &unanswered));
        }
        let results = given.iter().map(|(_, result)| (*result).clone());
        let results = results.chain(not_taken.iter().map(|one| refused(one))).collect();
        let said = said_after(request.items.iter().rev());
        let results = ClientResults { results, said, request: facts.digest.clone() };
        return Ok(Decision::Continue { turn: Box::new(row.clone()), results, late });
    }
    let is_same = record.last_results().is_some_and(|results| results.request == facts.digest);
    if is_same && row.state == TurnState::Running {
        return Ok(in_progress(row, *is_live));
    }
    let responses = record.responses();
    let is_recent = row.updated_at >= lookups.now - RESEND_MS;
    if is_same && is_recent && facts.may_be_retry() {
        // The response after the last results, if it is complete.
        let response = responses.iter().rposition(|response| response.is_whole).filter(|at| at + 1 == responses.len());
        if let Some(response) = response {
            return Ok(Decision::Resend { turn: row.turn_id.clone(), response });
        }
    }
    let expired = given.into_iter().map(|(delivery, result)| (delivery.clone(), result.clone()));
    late.extend(expired.map(|(delivery, result)| LateResult { delivery, result }));
    Err(late)
}

/// Decides about a conversation that continues without the calls of its last response.
fn dropped_calls(
    request: &ClientRequest,
    facts: &RequestFacts,
    cut: &CutConversation,
    lookups: &Lookups,
) -> Option<Decision> {
    let open = open(&cut.deliveries);
    if !is_waiting(&cut.row, lookups) || open.is_empty() {
        return None;
    }
    let new = request.items.get(cut.end..)?;
    let shown: HashSet<&String> = lookups.calls.keys().collect();
    if open.iter().any(|one| shown.contains(&one.call_id)) {
        return None;
    }
    let results = open.into_iter().map(refused).collect();
    let results = ClientResults { results, said: said_after(new.iter().rev()), request: facts.digest.clone() };
    Some(Decision::Continue { turn: Box::new(cut.row.clone()), results, late: Vec::new() })
}

fn is_waiting(row: &TurnRow, lookups: &Lookups) -> bool {
    row.state == TurnState::Waiting && row.expires_at > lookups.now
}

fn open(deliveries: &[DeliveryRow]) -> Vec<&DeliveryRow> {
    deliveries.iter().filter(|one| one.answered_at.is_none()).collect()
}

fn refused(delivery: &DeliveryRow) -> CallResult {
    CallResult { call_id: delivery.call_id.clone(), parts: vec![Part::Text(NOT_TAKEN.to_owned())], is_error: true }
}

/// Returns what the user says at the end of a conversation, which is given backwards. Instructions count as words of the
/// user.
fn said_after<'i>(backwards: impl Iterator<Item = &'i Item>) -> Vec<Vec<Part>> {
    let mut said: Vec<Vec<Part>> = backwards
        .take_while(|item| !matches!(item, Item::Assistant(_)))
        .filter_map(|item| match item {
            Item::User(parts) => Some(parts.clone()),
            Item::System(text) => Some(vec![Part::Text(text.clone())]),
            Item::Assistant(_) | Item::Results(_) => None,
        })
        .filter(|parts| !parts.iter().all(|part| matches!(part, Part::Text(text) if text.trim().is_empty())))
        .collect();
    said.reverse();
    said
}

/// Refuses a request without the results of these calls, in the words of the wire's vendor, which clients know.
fn missing(wire: Wire, calls: &[&DeliveryRow]) -> Decision {
    let ids: Vec<&str> = calls.iter().map(|one| one.call_id.as_str()).collect();
    let ids = ids.join(", ");
    let message = match wire {
        Wire::Chat => format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. \
             The following tool_call_ids did not have response messages: {ids}"
        ),
        Wire::Responses => format!("No tool output found for function call {ids}."),
        Wire::Messages => {
            format!(
                "tool_use ids were found without tool_result blocks immediately after: {ids}. Each tool_use block \
                     must have a corresponding tool_result block in the next message."
            )
        }
    };
    Decision::Refuse(WireError::new(400, message))
}
