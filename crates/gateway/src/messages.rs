//! Messages to turns that other processes run over the same store.

use std::time::Duration;

use contract::ids::TurnId;
use executor::clock::now_ms;
use store::{TurnMessage, TurnMessageKind, TurnRow, TurnState};
use tokio::time::Instant;
use wire::conversation::Part;

use crate::gateway::{Gateway, TurnError};

/// How long the process that runs a turn may take to abort it.
const MAX_ABORT_TIME: Duration = Duration::from_secs(5);

/// How often it is checked whether the turn has ended. The store notifies of changes of runs only, not of turns.
const ABORT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Gateway {
    /// Asks the process that runs a turn to abort it, and waits until it has. Returns whether the turn has ended.
    pub(crate) async fn abort_elsewhere(&self, turn: &TurnRow, reason: &str) -> Result<bool, TurnError> {
        // A process whose lease is over does not read messages.
        if turn.state != TurnState::Running || turn.lease_until < now_ms() {
            return Ok(false);
        }
        if !self.send_message(&turn.turn_id, TurnMessageKind::Abort, reason.to_owned()).await? {
            return Ok(false);
        }
        let deadline = Instant::now() + MAX_ABORT_TIME;
        while Instant::now() < deadline {
            if self.store().turn(&turn.turn_id).await?.is_none_or(|row| row.state.is_over()) {
                return Ok(true);
            }
            tokio::time::sleep(ABORT_CHECK_INTERVAL).await;
        }
        Ok(false)
    }

    /// Sends a person's message to a turn, which any process may run: the model gets it with its next request. The message
    /// is stored first, so that a process that takes over the turn has it, too. Returns `false` if the turn is not running.
    pub(crate) async fn steer(&self, turn_id: &TurnId, parts: &[Part]) -> Result<bool, TurnError> {
        let body = serde_json::to_string(parts).map_err(|error| TurnError::Corrupt(error.to_string()))?;
        self.send_message(turn_id, TurnMessageKind::Steer, body).await
    }

    async fn send_message(&self, turn_id: &TurnId, kind: TurnMessageKind, body: String) -> Result<bool, TurnError> {
        let message_id = crate::random::id()?;
        let message = TurnMessage { turn_id: turn_id.clone(), message_id, kind, body };
        let is_sent = self.store().add_turn_message(&message, now_ms()).await?;
        if is_sent {
            self.receive(message);
        }
        Ok(is_sent)
    }
}
