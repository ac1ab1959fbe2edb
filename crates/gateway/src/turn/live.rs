//! The turns that a process runs, and how they are joined, aborted and steered from outside.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use contract::ids::TurnId;
use parking_lot::Mutex;
use store::{TurnMessage, TurnMessageKind};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use wire::conversation::Part;

use super::log::{LogReader, TurnLog};

/// What an abort or a message of a person changes in a running turn.
#[derive(Debug, Default)]
pub(crate) struct Interventions {
    pub(crate) abort: CancellationToken,
    pub(crate) reason: Mutex<Option<String>>,
    /// Cancelled when another process has taken over the turn.
    pub(crate) lost: CancellationToken,
    /// Messages that have not reached the record.
    pub(crate) steered: Mutex<Vec<SteeredMessage>>,
    /// The ids of the stored messages that were received.
    received: Mutex<HashSet<String>>,
}

/// A message of a person to a running turn.
#[derive(Debug)]
pub(crate) struct SteeredMessage {
    /// The message's id in the store.
    pub(crate) message_id: String,
    pub(crate) parts: Vec<Part>,
}

/// A turn that this process runs.
#[derive(Clone, Debug)]
pub(crate) struct LiveTurn {
    pub(crate) principal: String,
    pub(crate) log: TurnLog,
    pub(crate) interventions: Arc<Interventions>,
    /// The number of the response that the turn works on.
    pub(crate) round: u32,
    /// The turn's place among those that run at once.
    pub(crate) _admission: Arc<OwnedSemaphorePermit>,
}

/// The turns that this process runs.
#[derive(Debug, Default)]
pub(crate) struct LiveTurns(Mutex<HashMap<TurnId, LiveTurn>>);

impl LiveTurns {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn has(&self, turn_id: &TurnId) -> bool {
        self.0.lock().contains_key(turn_id)
    }

    pub(crate) fn ids(&self) -> Vec<TurnId> {
        self.0.lock().keys().cloned().collect()
    }

    pub(crate) fn add(&self, turn_id: &TurnId, turn: LiveTurn) {
        self.0.lock().insert(turn_id.clone(), turn);
    }

    /// Records that a driver no longer runs a turn. Must be called before the client can send the next request.
    pub(crate) fn forget(&self, turn_id: &TurnId, interventions: &Arc<Interventions>) {
        let mut live = self.0.lock();
        if live.get(turn_id).is_some_and(|turn| Arc::ptr_eq(&turn.interventions, interventions)) {
            live.remove(turn_id);
        }
    }

    /// Returns a reader of a principal's turn, and the number of the response that it reads.
    pub(crate) fn read(&self, turn_id: &TurnId, principal: &str) -> Option<(LogReader, u32)> {
        let live = self.0.lock();
        let turn = live.get(turn_id).filter(|turn| turn.principal == principal)?;
        Some((turn.log.read(), turn.round))
    }

    /// Returns the turns of a principal, with the numbers of their responses.
    pub(crate) fn of(&self, principal: &str) -> Vec<(TurnId, u32)> {
        let live = self.0.lock();
        let own = live.iter().filter(|(_, turn)| turn.principal == principal);
        own.map(|(turn_id, turn)| (turn_id.clone(), turn.round)).collect()
    }

    /// Aborts a turn. Returns whether there was one.
    pub(crate) fn abort(&self, turn_id: &TurnId, reason: &str) -> bool {
        let live = self.0.lock();
        let Some(turn) = live.get(turn_id) else { return false };
        turn.interventions.reason.lock().get_or_insert_with(|| reason.to_owned());
        turn.interventions.abort.cancel();
        true
    }

    /// Stops the driver of a turn that another process has taken over.
    pub(crate) fn lose(&self, turn_id: &TurnId) {
        if let Some(turn) = self.0.lock().get(turn_id) {
            turn.interventions.lost.cancel();
        }
    }

    /// Does what a stored message asks for. A message is received once, although it stays in the store until its turn
    /// has changed.
    pub(crate) fn receive(&self, message: TurnMessage) {
        let TurnMessage { turn_id, message_id, kind, body } = message;
        match kind {
            TurnMessageKind::Abort => {
                // The turn may have ended meanwhile.
                self.abort(&turn_id, &body);
            }
            TurnMessageKind::Steer => {
                let live = self.0.lock();
                let Some(turn) = live.get(&turn_id) else { return };
                if !turn.interventions.received.lock().insert(message_id.clone()) {
                    return;
                }
                match serde_json::from_str(&body) {
                    Ok(parts) => {
                        let message = SteeredMessage { message_id, parts };
                        turn.interventions.steered.lock().push(message);
                    }
                    Err(error) => tracing::warn!(turn = turn_id.as_str(), %error, "a message to a turn is unreadable"),
                }
            }
        }
    }
}
