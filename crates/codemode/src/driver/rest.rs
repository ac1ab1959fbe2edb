//! A run between turns: kept for a time, let go of when there is nothing to do.

use std::time::Duration;

use executor::clock::now_ms;
use store::{CommitError, Durability, RunState};
use tokio::time::Instant;

use super::{Driver, DriverExit};
use crate::runs::snapshot_expired;

impl Driver {
    /// Between turns nothing else will write what has just happened.
    pub(super) async fn rest(&mut self, moved: bool) -> bool {
        if self.released {
            // The answer to the model has let go of it, and written all there was: it is anybody's now.
            return true;
        }
        let release = self.is_idle();
        if !moved && !release {
            return self.run.journal.flush().await.is_ok();
        }
        let expires_at = moved.then(|| self.keep());
        let snapshot = if release { self.unsaved_snapshot() } else { None };
        let progress = serde_json::to_string(&self.telemetry).unwrap_or_default();
        let written = self.run.journal.commit(Durability::Relaxed, |change| {
            change.expires_at = expires_at;
            change.progress = Some(progress);
            change.release = release;
            change.snapshot = snapshot;
        });
        self.released = release;
        let written = async {
            if release {
                fault::point("rest.before_release")?;
            }
            written.await?;
            if release {
                fault::point("rest.after_release")?;
            }
            Ok::<_, CommitError>(())
        };
        written.await.is_ok()
    }

    /// Nothing is left to do until somebody comes.
    pub(super) fn is_idle(&self) -> bool {
        self.asked && self.cell.is_dormant() && self.calls.is_empty()
    }

    /// Starts the time anew that a waiting run is kept for.
    pub(super) fn keep(&mut self) -> i64 {
        self.expires = Some(Instant::now() + Duration::from_secs(self.run.definition.ttl_seconds));
        self.run.definition.expires_at(now_ms())
    }

    /// Its time is over while tools still work for it: they stop with it.
    pub(super) async fn expire(self) -> DriverExit {
        let written = self.run.journal.commit(Durability::Relaxed, |change| change.state = Some(RunState::Expired));
        let written = written.await;
        if written.is_ok() {
            self.cancel();
        }
        match written {
            Ok(()) => DriverExit::Over(Box::new(snapshot_expired())),
            Err(_) => DriverExit::Stopped,
        }
    }
}
