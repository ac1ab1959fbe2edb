//! A task that a tool call returned: its state, and when to poll it again. There are two dialects of tasks.

mod polling;
mod ticket;

use std::time::Duration;

use executor::Dispatch;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::disconnect::DisconnectReason;
use crate::client::spec::{MAX_UPDATE_CHARS, shown};

pub(crate) use ticket::{TicketContent, TimedTask};

/// How long a task may take from its first response to its last.
pub(crate) const TASK_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The number of consecutive polls that may fail before the task counts as lost.
pub(crate) const MAX_FAILED_POLLS: u32 = 5;

/// The time between polls, and the range of intervals that a server may ask for.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(1_000);
const POLL_INTERVAL_RANGE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// The longest id that a server may give a task.
const MAX_ID_BYTES: usize = 1_024;

/// The dialect of the protocol that a task uses: its revisions define tasks differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Dialect {
    /// The tasks extension: a result declares itself a task, and the last poll returns the tool's result.
    Extension,
    /// Revision 2025-11-25: a call requests a task, and the tool's result is fetched separately.
    Experimental,
}

/// A task of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) dialect: Dialect,
    pub(crate) poll_interval: Duration,
}

/// The result of following a task.
#[derive(Debug)]
pub(crate) enum FollowOutcome {
    Over(Dispatch),
    /// The connection ended; the task may still be running.
    Lost(DisconnectReason),
}

/// The state of a task that a poll returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskStatus {
    Working {
        message: Option<String>,
    },
    /// Finished, with the tool's result.
    Done(Value),
    /// Call `tasks/result` next: it returns the result or error, or waits while the server asks its question.
    Fetch,
    Failed(String),
    /// The task needs input; the response contains the question.
    Asks(Value),
}

impl Task {
    /// Parses a task from a result. Returns `None` if the result is not a task but the tool's own result.
    pub(crate) fn from_result(result: &Value) -> Option<Result<Self, String>> {
        let (dialect, task) = match result.get("task") {
            _ if result.get("resultType").and_then(Value::as_str) == Some("task") => (Dialect::Extension, result),
            Some(task) if task.is_object() && result.get("content").is_none() => (Dialect::Experimental, task),
            _ => return None,
        };
        let id = task.get("taskId").and_then(Value::as_str).filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
        let bad = || "its task has no valid id".to_owned();
        let poll_interval = poll_interval(task).unwrap_or(DEFAULT_POLL_INTERVAL);
        let with_id = |id: &str| Self { id: id.to_owned(), dialect, poll_interval };
        Some(id.map(with_id).ok_or_else(bad))
    }

    /// Returns the `task` parameter for a tool that can only be called as a task.
    pub(crate) fn request_parameter() -> Value {
        json!({"ttl": TASK_TIMEOUT.as_millis() as u64})
    }

    /// Returns the parameters of a request about this task: its id.
    pub(crate) fn task_id_params(&self) -> Map<String, Value> {
        Map::from_iter([("taskId".to_owned(), json!(self.id))])
    }

    /// Parses a response of `tasks/get`. The server may also change the poll interval.
    pub(crate) fn parse_status(&mut self, mut response: Value) -> TaskStatus {
        self.poll_interval = poll_interval(&response).unwrap_or(self.poll_interval);
        let message = response.get("statusMessage").and_then(Value::as_str).map(|text| shown(text, MAX_UPDATE_CHARS));
        match (response.get("status").and_then(Value::as_str), self.dialect) {
            (Some("working"), _) => TaskStatus::Working { message },
            // The tool's result, including its own errors.
            (Some("completed"), Dialect::Extension) => match response.get_mut("result") {
                // The result may be large, so it is moved, not copied.
                Some(result) => TaskStatus::Done(result.take()),
                None => TaskStatus::Failed("its task is completed but has no result".to_owned()),
            },
            // `tasks/result` returns the same error as the call would have.
            (Some("completed" | "failed"), Dialect::Experimental) => TaskStatus::Fetch,
            (Some("failed"), Dialect::Extension) => {
                let why =
                    response.pointer("/error/message").and_then(Value::as_str).map(|why| shown(why, MAX_UPDATE_CHARS));
                TaskStatus::Failed(format!(
                    "its task failed: {}",
                    why.or(message).unwrap_or_else(|| "no reason given".to_owned())
                ))
            }
            (Some("cancelled"), _) => TaskStatus::Failed("its task was cancelled by the server".to_owned()),
            (Some("input_required"), Dialect::Extension) => TaskStatus::Asks(response),
            // The question arrives as a server request while `tasks/result` waits.
            (Some("input_required"), Dialect::Experimental) => TaskStatus::Fetch,
            _ => TaskStatus::Failed("its task has an invalid status".to_owned()),
        }
    }
}

