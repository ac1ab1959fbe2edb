//! Receives notifications that other processes have changed runs.

use std::sync::Weak;
use std::time::Duration;

use store::{RunChange, Watch};
use tokio::sync::broadcast::{self, error::RecvError};

use super::inner::RunRegistry;

/// Passes notifications from the store to the registry, until the registry is dropped.
pub(super) async fn listen(inner: Weak<RunRegistry>, mut watch: Watch) {
    loop {
        let news = watch.next().await;
        let Some(inner) = inner.upgrade() else { return };
        inner.on_run_change(news);
    }
}

/// Waits until the run may have changed, at most for `at_most`.
pub(super) async fn wait_for_change(news: &mut broadcast::Receiver<RunChange>, run_id: &str, at_most: Duration) {
    let changed = async {
        loop {
            match news.recv().await {
                Ok(RunChange::Run(other)) if other != run_id => {}
                Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => return,
            }
        }
    };
    // After a timeout the caller checks the run, too.
    drop(tokio::time::timeout(at_most, changed).await);
}
