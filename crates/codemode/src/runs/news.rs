//! What other processes do to runs, heard here.

use std::sync::Weak;
use std::time::Duration;

use store::{RunChange, Watch};
use tokio::sync::broadcast::{self, error::RecvError};

use super::inner::RunRegistry;

/// Passes on what is heard, for as long as anybody has runs.
pub(super) async fn listen(inner: Weak<RunRegistry>, mut watch: Watch) {
    loop {
        let news = watch.next().await;
        let Some(inner) = inner.upgrade() else { return };
        inner.hear(news);
    }
}

/// Returns when there may be something new of a run, and at the latest after so long.
pub(super) async fn of(news: &mut broadcast::Receiver<RunChange>, run_id: &str, at_most: Duration) {
    let heard = async {
        loop {
            match news.recv().await {
                Ok(RunChange::Of(other)) if other != run_id => {}
                Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => return,
            }
        }
    };
    // Time is as good a reason to look as any.
    drop(tokio::time::timeout(at_most, heard).await);
}
