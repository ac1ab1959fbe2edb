//! Follows a server's task to its end over one connection.

use contract::tool::ToolId;
use executor::{Dispatch, Outcome, ParkedCall};
use process::Slot;
use serde_json::{Value, json};

use crate::client::server::Server;
use crate::client::tasks::{self, FollowOutcome, Task, TaskStatus, TimedTask};
use crate::client::{Request, RequestError};

/// The protocol's error code for a task that the server no longer knows. The server did accept the call, so its outcome
/// is unknown.
const NO_SUCH_TASK: i32 = -32602;

impl Server {
    /// Polls a task until it is finished or its deadline has passed. Dropping the future does not cancel the task.
    pub(crate) async fn follow_task(&self, parked: &ParkedCall, timed: &mut TimedTask) -> FollowOutcome {
        let (id, left) = (parked.id(), timed.left());
        match tokio::time::timeout(left, self.poll_until_over(parked, timed)).await {
            Ok(followed) => followed,
            Err(_) => {
                self.cancel_task(&timed.task).await;
                let minutes = tasks::DEADLINE.as_secs() / 60;
                let why = format!("its task did not finish within {minutes} minutes and was cancelled");
                FollowOutcome::Over(Dispatch::Settled(self.failed(id, &why)))
            }
        }
    }

    /// Asks the server to cancel a task. An error is only logged.
    pub(crate) async fn cancel_task(&self, task: &Task) {
        if let Err(error) = self.ask("tasks/cancel", task, &Slot::default()).await {
            tracing::warn!(server = self.name(), reason = self.explain(error), "a task could not be cancelled");
        }
    }

    async fn poll_until_over(&self, parked: &ParkedCall, timed: &mut TimedTask) -> FollowOutcome {
        let (id, task, until) = (parked.id(), &mut timed.task, timed.until);
        let (mut failed, mut last_message) = (0, None);
        // Held until the task's result is handed on.
        let slot = Slot::default();
        loop {
            // The first poll is immediate: the task may have finished while no process followed it.
            let look = match self.ask("tasks/get", task, &slot).await {
                Ok(look) => look,
                // A failed poll does not affect the task.
                Err(error) if is_transient(&error) && failed < tasks::MAX_FAILED_POLLS => {
                    failed += 1;
                    tokio::time::sleep(task.pause).await;
                    continue;
                }
                Err(RequestError::Refused { code: NO_SUCH_TASK, .. }) => {
                    return FollowOutcome::Over(Dispatch::Settled(Outcome::Unknown));
                }
                Err(error) => return self.not_seen(id, error),
            };
            let result = match task.seen(look) {
                TaskStatus::Working { message } => {
                    if let Some(message) = message.filter(|message| last_message.as_ref() != Some(message)) {
                        parked.updates().send(json!({"message": message}));
                        last_message = Some(message);
                    }
                    failed = 0;
                    tokio::time::sleep(task.pause).await;
                    continue;
                }
                TaskStatus::Done(result) => Ok(result),
                // `tasks/result` waits until the task ends. The task's questions arrive during this request.
                TaskStatus::Fetch => {
                    let mut request = Request::plain("tasks/result", task.params(), self.limits.call);
                    request.asker = Some(parked.asker().clone());
                    request.slot = slot.clone();
                    self.session.request(request).await
                }
                TaskStatus::Failed(why) => return FollowOutcome::Over(Dispatch::Settled(self.failed(id, &why))),
                TaskStatus::Asks(look) => {
                    let ticket = TimedTask { task: task.clone(), until }.ticket();
                    return FollowOutcome::Over(self.asks(id, &look, ticket));
                }
            };
            match result {
                Ok(result) => return FollowOutcome::Over(Dispatch::Settled(self.returned(id, result, &slot).await)),
                Err(error) if is_transient(&error) && failed < tasks::MAX_FAILED_POLLS => failed += 1,
                Err(error) => return self.not_seen(id, error),
            }
        }
    }

    fn not_seen(&self, id: &ToolId, error: RequestError) -> FollowOutcome {
        match error {
            RequestError::NotSent(why) | RequestError::Closed(why) => FollowOutcome::Lost(why),
            error => FollowOutcome::Over(Dispatch::Settled(self.failed(id, &self.explain(error)))),
        }
    }

    async fn ask(&self, method: &'static str, task: &Task, slot: &Slot) -> Result<Value, RequestError> {
        let request = Request::plain(method, task.params(), self.limits.call);
        self.session.request(Request { slot: slot.clone(), ..request }).await
    }
}

/// Returns true for errors that may not occur again on the next poll.
fn is_transient(error: &RequestError) -> bool {
    matches!(error, RequestError::Deadline(_) | RequestError::Refused { code: 0 | 429 | 500..=599, .. })
}
