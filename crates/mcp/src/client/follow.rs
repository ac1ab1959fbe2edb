//! Seeing a task of a server's to its end, over one connection.

use contract::tool::ToolId;
use executor::{Dispatch, Outcome, ParkedCall};
use serde_json::{Value, json};

use crate::client::intake::Slot;
use crate::client::server::Server;
use crate::client::task::{self, Seen, Task};
use crate::client::ticket::Timed;
use crate::client::{Closed, Request, RequestError};

/// The protocol's code for a task that the server does not know any more. It has taken the call all the same, and
/// nobody knows how that ended.
const NO_SUCH_TASK: i32 = -32602;

/// How following a task ended.
#[derive(Debug)]
pub(crate) enum Followed {
    Over(Dispatch),
    /// The connection ended, and the task perhaps not.
    Lost(Closed),
}

impl Server {
    /// Looks at a task until it is over or its time is. Whoever stops waiting leaves it as it is.
    pub(crate) async fn follow_task(&self, parked: &ParkedCall, timed: &mut Timed) -> Followed {
        let (id, left) = (parked.id(), timed.left());
        match tokio::time::timeout(left, self.look_until_over(parked, timed)).await {
            Ok(followed) => followed,
            Err(_) => {
                self.cancel_task(&timed.task).await;
                let minutes = task::DEADLINE.as_secs() / 60;
                let why = format!("its task did not finish within {minutes} minutes and was cancelled");
                Followed::Over(Dispatch::Settled(self.failed(id, &why)))
            }
        }
    }

    /// Tells the server that nobody wants the task. What it says to that changes nothing.
    pub(crate) async fn cancel_task(&self, task: &Task) {
        drop(self.ask("tasks/cancel", task, &Slot::default()).await);
    }

    async fn look_until_over(&self, parked: &ParkedCall, timed: &mut Timed) -> Followed {
        let (id, task, until) = (parked.id(), &mut timed.task, timed.until);
        let (mut failed, mut told) = (0, None);
        // Held until what the task gave is handed on.
        let slot = Slot::default();
        loop {
            // At once for the first time: it may have ended while nobody looked.
            let look = match self.ask("tasks/get", task, &slot).await {
                Ok(look) => look,
                // The task goes on whatever becomes of one look at it.
                Err(error) if passes(&error) && failed < task::MAX_FAILED_LOOKS => {
                    failed += 1;
                    tokio::time::sleep(task.pause).await;
                    continue;
                }
                Err(RequestError::Refused { code: NO_SUCH_TASK, .. }) => {
                    return Followed::Over(Dispatch::Settled(Outcome::Unknown));
                }
                Err(error) => return self.not_seen(id, error),
            };
            let result = match task.seen(look) {
                Seen::Working { said } => {
                    if let Some(said) = said.filter(|said| told.as_ref() != Some(said)) {
                        parked.updates().send(json!({"message": said}));
                        told = Some(said);
                    }
                    failed = 0;
                    tokio::time::sleep(task.pause).await;
                    continue;
                }
                Seen::Done(result) => Ok(result),
                // Waits for the end, where the task asks something first: that comes while this is under way.
                Seen::Fetch => {
                    let mut request = Request::plain("tasks/result", task.named(), self.limits.call);
                    request.asker = Some(parked.asker().clone());
                    request.slot = slot.clone();
                    self.session.request(request).await
                }
                Seen::Failed(why) => return Followed::Over(Dispatch::Settled(self.failed(id, &why))),
                Seen::Asks(look) => {
                    let ticket = Timed { task: task.clone(), until }.ticket();
                    return Followed::Over(self.asks(id, &look, ticket));
                }
            };
            match result {
                Ok(result) => return Followed::Over(Dispatch::Settled(self.gave(id, result))),
                Err(error) if passes(&error) && failed < task::MAX_FAILED_LOOKS => failed += 1,
                Err(error) => return self.not_seen(id, error),
            }
        }
    }

    fn not_seen(&self, id: &ToolId, error: RequestError) -> Followed {
        match error {
            RequestError::NotSent(why) | RequestError::Closed(why) => Followed::Lost(why),
            error => Followed::Over(Dispatch::Settled(self.failed(id, &self.explain(error)))),
        }
    }

    async fn ask(&self, method: &'static str, task: &Task, slot: &Slot) -> Result<Value, RequestError> {
        let request = Request::plain(method, task.named(), self.limits.call);
        self.session.request(Request { slot: slot.clone(), ..request }).await
    }
}

/// What another look may not meet.
fn passes(error: &RequestError) -> bool {
    matches!(error, RequestError::Deadline(_) | RequestError::Refused { code: 0 | 429 | 500..=599, .. })
}
