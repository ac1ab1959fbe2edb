//! The stored state of a call that its server has not finished: a task or a question. It outlives this process.

use std::time::Duration;

use executor::clock::now_ms;
use executor::{Dispatch, Outcome, ParkedOn};
use serde::{Deserialize, Serialize};

use super::{Dialect, TASK_TIMEOUT, Task, clamp_poll_interval};

/// The content of a ticket. Tickets of older versions must stay readable; those of newer versions are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum TicketContent {
    #[serde(rename_all = "camelCase")]
    Task {
        id: String,
        dialect: Dialect,
        pause_ms: u64,
        /// The task's deadline in milliseconds since 1970. It does not restart with a new process.
        until: i64,
    },
    /// A call that is repeated with a person's answers and with the state that the server returned.
    #[serde(rename = "question")]
    QuestionBatch { state: Option<String> },
    /// A call that is repeated once a person has visited the pages that its server named.
    Pages,
}

/// A task and its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedTask {
    pub(crate) task: Task,
    pub(crate) until: i64,
}

impl TimedTask {
    /// Creates the deadline of a task that has just started.
    pub(crate) fn new(task: Task) -> Self {
        let max = i64::try_from(TASK_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        Self { task, until: now_ms().saturating_add(max) }
    }

    pub(crate) fn left(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.until.saturating_sub(now_ms())).unwrap_or(0))
    }

    /// Returns the dispatch result of a call that waits for this task.
    pub(crate) fn parked(&self) -> Dispatch {
        match self.ticket() {
            Some(ticket) => Dispatch::Parked(ParkedOn::Followed(ticket)),
            // Unreachable in practice: the limit of a task id is far below that of a ticket.
            None => Dispatch::Settled(Outcome::Unknown),
        }
    }

    pub(crate) fn ticket(&self) -> Option<executor::Ticket> {
        let Task { id, dialect, poll_interval } = self.task.clone();
        TicketContent::Task { id, dialect, pause_ms: poll_interval.as_millis() as u64, until: self.until }.text()
    }
}

impl TicketContent {
    pub(crate) fn text(&self) -> Option<executor::Ticket> {
        executor::Ticket::new(serde_json::to_string(self).ok()?)
    }

    pub(crate) fn read(text: &executor::Ticket) -> Option<Self> {
        serde_json::from_str(text.as_str()).ok()
    }

    /// Returns the ticket's task, if it is one.
    pub(crate) fn task(self) -> Option<TimedTask> {
        match self {
            Self::Task { id, dialect, pause_ms, until } => {
                let poll_interval = clamp_poll_interval(Duration::from_millis(pause_ms));
                Some(TimedTask { task: Task { id, dialect, poll_interval }, until })
            }
            Self::QuestionBatch { .. } | Self::Pages => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use executor::{Dispatch, ParkedOn};

    use super::{TicketContent, TimedTask};
    use crate::client::tasks::{Dialect, Task};

    #[test]
    fn a_ticket_restores_its_task_and_deadline() {
        let task =
            Task { id: "t".to_owned(), dialect: Dialect::Experimental, poll_interval: Duration::from_millis(200) };
        let timed = TimedTask::new(task);
        let Dispatch::Parked(ParkedOn::Followed(ticket)) = timed.parked() else { panic!("{timed:?}") };
        assert_eq!(TicketContent::read(&ticket).and_then(TicketContent::task), Some(timed));
    }

    #[test]
    fn tickets_of_older_versions_stay_readable() {
        let written = r#"{"task":{"id":"t","dialect":"extension","pauseMs":50,"until":7}}"#;
        let ticket = executor::Ticket::new(written.to_owned()).unwrap();
        let read = TicketContent::read(&ticket).unwrap();
        assert_eq!(read.text(), Some(ticket));
        assert_eq!(read.task().unwrap().left(), Duration::ZERO);
        for written in [r#"{"question":{"state":"s"}}"#, r#"{"question":{"state":null}}"#, r#""pages""#] {
            let ticket = executor::Ticket::new(written.to_owned()).unwrap();
            assert_eq!(TicketContent::read(&ticket).unwrap().text(), Some(ticket), "{written}");
        }
        for other in [r#"{"task":{"id":"t"}}"#, r#"{"later":{}}"#, "7", ""] {
            assert_eq!(TicketContent::read(&executor::Ticket::new(other.to_owned()).unwrap()), None, "{other}");
        }
    }
}