fn poll_interval(task: &Value) -> Option<Duration> {
    let asked = task.get("pollIntervalMs").or_else(|| task.get("pollInterval"))?.as_u64()?;
    Some(clamp_poll_interval(Duration::from_millis(asked)))
}

/// Limits a poll interval to the allowed range.
pub(crate) fn clamp_poll_interval(interval: Duration) -> Duration {
    interval.clamp(POLL_INTERVAL_RANGE.0, POLL_INTERVAL_RANGE.1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Dialect, Task, TaskStatus};

    fn task(dialect: Dialect, poll_interval_ms: u64) -> Task {
        Task { id: "t".to_owned(), dialect, poll_interval: Duration::from_millis(poll_interval_ms) }
    }

    #[test]
    fn a_result_is_a_task_only_if_it_declares_one() {
        let no_id = "its task has no valid id".to_owned();
        let cases = [
            (json!({"resultType": "task", "taskId": "t"}), Some(Ok(task(Dialect::Extension, 1_000)))),
            (json!({"resultType": "task", "taskId": "t", "pollIntervalMs": 0}), Some(Ok(task(Dialect::Extension, 50)))),
            (
                json!({"task": {"taskId": "t", "pollInterval": 1e9 as u64}}),
                Some(Ok(task(Dialect::Experimental, 60_000))),
            ),
            (json!({"resultType": "task"}), Some(Err(no_id.clone()))),
            (json!({"resultType": "task", "taskId": "x".repeat(1_025)}), Some(Err(no_id.clone()))),
            (json!({"task": {"taskId": ""}}), Some(Err(no_id))),
            (json!({"content": [], "task": {"taskId": "t"}}), None),
            (json!({"content": [], "resultType": "complete"}), None),
            (json!(7), None),
        ];
        for (result, expected) in cases {
            assert_eq!(Task::from_result(&result), expected, "{result}");
        }
    }

    #[test]
    fn parse_status_maps_each_status_of_each_dialect() {
        let failed = |why: &str| TaskStatus::Failed(why.to_owned());
        let result = json!({"content": [], "isError": true});
        let needs_input = json!({"status": "input_required"});
        let cases: [(Dialect, Value, TaskStatus); 12] = [
            (Dialect::Extension, json!({"status": "working"}), TaskStatus::Working { message: None }),
            (
                Dialect::Experimental,
                json!({"status": "working", "statusMessage": "half\u{1b}"}),
                TaskStatus::Working { message: Some("half ".to_owned()) },
            ),
            (Dialect::Extension, json!({"status": "completed", "result": result}), TaskStatus::Done(result.clone())),
            (Dialect::Extension, json!({"status": "completed"}), failed("its task is completed but has no result")),
            (Dialect::Experimental, json!({"status": "completed"}), TaskStatus::Fetch),
            (Dialect::Experimental, json!({"status": "failed"}), TaskStatus::Fetch),
            (
                Dialect::Extension,
                json!({"status": "failed", "error": {"message": "no"}}),
                failed("its task failed: no"),
            ),
            (Dialect::Extension, json!({"status": "cancelled"}), failed("its task was cancelled by the server")),
            (Dialect::Experimental, json!({"status": "cancelled"}), failed("its task was cancelled by the server")),
            (Dialect::Extension, needs_input.clone(), TaskStatus::Asks(needs_input.clone())),
            (Dialect::Experimental, needs_input, TaskStatus::Fetch),
            (Dialect::Extension, json!({"status": 7}), failed("its task has an invalid status")),
        ];
        for (dialect, response, expected) in cases {
            assert_eq!(task(dialect, 1).parse_status(response.clone()), expected, "{response}");
        }
        let mut changed = task(Dialect::Extension, 1);
        changed.parse_status(json!({"status": "working", "pollIntervalMs": 200}));
        assert_eq!(changed.poll_interval, Duration::from_millis(200));
    }
}
