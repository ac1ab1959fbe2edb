//! The tool lists that clients had been shown when they subscribed to changes.
//!
//! The library asks the handler to accept a subscription, acknowledges it to the client, and only then calls `listen`.
//! A change in between must be announced, so `listen` compares the tools with what was shown before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::server::frontend::McpService;
use crate::server::prepared::Prepared;
use crate::server::principal::Principal;
use crate::server::settings::Offered;

/// The maximum number of subscriptions between acknowledgement and `listen`. Beyond it the oldest may miss a change.
const MAX_PENDING_LISTENERS: usize = 32;

/// One entry for each subscription that is not listening yet, oldest first. Entries of concurrent subscriptions may be
/// swapped: a superfluous notification only makes a client list its tools once more.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<VecDeque<ShownLists>>);

#[derive(Debug)]
struct ShownLists {
    lists: HashMap<Principal, Arc<Prepared>>,
    /// Notified of changes from then on.
    since: watch::Receiver<Offered>,
}

impl ShownLists {
    fn now(frontend: &McpService) -> Self {
        let mut since = frontend.changes();
        since.mark_unchanged();
        Self { lists: frontend.shown(), since }
    }
}

impl Shown {
    pub(super) fn keep(&self, frontend: &McpService) {
        let before = ShownLists::now(frontend);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(before);
        if kept.len() > MAX_PENDING_LISTENERS {
            kept.pop_front();
        }
    }

    /// Returns what this principal had been shown, if anything, and a receiver for changes since then.
    pub(super) fn take(
        &self,
        frontend: &McpService,
        principal: &Principal,
    ) -> (Option<Arc<Prepared>>, watch::Receiver<Offered>) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let mut before = kept.unwrap_or_else(|| ShownLists::now(frontend));
        (before.lists.remove(principal), before.since)
    }
}
