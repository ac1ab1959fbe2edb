//! A task of a server that may fall and come back while the task goes on.

use std::time::{Duration, Instant};

use executor::{Dispatch, Outcome, Parked, ParkedCall};

use super::one::{Unavailable, Upstream};
use crate::client::{Followed, Ticket};

/// How long a server may be out of reach before nobody knows what became of its tasks: time enough to be started again
/// by hand.
const OUT_OF_REACH: Duration = Duration::from_secs(5 * 60);

/// Between two tries to reach it.
const PAUSE: Duration = Duration::from_secs(2);

impl Upstream {
    /// Follows a task over as many connections as it takes.
    pub(super) async fn see_to_its_end(&self, parked: &ParkedCall) -> Dispatch {
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
                // Whoever has the run next asks.
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

    /// Tells the server, started where it must be, that nobody wants the task.
    pub(super) async fn cancel(&self, parked: &ParkedCall) {
        let Some(timed) = Ticket::read(parked.ticket()).and_then(Ticket::task) else { return };
        if let Ok(held) = self.hold().await {
            held.server().cancel_task(&timed.task).await;
        }
    }
}
