//! Monitors the connection to a server: handles its end, changes of its tools, and idle time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use process::Phase;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::supervisor::Supervisor;
use crate::client::{DisconnectReason, Server};

/// How long to wait after a notification of changed tools: a server that changes several tools sends several
/// notifications, and its tools are listed only once.
const LISTING_DELAY: Duration = Duration::from_millis(200);

/// The minimum time between two listings that a server's notifications cause.
const MIN_LISTING_INTERVAL: Duration = Duration::from_secs(2);

/// How long the last standard error output of a server that ended may take to arrive.
const STDERR_DELAY: Duration = Duration::from_millis(100);

/// Returns when to list the tools again after a change notification.
fn listing_due(now: Instant, last: Option<Instant>) -> Instant {
    let earliest = now + LISTING_DELAY;
    last.map_or(earliest, |last| earliest.max(last + MIN_LISTING_INTERVAL))
}

/// Monitors a connection until it ends. The task keeps neither the server nor its supervisor alive.
pub(super) fn spawn(supervisor: &Arc<Supervisor>, number: u64, server: &Arc<Server>) {
    let monitor = Monitor {
        supervisor: Arc::downgrade(supervisor),
        server: Arc::downgrade(server),
        number,
        list_changes: server.list_changes(),
        last_listing: None,
        listing_due: None,
    };
    tokio::spawn(monitor.watch(server.closed()));
}

/// Returns when to check whether the server is idle, or `None` if it may stay idle.
fn idle_at(supervisor: &Supervisor) -> Option<Instant> {
    let idle_stop = supervisor.idle_stop()?;
    let state = supervisor.state();
    let used = if state.in_flight > 0 { std::time::Instant::now() } else { state.last_used };
    Some(Instant::from_std(used) + idle_stop)
}

/// The task that watches one connection.
struct Monitor {
    supervisor: Weak<Supervisor>,
    server: Weak<Server>,
    /// The number of the connection, which the supervisor gave it.
    number: u64,
    list_changes: watch::Receiver<u64>,
    last_listing: Option<Instant>,
    /// When the tools are listed again; `None` if they have not changed.
    listing_due: Option<Instant>,
}

impl Monitor {
    async fn watch(mut self, closed: impl Future<Output = DisconnectReason> + Send) {
        tokio::pin!(closed);
        let why = loop {
            let idle_at = self.supervisor.upgrade().and_then(|supervisor| idle_at(&supervisor));
            tokio::select! {
                why = &mut closed => break why,
                Ok(()) = self.list_changes.changed() => {
                    self.listing_due.get_or_insert_with(|| listing_due(Instant::now(), self.last_listing));
                }
                () = sleep_until_some(self.listing_due) => self.list().await,
                () = sleep_until_some(idle_at) => {
                    if let Some(supervisor) = self.supervisor.upgrade() {
                        supervisor.stop_if_idle(self.number);
                    }
                }
            }
        };
        self.ended(why).await;
    }

    async fn list(&mut self) {
        self.listing_due = None;
        if let (Some(supervisor), Some(server)) = (self.supervisor.upgrade(), self.server.upgrade()) {
            // The next change notification tries again.
            if let Err(reason) = supervisor.relist(&server).await {
                tracing::warn!(server = %supervisor.name(), reason, "the changed tools of an MCP server are not used");
            }
        }
        self.last_listing = Some(Instant::now());
    }

    async fn ended(self, why: DisconnectReason) {
        let (Some(supervisor), Some(server)) = (self.supervisor.upgrade(), self.server.upgrade()) else { return };
        supervisor.on_disconnect(&mut supervisor.state(), self.number, &why.to_string());
        sleep(STDERR_DELAY).await;
        let mut state = supervisor.state();
        // If this process ended the connection itself, the last failure is an older one.
        let failed = state.number == self.number && !matches!(state.lifecycle.phase(), Phase::Stopped | Phase::Retired);
        if failed && let Some(failure) = &mut state.last_failure {
            failure.stderr = server.stderr_tail();
        }
    }
}

/// Waits until this time; forever if there is none.
async fn sleep_until_some(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{LISTING_DELAY, MIN_LISTING_INTERVAL, listing_due};

    #[test]
    fn listings_wait_for_changes_to_settle_and_for_a_minimum_interval() {
        let now = Instant::now();
        assert_eq!(listing_due(now, None), now + LISTING_DELAY);
        assert_eq!(listing_due(now, Some(now)), now + MIN_LISTING_INTERVAL);
        assert_eq!(
            listing_due(now + 2 * MIN_LISTING_INTERVAL, Some(now)),
            now + 2 * MIN_LISTING_INTERVAL + LISTING_DELAY
        );
    }
}
