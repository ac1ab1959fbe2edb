//! What clients had been shown when they began to listen for changes. The library asks what we listen for, says so to
//! the client, and only then has us listen: what changes in between must be told, so it is held against what was shown
//! before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::server::frontend::McpService;
use crate::server::prepared::Prepared;
use crate::server::principal::Principal;
use crate::server::settings::Offered;

/// Who begins to listen at once; the first of more may miss a change in between.
const MAX_BEGINNING: usize = 32;

/// Oldest first. Who is told more than it needs lists its tools once more; so the order of those who begin at once does
/// not matter.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<VecDeque<Before>>);

#[derive(Debug)]
struct Before {
    lists: HashMap<Principal, Arc<Prepared>>,
    /// Tells of what changes from then on.
    since: watch::Receiver<Offered>,
}

impl Before {
    fn now(frontend: &McpService) -> Self {
        let mut since = frontend.changes();
        since.mark_unchanged();
        Self { lists: frontend.shown(), since }
    }
}

impl Shown {
    pub(super) fn keep(&self, frontend: &McpService) {
        let before = Before::now(frontend);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(before);
        if kept.len() > MAX_BEGINNING {
            kept.pop_front();
        }
    }

    /// What this principal had been shown, if anything, and what tells of changes since then.
    pub(super) fn take(
        &self,
        frontend: &McpService,
        principal: &Principal,
    ) -> (Option<Arc<Prepared>>, watch::Receiver<Offered>) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let mut before = kept.unwrap_or_else(|| Before::now(frontend));
        (before.lists.remove(principal), before.since)
    }
}
