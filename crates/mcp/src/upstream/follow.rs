//! Follows a server's task to its end, even if the server restarts while the task continues.

use std::time::{Duration, Instant};

use executor::{Dispatch, Outcome, Parked, ParkedCall};

use super::one::{Unavailable, Upstream};
use crate::client::{Followed, Ticket};

/// How long a server may be unreachable before the outcome of its tasks is unknown: enough time to restart it by hand.
const OUT_OF_REACH: Duration = Duration::from_secs(5 * 60);

/// The pause between two attempts to reach the server.
const PAUSE: Duration = Duration::from_secs(2);

impl Upstream {
    /// Follows a parked task over as many connections as it takes.
    pub(super) async fn follow_parked(&self, parked: &ParkedCall) -> Dispatch {
        let Some(mut timed) = Ticket::read(parked.ticket()).and_then(Ticket::task) else {
            return Dispatch::Settled(Outcome::Unknown);
        };
        let mut unreached: Option<Instant> = None;
        loop {
            match self.hold().await {
                Ok(held) => {
                    unreached = None;
                    match held.server().follow_task(parked, &mut timed).await {
                        Followed::Over(dispatch) => return dispatch,
                        Followed::Lost(_) => {}
                    }
                }
                // This process shuts down; the next holder of the run follows the task.
                Err(Unavailable::Retired) => return Dispatch::Parked(Parked::Followed(parked.ticket().clone())),
                Err(_) => {
                    let since = *unreached.get_or_insert_with(Instant::now);
                    if since.elapsed() >= OUT_OF_REACH || timed.left().is_zero() {
                        return Dispatch::Settled(Outcome::Unknown);
                    }
                }
            }
            tokio::time::sleep(PAUSE.min(timed.task.pause)).await;
        }
    }

    /// Cancels a task at the server, and starts the server for it if necessary.
    pub(super) async fn cancel(&self, parked: &ParkedCall) {
        let Some(timed) = Ticket::read(parked.ticket()).and_then(Ticket::task) else { return };
        if let Ok(held) = self.hold().await {
            held.server().cancel_task(&timed.task).await;
        }
    }
}
