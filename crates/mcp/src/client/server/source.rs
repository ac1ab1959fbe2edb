//! A single connection as a tool source. It does not reconnect.

use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, CancelFuture, Dispatch, Outcome, ParkedCall, ToolSource};

use super::{Attempt, Server};
use crate::client::{Followed, RequestError, Ticket};

impl ToolSource for Server {
    fn tools(&self) -> Vec<ToolSpec> {
        self.listed().tools.values().cloned().collect()
    }

    fn identity(&self) -> Option<String> {
        Some(self.identity.clone())
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            match self.attempt(&call).await {
                Attempt::Settled(dispatch) => dispatch,
                Attempt::NotSent(why) => {
                    Dispatch::Settled(self.failed(call.id(), &self.explain(RequestError::NotSent(why))))
                }
                Attempt::Lost(why) => Dispatch::Settled(self.lost(call.id(), why)),
            }
        })
    }

    fn follow(&self, parked: ParkedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let Some(mut timed) = Ticket::read(parked.ticket()).and_then(Ticket::task) else {
                return Dispatch::Settled(Outcome::Unknown);
            };
            match self.follow_task(&parked, &mut timed).await {
                Followed::Over(dispatch) => dispatch,
                Followed::Lost(why) => Dispatch::Settled(self.lost(parked.id(), why)),
            }
        })
    }

    fn cancel(&self, parked: ParkedCall) -> CancelFuture<'_> {
        Box::pin(async move {
            if let Some(timed) = Ticket::read(parked.ticket()).and_then(Ticket::task) {
                self.cancel_task(&timed.task).await;
            }
        })
    }
}
