//! A run between turns: it is kept until it expires, and released when there is nothing to do.

use std::time::Duration;

use executor::clock::now_ms;
use store::{CommitError, Durability, RunState};
use tokio::time::Instant;

use super::{Driver, DriverExit};
use crate::runs::snapshot_expired;

impl Driver {
    /// Writes what has happened between turns, and releases the run if it is idle. Returns false if the write failed.
    pub(super) async fn rest(&mut self, moved: bool) -> bool {
        if self.released {
            // The commit of the result has released the run and written everything: any process may hold it now.
            return true;
        }
        let release = self.is_idle();
        if !moved && !release {
            return self.run.journal.flush().await.is_ok();
        }
        let expires_at = moved.then(|| self.extend_expiry());
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

    /// Returns whether there is nothing to do until a client, a person or a tool resumes the run.
    pub(super) fn is_idle(&self) -> bool {
        self.has_caller && self.cell.is_dormant() && self.calls.is_empty()
    }

    /// Restarts the time to live of a waiting run, and returns when it expires.
    pub(super) fn extend_expiry(&mut self) -> i64 {
        self.expires = Some(Instant::now() + Duration::from_secs(self.run.definition.ttl_seconds));
        self.run.definition.expires_at(now_ms())
    }

    /// Ends a run that has expired, and cancels its calls.
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
