//! The visible conversation of a client: what identifies it, and what the model has seen of it.
//!
//! Clients of Chat and Messages send the whole conversation with every request, but not byte for byte as they received it:
//! they move cache marks, turn lists of one text into strings, join or split messages of one role, clear old results and
//! add instructions. A digest over what they keep, which is roles, texts without white space and call ids, finds the turn
//! that a conversation ended with. If it is not found, [`rebuild`] uses the ids of calls.

use std::collections::HashMap;

use contract::ids::TurnId;
use sha2::{Digest, Sha256};
use wire::conversation::{Arguments, Assistant, CallResult, Image, Item, ModelCall, Part};
use wire::downstream::ClientCall;

use crate::turn::log::LogEnd;
use crate::turn::record::TurnRecord;

/// How many prefixes of a conversation are looked up.
const MAX_PREFIXES: usize = 8;

/// Returns the digest of a conversation with an agent, as its client sees it. Instructions are not part of it.
pub fn digest(agent: &str, items: &[Item]) -> String {
    let mut hash = ConversationHash::new(agent);
    items.iter().for_each(|item| hash.add(item));
    hash.whole()
}

/// Returns the digests by which later requests find a turn whose response ends now. `items` are those of the request.
///
/// A client that loses the connection may drop the calls of a response, so a response with calls has a second digest,
/// without them.
pub fn digests_at_end(agent: &str, items: &[Item], text: &str, end: &LogEnd) -> Vec<String> {
    let calls = match end {
        LogEnd::Done { .. } => return vec![digest(agent, &with_answer(items, text, &[]))],
        LogEnd::Calls { calls, .. } => calls,
        LogEnd::Failed { .. } => return Vec::new(),
    };
    let mut cut = ConversationHash::new(agent);
    with_answer(items, text, &[]).iter().for_each(|item| cut.add(item));
    vec![digest(agent, &with_answer(items, text, calls)), cut.without_calls()]
}

/// Returns the conversation with the answer that the client receives for it.
pub fn with_answer(items: &[Item], text: &str, calls: &[ClientCall]) -> Vec<Item> {
    let call = |call: &ClientCall| ModelCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: Arguments::classify(call.arguments.clone()),
    };
    let answer = Assistant { text: text.to_owned(), calls: calls.iter().map(call).collect(), raw: None };
    items.iter().cloned().chain([Item::Assistant(answer)]).collect()
}

/// A beginning of a conversation and its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The number of its items.
    pub end: usize,
    pub digest: String,
}

/// The beginnings of a conversation that may have been answered by a turn, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// The beginnings that end with a complete answer of the model.
    pub answered: Vec<Prefix>,
    /// The beginnings after which the client may have dropped calls.
    pub cut: Vec<Prefix>,
}

/// Returns the beginnings of a conversation that may have been answered by a turn.
pub fn prefixes(agent: &str, items: &[Item]) -> Prefixes {
    let mut hash = ConversationHash::new(agent);
    let mut found = Prefixes::default();
    let last_answer = items.iter().rposition(|item| matches!(item, Item::Assistant(_))).map_or(0, |at| at + 1);
    for (at, item) in items.iter().enumerate() {
        hash.add(item);
        let end = at + 1;
        let continues = matches!((item, items.get(end)), (Item::Assistant(_), Some(Item::Assistant(_))));
        if continues || end == items.len() {
            continue;
        }
        if matches!(item, Item::Assistant(message) if message.calls.is_empty()) {
            found.answered.push(Prefix { end, digest: hash.whole() });
        }
        if end >= last_answer {
            found.cut.push(Prefix { end, digest: hash.without_calls() });
        }
    }
    for list in [&mut found.answered, &mut found.cut] {
        list.reverse();
        list.truncate(MAX_PREFIXES);
    }
    found
}

/// What is stored of the turns whose calls occur in a client's history.
#[derive(Debug, Default)]
pub struct KnownTurns {
    pub turns: HashMap<TurnId, KnownTurn>,
    /// The turns of the client's calls, by the calls' ids.
    pub calls: HashMap<String, TurnId>,
}

/// A turn whose calls occur in a client's history.
#[derive(Debug)]
pub struct KnownTurn {
    pub record: TurnRecord,
    /// What the model receives for calls of its own that have no result, by their ids.
    pub open: HashMap<String, CallResult>,
}

impl KnownTurns {
    /// Returns the turn of a client's call, and the number of the model's response that led to it.
    fn origin(&self, call_id: &str) -> Option<(&TurnId, &KnownTurn, usize)> {
        let turn_id = self.calls.get(call_id)?;
        let turn = self.turns.get(turn_id)?;
        Some((turn_id, turn, turn.record.model_of_delivery(call_id)?))
    }
}

