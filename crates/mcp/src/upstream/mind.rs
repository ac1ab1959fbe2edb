//! What happens to a connection while it stands: it ends, its tools change, nobody needs it any more.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::lifecycle::{Action, Event, Phase};
use super::one::{Upstream, part};
use super::status::LastFailure;
use crate::client::{Closed, Server};

/// A server that changes several tools says so several times; it is asked once they are all changed.
const SETTLING: Duration = Duration::from_millis(200);

/// The least time between two listings that a server brings about, whatever it says.
const BETWEEN_LISTINGS: Duration = Duration::from_secs(2);

/// How long the last words of a server that ended may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// When to list again, after a server said that its tools changed.
fn listing_due(now: Instant, last: Option<Instant>) -> Instant {
    let settled = now + SETTLING;
    last.map_or(settled, |last| settled.max(last + BETWEEN_LISTINGS))
}

impl Upstream {
    /// Watches over a connection until it is no more. The task keeps neither the server nor us alive.
    pub(super) fn mind(&self, number: u64, server: &Arc<Server>) {
        let minder = Monitor {
            upstream: self.me.clone(),
            server: Arc::downgrade(server),
            number,
            heard: server.heard(),
            last_listing: None,
            due: None,
        };
        tokio::spawn(minder.watch(server.closed()));
    }

    /// Lists again; the listing before stays where that fails.
    pub(super) async fn relist(&self, server: &Server) -> Result<(), String> {
        match server.relist().await {
            Ok(tools) => {
                self.publish(server, tools);
                Ok(())
            }
            Err(error) => {
                let why = format!("it could not be listed again: {}", error.why);
                self.state().trouble = Some(LastFailure { stderr: error.stderr, ..LastFailure::new(why.clone()) });
                Err(why)
            }
        }
    }

    /// When to look whether the server is idle; none where it may be.
    fn idle_at(&self) -> Option<Instant> {
        let idle_stop = self.idle_stop()?;
        let state = self.state();
        let used = if state.in_flight > 0 { std::time::Instant::now() } else { state.last_used };
        Some(Instant::from_std(used) + idle_stop)
    }

    fn stop_if_idle(&self, number: u64) {
        let Some(idle_stop) = self.idle_stop() else { return };
        let mut state = self.state();
        let idle = state.number == number && state.in_flight == 0 && state.last_used.elapsed() >= idle_stop;
        if idle && self.on(&mut state, Event::Idle) == Action::Disconnect {
            part(&mut state);
        }
    }
}

struct Monitor {
    upstream: Weak<Upstream>,
    server: Weak<Server>,
    number: u64,
    heard: watch::Receiver<u64>,
    last_listing: Option<Instant>,
    due: Option<Instant>,
}

impl Monitor {
    async fn watch(mut self, closed: impl Future<Output = Closed> + Send) {
        tokio::pin!(closed);
        let why = loop {
            let idle_at = self.upstream.upgrade().and_then(|upstream| upstream.idle_at());
            tokio::select! {
                why = &mut closed => break why,
                Ok(()) = self.heard.changed() => {
                    self.due.get_or_insert_with(|| listing_due(Instant::now(), self.last_listing));
                }
                () = at(self.due) => self.list().await,
                () = at(idle_at) => {
                    if let Some(upstream) = self.upstream.upgrade() {
                        upstream.stop_if_idle(self.number);
                    }
                }
            }
        };
        self.ended(why).await;
    }

    async fn list(&mut self) {
        self.due = None;
        if let (Some(upstream), Some(server)) = (self.upstream.upgrade(), self.server.upgrade()) {
            // Why it failed is in the server's status; the next change is another try.
            drop(upstream.relist(&server).await);
        }
        self.last_listing = Some(Instant::now());
    }

    async fn ended(self, why: Closed) {
        let (Some(upstream), Some(server)) = (self.upstream.upgrade(), self.server.upgrade()) else { return };
        upstream.fell(&mut upstream.state(), self.number, &why.to_string());
        sleep(LAST_WORDS).await;
        let mut state = upstream.state();
        // Not where we ended it ourselves: then what went wrong last is older than this.
        let fell = state.number == self.number && !matches!(state.lifecycle.phase(), Phase::Stopped | Phase::Retired);
        if fell && let Some(trouble) = &mut state.trouble {
            trouble.stderr = server.stderr_tail();
        }
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{BETWEEN_LISTINGS, SETTLING, listing_due};

    #[test]
    fn listings_wait_for_changes_to_settle_and_keep_a_minimum_interval() {
        let now = Instant::now();
        assert_eq!(listing_due(now, None), now + SETTLING);
        assert_eq!(listing_due(now, Some(now)), now + BETWEEN_LISTINGS);
        assert_eq!(listing_due(now + 2 * BETWEEN_LISTINGS, Some(now)), now + 2 * BETWEEN_LISTINGS + SETTLING);
    }
}
