//! What clients had been shown when they began to listen for changes. The library asks what we listen for, says so to
//! the client, and only then has us listen: what changes in between must be told, so it is held against what was shown
//! before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::server::prepared::Prepared;
use crate::server::principal::Principal;

/// Who begins to listen at once; of more, the last are told of a change that they may know.
const MAX_BEGINNING: usize = 32;

type Lists = HashMap<Principal, Arc<Prepared>>;

/// Oldest first. Who is told more than it needs lists its tools once more; so the order of those who begin at once does
/// not matter.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<VecDeque<Lists>>);

impl Shown {
    pub(super) fn keep(&self, lists: Lists) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(lists);
        if kept.len() > MAX_BEGINNING {
            kept.pop_front();
        }
    }

    pub(super) fn take(&self) -> Lists {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or_default()
    }
}
