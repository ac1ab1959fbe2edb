//! The compactions that stand for the older turns of a conversation.

use std::collections::HashMap;

use contract::ids::TurnId;
use store::{Store, StoreError, TurnRow};

/// The compactions of the sessions that a conversation leads through, each read once.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    session_id: Option<String>,
    /// The turns up to which compactions summarize, and the newest compaction of each.
    made: HashMap<TurnId, TurnId>,
}

impl Compactions {
    /// Returns the compaction that summarizes the conversation up to and including a turn.
    pub(crate) async fn of(&mut self, store: &Store, row: &TurnRow) -> Result<Option<TurnId>, StoreError> {
        if self.session_id.as_ref() != Some(&row.session_id) {
            self.made = store.compactions(&row.principal, &row.session_id).await?.into_iter().collect();
            self.session_id = Some(row.session_id.clone());
        }
        Ok(self.made.get(&row.turn_id).cloned())
    }
}
