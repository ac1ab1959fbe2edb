//! Whether a request that stopped was called off by its client, or only lost it.
//!
//! The library stops a request's handler for both. A client that wants a call ended says so with a notification; on
//! HTTP since 2026-07-28 it closes the response instead. Any other end of a connection ends no run.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::RequestId;
use tokio::sync::Notify;

/// The notification is on its way to us when its request's handler is stopped: the library stops the one and hands on
/// the other in the same breath.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// Requests that a client may call off without our asking after them. The oldest are forgotten.
const MAX_REMEMBERED: usize = 256;

/// The requests of one connection that its client has called off.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    ids: Mutex<VecDeque<RequestId>>,
    more: Notify,
}

impl Cancels {
    pub(super) fn heard(&self, id: RequestId) {
        {
            let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
            if ids.len() == MAX_REMEMBERED {
                ids.pop_front();
            }
            ids.push_back(id);
        }
        self.more.notify_waiters();
    }

    pub(super) async fn has(&self, id: &RequestId) -> bool {
        let found = async {
            loop {
                let more = self.more.notified();
                tokio::pin!(more);
                // Listen before looking, so that what comes in between is not missed.
                more.as_mut().enable();
                if self.take(id) {
                    return;
                }
                more.await;
            }
        };
        tokio::time::timeout(ON_ITS_WAY, found).await.is_ok()
    }

    fn take(&self, id: &RequestId) -> bool {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        match ids.iter().position(|known| known == id) {
            Some(position) => ids.remove(position).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rmcp::model::RequestId;

    use super::Cancels;

    #[tokio::test]
    async fn a_notification_counts_before_and_shortly_after_its_request_stops() {
        let cancels = Arc::new(Cancels::default());
        cancels.heard(RequestId::Number(1));
        assert!(cancels.has(&RequestId::Number(1)).await);
        let late = Arc::clone(&cancels);
        let waiting = tokio::spawn(async move { late.has(&RequestId::Number(2)).await });
        tokio::task::yield_now().await;
        cancels.heard(RequestId::Number(2));
        assert!(waiting.await.unwrap());
        assert!(!cancels.has(&RequestId::Number(3)).await);
    }
}
