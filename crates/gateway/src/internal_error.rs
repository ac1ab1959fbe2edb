//! Messages about internal errors. An error of the store names SQL and paths, which neither a model nor a client may read:
//! its text is logged under an incident id, and the message has only that id.

use std::error::Error;

use store::CommitError;
use telemetry::IncidentId;

/// Logs an error whose text must not leave the process, and returns the message about it: what failed, the incident id, and
/// what to do next.
pub(crate) fn internal_message(
    operation: &'static str,
    error: &(dyn Error + 'static),
    what_failed: &str,
    next: &str,
) -> String {
    let incident = IncidentId::log(operation, error);
    format!("{what_failed} (incident {incident}); {next}")
}

/// Returns the message about a write that failed. The text of an error that names no internals is part of it.
pub(crate) fn commit_message(operation: &'static str, error: &CommitError, what_failed: &str, next: &str) -> String {
    if error.is_internal() {
        internal_message(operation, error, what_failed, next)
    } else {
        format!("{what_failed}: {error}")
    }
}

#[cfg(test)]
mod tests {
    use store::{CommitError, StoreError};

    use super::commit_message;

    #[test]
    fn the_text_of_the_store_is_replaced_by_an_incident_id() {
        let error = CommitError::Store(StoreError::Corrupt("no such table: calls in /home/ada/store.db".to_owned()));
        let message = commit_message("record a call", &error, "the call cannot be recorded", "try again");
        let incident = message.strip_prefix("the call cannot be recorded (incident ").unwrap();
        let (incident, rest) = incident.split_at(8);
        assert!(incident.bytes().all(|byte| byte.is_ascii_hexdigit()), "{message}");
        assert_eq!(rest, "); try again");
    }

    #[test]
    fn a_lost_run_is_named_and_no_incident() {
        let message = commit_message("record a call", &CommitError::Fenced, "the call cannot be recorded", "try again");
        assert_eq!(message, format!("the call cannot be recorded: {}", CommitError::Fenced));
    }
}
