//! A tool that answers with a task: what of it is known, and when to look again. Two revisions have their own words
//! for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::spec::{MAX_UPDATE_CHARS, shown};

/// How long a task may take from its first answer to its last.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Looks in a row that may fail before the task is given up.
pub(crate) const MAX_FAILED_LOOKS: u32 = 5;

/// Between looks, where the server does not say, and the bounds of what it may say.
const PAUSE: Duration = Duration::from_millis(1_000);
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// The longest id that a server may give a task.
const MAX_ID_BYTES: usize = 1_024;

/// In whose words a task is spoken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Dialect {
    /// The extension: a result says of itself that it is a task, and the last look brings what the tool gave.
    Extension,
    /// Of 2025-11-25: a call asks for a task, and what the tool gave is fetched apart.
    Experimental,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) dialect: Dialect,
    pub(crate) pause: Duration,
}

/// What a look at a task shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Working {
        said: Option<String>,
    },
    /// What the tool gave.
    Done(Value),
    /// It is done; what the tool gave is fetched apart.
    Fetch,
    Failed(String),
    /// It wants to know something before it goes on: the look says what.
    Asks(Value),
}

impl Task {
    /// None where the result is no task: then it is what the tool gave.
    pub(crate) fn begun(result: &Value) -> Option<Result<Self, String>> {
        let (dialect, task) = match result.get("task") {
            _ if result.get("resultType").and_then(Value::as_str) == Some("task") => (Dialect::Extension, result),
            Some(task) if task.is_object() && result.get("content").is_none() => (Dialect::Experimental, task),
            _ => return None,
        };
        let id = task.get("taskId").and_then(Value::as_str).filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
        let bad = || "its task has no valid id".to_owned();
        let begun = |id: &str| Self { id: id.to_owned(), dialect, pause: pause(task).unwrap_or(PAUSE) };
        Some(id.map(begun).ok_or_else(bad))
    }

    /// What makes a call ask for a task, where it must.
    pub(crate) fn wanted() -> Value {
        json!({"ttl": DEADLINE.as_millis() as u64})
    }

    pub(crate) fn named(&self) -> Map<String, Value> {
        Map::from_iter([("taskId".to_owned(), json!(self.id))])
    }

    /// Reads what `tasks/get` brought. The server may also change how often it wants to be asked.
    pub(crate) fn seen(&mut self, mut look: Value) -> Seen {
        self.pause = pause(&look).unwrap_or(self.pause);
        let said = look.get("statusMessage").and_then(Value::as_str).map(|said| shown(said, MAX_UPDATE_CHARS));
        match (look.get("status").and_then(Value::as_str), self.dialect) {
            (Some("working"), _) => Seen::Working { said },
            // What the tool gave, its own errors included.
            (Some("completed"), Dialect::Extension) => match look.get_mut("result") {
                // It may be large, so it is not copied.
                Some(result) => Seen::Done(result.take()),
                None => Seen::Failed("its task is completed but has no result".to_owned()),
            },
            // It fails there as the call would have.
            (Some("completed" | "failed"), Dialect::Experimental) => Seen::Fetch,
            (Some("failed"), Dialect::Extension) => {
                let why =
                    look.pointer("/error/message").and_then(Value::as_str).map(|why| shown(why, MAX_UPDATE_CHARS));
                Seen::Failed(format!(
                    "its task failed: {}",
                    why.or(said).unwrap_or_else(|| "no reason given".to_owned())
                ))
            }
            (Some("cancelled"), _) => Seen::Failed("its task was cancelled by the server".to_owned()),
            (Some("input_required"), Dialect::Extension) => Seen::Asks(look),
            // What it wants to know comes by the connection, while `tasks/result` waits.
            (Some("input_required"), Dialect::Experimental) => Seen::Fetch,
            _ => Seen::Failed("its task has an invalid status".to_owned()),
        }
    }
}

fn pause(task: &Value) -> Option<Duration> {
    let asked = task.get("pollIntervalMs").or_else(|| task.get("pollInterval"))?.as_u64()?;
    Some(between(Duration::from_millis(asked)))
}

pub(crate) fn between(pause: Duration) -> Duration {
    pause.clamp(PAUSES.0, PAUSES.1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Dialect, Seen, Task};

    fn task(dialect: Dialect, pause_ms: u64) -> Task {
        Task { id: "t".to_owned(), dialect, pause: Duration::from_millis(pause_ms) }
    }

    #[test]
    fn a_result_is_a_task_where_it_says_so() {
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
            assert_eq!(Task::begun(&result), expected, "{result}");
        }
    }

    #[test]
    fn a_look_shows_what_became_of_it() {
        let failed = |why: &str| Seen::Failed(why.to_owned());
        let result = json!({"content": [], "isError": true});
        let cases: [(Dialect, Value, Seen); 9] = [
            (Dialect::Extension, json!({"status": "working"}), Seen::Working { said: None }),
            (
                Dialect::Experimental,
                json!({"status": "working", "statusMessage": "half\u{1b}"}),
                Seen::Working { said: Some("half ".to_owned()) },
            ),
            (Dialect::Extension, json!({"status": "completed", "result": result}), Seen::Done(result.clone())),
            (Dialect::Extension, json!({"status": "completed"}), failed("its task is completed but has no result")),
            (Dialect::Experimental, json!({"status": "completed"}), Seen::Fetch),
            (Dialect::Experimental, json!({"status": "failed"}), Seen::Fetch),
            (
                Dialect::Extension,
                json!({"status": "failed", "error": {"message": "no"}}),
                failed("its task failed: no"),
            ),
            (Dialect::Extension, json!({"status": "cancelled"}), failed("its task was cancelled by the server")),
            (Dialect::Extension, json!({"status": 7}), failed("its task has an invalid status")),
        ];
        for (dialect, look, expected) in cases {
            assert_eq!(task(dialect, 1).seen(look.clone()), expected, "{look}");
        }
        let mut changed = task(Dialect::Extension, 1);
        changed.seen(json!({"status": "working", "pollIntervalMs": 200}));
        assert_eq!(changed.pause, Duration::from_millis(200));
    }
}
