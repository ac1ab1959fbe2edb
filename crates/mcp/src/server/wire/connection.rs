//! The state of one connection, which its handler and the tasks of its calls share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How long to wait for the notification after a request's handler was stopped: the library stops the handler and
/// delivers the notification at about the same time.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of cancelled requests that are remembered. The oldest are dropped first.
const MAX_REMEMBERED: usize = 256;

/// The maximum number of forms of one connection that stay open after their calls have ended. Further forms are
/// withdrawn when their call ends.
const MAX_LATE_FORMS: usize = 32;

/// The state of one session, one pair of streams, or one request without a session. It is dropped when that ends.
#[derive(Debug)]
pub(super) struct Connection {
    /// Whether a task already notifies the client of changes. A client may send `initialized` more than once.
    is_watched: AtomicBool,
    /// Permits for forms whose calls have ended without an answer.
    late_forms: Arc<Semaphore>,
    ended: CancellationToken,
    /// Whether the client has listed or read resources.
    uses_resources: AtomicBool,
    pub(super) cancels: CancelledRequests,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            is_watched: AtomicBool::new(false),
            late_forms: Arc::new(Semaphore::new(MAX_LATE_FORMS)),
            ended: CancellationToken::new(),
            uses_resources: AtomicBool::new(false),
            cancels: CancelledRequests::default(),
        }
    }

    /// Returns a token that is cancelled when the connection ends. Tasks that may outlive the connection hold this
    /// token, not the connection.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Records that a task notifies the client of changes. Returns false if there is one already.
    pub(super) fn begin_watching(&self) -> bool {
        !self.is_watched.swap(true, Ordering::Relaxed)
    }

    /// Records that the client lists or reads resources.
    pub(super) fn note_use_of_resources(&self) {
        self.uses_resources.store(true, Ordering::Relaxed);
    }

    pub(super) fn uses_resources(&self) -> bool {
        self.uses_resources.load(Ordering::Relaxed)
    }

    /// Reserves a place for a form that stays open after its call, or returns `None` if there are too many.
    pub(super) fn late_form(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.late_forms).try_acquire_owned().ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// The requests of one connection that its client has cancelled, to distinguish them from requests whose client
/// disconnected.
///
/// The library stops a request's handler in both cases. A client cancels a call with a notification; over HTTP since
/// 2026-07-28 it closes the response instead. Any other disconnect ends no run.
#[derive(Debug, Default)]
pub(super) struct CancelledRequests {
    ids: Mutex<VecDeque<RequestId>>,
    more: Notify,
}

impl CancelledRequests {
    pub(super) fn record(&self, id: RequestId) {
        {
            let mut ids = self.ids.lock();
            if ids.len() == MAX_REMEMBERED {
                ids.pop_front();
            }
            ids.push_back(id);
        }
        self.more.notify_waiters();
    }

    /// Returns true if the client cancels this request now or within a moment.
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
        let mut ids = self.ids.lock();
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

    use super::CancelledRequests;

    #[tokio::test]
    async fn a_notification_counts_before_and_shortly_after_its_request_stops() {
        let cancels = Arc::new(CancelledRequests::default());
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
