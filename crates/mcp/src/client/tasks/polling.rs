//! Polls a server's task until it ends, over one connection. A task is a tool call that the server executes in the
//! background.

use contract::tool::ToolId;
use executor::{Dispatch, Outcome, ParkedCall};
use process::ResponseSlot;
use serde_json::{Value, json};

use crate::client::server::Server;
use crate::client::tasks::{self, FollowOutcome, Task, TaskStatus, TimedTask};
use crate::client::{Request, RequestError};

/// The protocol's error code for a task that the server does not know any more. It accepted the call before, so the
/// outcome of the call is unknown.
const NO_SUCH_TASK: i32 = -32602;

impl Server {
    /// Polls a task until it is finished or its deadline has passed. Dropping the future does not cancel the task.
    pub(crate) async fn follow_task(&self, parked: &ParkedCall, timed: &mut TimedTask) -> FollowOutcome {
        let (id, left) = (parked.id(), timed.left());
        match tokio::time::timeout(left, self.poll_until_over(parked, timed)).await {
            Ok(followed) => followed,
            Err(_) => {
                self.cancel_task(&timed.task).await;
                let minutes = tasks::TASK_TIMEOUT.as_secs() / 60;
                let why = format!("its task did not finish within {minutes} minutes and was cancelled");
                FollowOutcome::Over(Dispatch::Settled(self.failed(id, &why)))
            }
        }
    }

    /// Asks the server to cancel a task. An error is only logged.
    pub(crate) async fn cancel_task(&self, task: &Task) {
        if let Err(error) = self.send_task_request("tasks/cancel", task, &ResponseSlot::default()).await {
            tracing::warn!(server = self.name(), reason = self.explain(error), "a task could not be cancelled");
        }
    }

    async fn poll_until_over(&self, parked: &ParkedCall, timed: &mut TimedTask) -> FollowOutcome {
        let (id, task, until) = (parked.id(), &mut timed.task, timed.until);
        let (mut failed_polls, mut last_message) = (0, None);
        // Holds the memory of a response until the caller has the task's result.
        let slot = ResponseSlot::default();
        loop {
            // The first poll is immediate: the task may have finished while no process followed it.
            let response = match self.send_task_request("tasks/get", task, &slot).await {
                Ok(response) => response,
                // A failed poll does not affect the task.
                Err(error) if is_transient(&error) && failed_polls < tasks::MAX_FAILED_POLLS => {
                    failed_polls += 1;
                    tokio::time::sleep(task.poll_interval).await;
                    continue;
                }
                Err(RequestError::Refused { code: NO_SUCH_TASK, .. }) => {
                    return FollowOutcome::Over(Dispatch::Settled(Outcome::Unknown));
                }
                Err(error) => return self.polling_failed(id, error),
            };
            let result = match task.parse_status(response) {
                TaskStatus::Working { message } => {
                    if let Some(message) = message.filter(|message| last_message.as_ref() != Some(message)) {
                        parked.updates().send(json!({"message": message}));
                        last_message = Some(message);
                    }
                    failed_polls = 0;
                    tokio::time::sleep(task.poll_interval).await;
                    continue;
                }
                TaskStatus::Done(result) => Ok(result),
                // `tasks/result` returns when the task ends. Until then the server sends the task's questions.
                TaskStatus::Fetch => {
                    let mut request = Request::plain("tasks/result", task.task_id_params(), self.limits.call);
                    request.asker = Some(parked.asker().clone());
                    request.slot = slot.clone();
                    self.session.request(request).await
                }
                TaskStatus::Failed(why) => return FollowOutcome::Over(Dispatch::Settled(self.failed(id, &why))),
                TaskStatus::Asks(questions) => {
                    let ticket = TimedTask { task: task.clone(), until }.ticket();
                    return FollowOutcome::Over(self.park_for_answers(id, &questions, ticket));
                }
            };
            match result {
                Ok(result) => return FollowOutcome::Over(Dispatch::Settled(self.returned(id, result, &slot).await)),
                Err(error) if is_transient(&error) && failed_polls < tasks::MAX_FAILED_POLLS => failed_polls += 1,
                Err(error) => return self.polling_failed(id, error),
            }
        }
    }

    /// Returns the outcome after a poll whose error cannot be ignored.
    fn polling_failed(&self, id: &ToolId, error: RequestError) -> FollowOutcome {
        match error {
            RequestError::NotSent(why) | RequestError::Closed(why) => FollowOutcome::Lost(why),
            error => FollowOutcome::Over(Dispatch::Settled(self.without_result(id, error))),
        }
    }

    async fn send_task_request(
        &self,
        method: &'static str,
        task: &Task,
        slot: &ResponseSlot,
    ) -> Result<Value, RequestError> {
        let request = Request::plain(method, task.task_id_params(), self.limits.call);
        self.session.request(Request { slot: slot.clone(), ..request }).await
    }
}

/// Returns true for errors that may not occur again on the next poll: timeouts, HTTP errors of a server
/// that is overloaded or failing, and 0, which is the code of errors that this client creates itself.
fn is_transient(error: &RequestError) -> bool {
    matches!(error, RequestError::Deadline(_) | RequestError::Refused { code: 0 | 429 | 500..=599, .. })
}
