//! The reason why a connection ended.

use std::sync::Arc;

use tokio::sync::watch;

/// The reason why a connection ended, shared by all parts of the connection. The first reason that is set stays.
#[derive(Clone, Debug)]
pub struct FirstReason<T>(Arc<watch::Sender<Option<T>>>);

impl<T> Default for FirstReason<T> {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl<T: Copy> FirstReason<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set(&self, why: T) {
        self.0.send_if_modified(|reason| {
            let first = reason.is_none();
            reason.get_or_insert(why);
            first
        });
    }

    pub fn get(&self) -> Option<T> {
        *self.0.borrow()
    }

    /// Waits for the end of the connection.
    pub async fn wait(&self) -> T {
        let mut reason = self.0.subscribe();
        loop {
            if let Some(why) = *reason.borrow_and_update() {
                return why;
            }
            if reason.changed().await.is_err() {
                // Not possible: this value holds the sender.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FirstReason;

    #[tokio::test]
    async fn the_first_reason_stays_and_wakes_those_that_wait() {
        let reason = FirstReason::new();
        let other = reason.clone();
        let waiting = tokio::spawn(async move { other.wait().await });
        reason.set(1);
        reason.set(2);
        assert_eq!((reason.get(), waiting.await.unwrap(), reason.wait().await), (Some(1), 1, 1));
    }
}
