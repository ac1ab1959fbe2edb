//! Distinguishes a request that its client cancelled from one whose client disconnected.
//!
//! The library stops a request's handler in both cases. A client cancels a call with a notification; over HTTP since
//! 2026-07-28 it closes the response instead. Any other disconnect ends no run.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::RequestId;
use tokio::sync::Notify;

/// How long to wait for the notification after a request's handler was stopped: the library stops the handler and
/// delivers the notification at about the same time.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of cancelled requests that are remembered. The oldest are dropped first.
const MAX_REMEMBERED: usize = 256;

/// The requests of one connection that its client has cancelled.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    ids: Mutex<VecDeque<RequestId>>,
    more: Notify,
}

impl Cancels {
    pub(super) fn record(&self, id: RequestId) {
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
                // Subscribe before checking, so that a notification in between is not missed.
                more.as_mut().enable();
                if self.take(id) {
                    return;
                }
                more.await;
            }
        };
        tokio::time::timeout(NOTIFICATION_TIMEOUT, found).await.is_ok()
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
        cancels.record(RequestId::Number(1));
        assert!(cancels.has(&RequestId::Number(1)).await);
        let late = Arc::clone(&cancels);
        let waiting = tokio::spawn(async move { late.has(&RequestId::Number(2)).await });
        tokio::task::yield_now().await;
        cancels.record(RequestId::Number(2));
        assert!(waiting.await.unwrap());
        assert!(!cancels.has(&RequestId::Number(3)).await);
    }
}