/// Replaces the messages of a client's history that carry calls of known turns by what the model has seen instead: its own
/// message, as its provider sent it, and the result that it received. Everything else stays as it is.
pub fn rebuild(items: &[Item], known: &KnownTurns) -> Vec<Item> {
    let mut rebuilt: Vec<Item> = Vec::with_capacity(items.len());
    // How many of the model's responses of each turn are in the result.
    let mut told: HashMap<&TurnId, usize> = HashMap::new();
    for item in items {
        match item {
            Item::Assistant(message) => {
                let origins: Vec<_> = message.calls.iter().map(|call| known.origin(&call.id)).collect();
                if origins.iter().all(Option::is_none) {
                    rebuilt.push(item.clone());
                    continue;
                }
                for (turn_id, turn, model) in origins.iter().flatten() {
                    let told = told.entry(*turn_id).or_default();
                    if *told <= *model {
                        let open =
                            |call: &ModelCall| turn.open.get(&call.id).cloned().unwrap_or_else(|| not_over(call));
                        rebuilt.extend(turn.record.exchange(*told..=*model, open));
                        *told = *model + 1;
                    }
                }
                let others = message.calls.iter().zip(&origins).filter(|(_, origin)| origin.is_none());
                let calls: Vec<ModelCall> = others.map(|(call, _)| call.clone()).collect();
                if !calls.is_empty() {
                    rebuilt.push(Item::Assistant(Assistant { calls, ..Assistant::default() }));
                }
            }
            Item::Results(results) => {
                let others = results.iter().filter(|result| known.origin(&result.call_id).is_none());
                let others: Vec<CallResult> = others.cloned().collect();
                if !others.is_empty() {
                    rebuilt.push(Item::Results(others));
                }
            }
            Item::System(_) | Item::User(_) => rebuilt.push(item.clone()),
        }
    }
    rebuilt
}

/// Returns what the model receives for a call that is not over and of which nothing else is known.
pub fn not_over(call: &ModelCall) -> CallResult {
    CallResult::text(&call.id, serde_json::json!({"status": "waiting"}).to_string())
}

/// Returns the ids of the calls in a conversation in their order.
pub fn call_ids_in_order(items: &[Item]) -> impl DoubleEndedIterator<Item = &str> {
    let calls = items.iter().filter_map(|item| match item {
        Item::Assistant(message) => Some(&message.calls),
        Item::System(_) | Item::User(_) | Item::Results(_) => None,
    });
    calls.flatten().map(|call| call.id.as_str())
}

/// Returns the ids of all calls and results in a conversation, each once.
pub fn call_ids(items: &[Item]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for item in items {
        match item {
            Item::Assistant(message) => ids.extend(message.calls.iter().map(|call| call.id.clone())),
            Item::Results(results) => ids.extend(results.iter().map(|result| result.call_id.clone())),
            Item::System(_) | Item::User(_) => {}
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The digest of a conversation that grows. White space is no part of it, so it separates the fields.
#[derive(Clone)]
struct ConversationHash {
    hash: Sha256,
    /// The role of the last message: messages of one role that follow each other count as one.
    role: u8,
}

impl ConversationHash {
    fn new(agent: &str) -> Self {
        let mut new = Self { hash: Sha256::new(), role: b'-' };
        new.text(agent);
        new
    }

    fn add(&mut self, item: &Item) {
        match item {
            Item::System(_) => {}
            Item::User(parts) => {
                self.role(b'U');
                for part in parts {
                    match part {
                        Part::Text(text) => self.text(text),
                        Part::Image(Image::Url(url)) => self.field(b'u', url),
                        Part::Image(Image::Base64 { data, .. }) => self.field(b'i', data),
                        Part::Other(..) => {}
                    }
                }
            }
            Item::Assistant(message) => {
                if message.text.trim().is_empty() && message.calls.is_empty() {
                    return;
                }
                self.role(b'A');
                self.text(&message.text);
                message.calls.iter().for_each(|call| self.field(b'c', &call.id));
            }
            Item::Results(results) => {
                self.role(b'R');
                results.iter().for_each(|result| self.field(b'c', &result.call_id));
            }
        }
    }

    fn role(&mut self, role: u8) {
        if self.role != role {
            self.hash.update([b'\n', role]);
            self.role = role;
        }
    }

    fn field(&mut self, kind: u8, text: &str) {
        self.hash.update([b' ', kind]);
        self.text(text);
        self.hash.update(b" ");
    }

    fn text(&mut self, text: &str) {
        text.split_whitespace().for_each(|word| self.hash.update(word));
    }

    fn whole(&self) -> String {
        hex::encode(self.hash.clone().finalize())
    }

    /// Returns the digest of a conversation whose last answer has lost its calls.
    fn without_calls(&self) -> String {
        let mut hash = self.hash.clone();
        hash.update(b"\ncut");
        hex::encode(hash.finalize())
    }
}

#[cfg(test)]
mod tests;
