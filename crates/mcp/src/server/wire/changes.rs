//! Notifies clients of changes of their tool list.
//!
//! The library asks the handler to accept a subscription, acknowledges it to the client, and only then calls `listen`.
//! A change in between must be announced, so `listen` compares the tools with what was shown before.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::service::{Peer, SubscriptionContext};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::server::prepared::{OfferedSources, PreparedTools};
use crate::server::principal::Principal;
use crate::server::service::McpService;
use crate::server::tools::Listing;

/// The maximum number of subscriptions between acknowledgement and `listen`. Beyond it the oldest may miss a change.
const MAX_PENDING_LISTENERS: usize = 32;

/// The subscriptions that are not listening yet, one entry for each, oldest first. Entries of concurrent subscriptions
/// may be swapped: a superfluous notification only makes a client list its tools once more.
#[derive(Debug, Default)]
pub(super) struct PendingListeners(Mutex<VecDeque<ShownLists>>);

#[derive(Debug)]
struct ShownLists {
    lists: HashMap<Principal, Arc<PreparedTools>>,
    /// Notified of changes from then on.
    since: watch::Receiver<OfferedSources>,
}

impl ShownLists {
    fn now(service: &McpService) -> Self {
        let mut since = service.changes();
        since.mark_unchanged();
        Self { lists: service.shown(), since }
    }
}

impl PendingListeners {
    /// Records what all principals have been shown when a subscription is accepted.
    pub(super) fn keep(&self, service: &McpService) {
        let before = ShownLists::now(service);
        let mut kept = self.0.lock();
        kept.push_back(before);
        if kept.len() > MAX_PENDING_LISTENERS {
            kept.pop_front();
        }
    }

    /// Returns what this principal had been shown, if anything, and a receiver for changes since then.
    fn take(
        &self,
        service: &McpService,
        principal: &Principal,
    ) -> (Option<Arc<PreparedTools>>, watch::Receiver<OfferedSources>) {
        let kept = self.0.lock().pop_front();
        let mut before = kept.unwrap_or_else(|| ShownLists::now(service));
        (before.lists.remove(principal), before.since)
    }
}

/// Waits until this principal's tool list changes; forever, if the offered tools can no longer change.
async fn changed(
    service: &McpService,
    principal: &Principal,
    changes: &mut watch::Receiver<OfferedSources>,
    known: &mut Option<Arc<Listing>>,
) {
    loop {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
        if let Ok(now) = service.prepared(principal).await
            && known.as_ref().is_none_or(|known| now.listing.tools != known.tools)
        {
            *known = Some(Arc::clone(&now.listing));
            return;
        }
    }
}

/// Notifies a client with a session of changes, until the session ends.
pub(super) async fn notify_session(
    service: McpService,
    principal: Principal,
    peer: Peer<RoleServer>,
    ended: CancellationToken,
) {
    // Compare with what this principal was last shown, so that earlier changes are announced too.
    let mut changes = service.changes();
    let watched = async {
        let mut known = match service.shown().get(&principal) {
            Some(shown) => Some(Arc::clone(&shown.listing)),
            // The client may list the tools before all servers have started. It is notified once they have.
            None if !service.is_settled() => None,
            None => match service.prepared(&principal).await {
                Ok(prepared) => Some(Arc::clone(&prepared.listing)),
                Err(_) => None,
            },
        };
        while !peer.is_transport_closed() {
            changed(&service, &principal, &mut changes, &mut known).await;
            if peer.notify_tool_list_changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = watched => {}
        () = ended.cancelled() => {}
        () = service.shutdown_started() => {}
    }
}

/// Notifies a subscriber of changes, until it ends its subscription. The library has already acknowledged the
/// subscription: changes since then are announced too.
pub(super) async fn notify_subscriber(
    service: &McpService,
    principal: &Principal,
    listeners: &PendingListeners,
    context: &SubscriptionContext,
) {
    let (before, since) = listeners.take(service, principal);
    let (mut known, mut changes) = match before {
        Some(shown) => (Some(Arc::clone(&shown.listing)), service.changes()),
        None => (None, since),
    };
    loop {
        tokio::select! {
            () = changed(service, principal, &mut changes, &mut known) => {
                if context.sink().notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
            () = context.cancelled() => return,
            () = service.shutdown_started() => return,
        }
    }
}
