//! Messages for models and clients about errors whose text they must not read.
//!
//! The text of such an error can contain SQL, paths and stored values. It is logged under an incident id, and the message
//! contains only the id and what the reader can do.

use std::error::Error;

use contract::ids::RunId;
use store::CommitError;
use telemetry::IncidentId;

use crate::call::context::run_span;

/// Logs an error and its causes, and returns the message for a model or client. `advice` says what failed and what the
/// reader can do about it.
pub fn internal_message(operation: &'static str, error: &(dyn Error + 'static), advice: &str) -> String {
    let incident = IncidentId::log(operation, error);
    format!("internal error (incident {incident}): {advice}")
}

/// Returns the message for a model or client whose direct call ended as [`CallEnd::Stopped`](crate::CallEnd::Stopped).
/// An error whose text may contain internals is logged in the span of the call's run.
pub fn stopped_message(run_id: &RunId, error: &CommitError) -> String {
    match error {
        CommitError::Fenced => "another process is making this call; repeat it in a moment".to_owned(),
        error if error.is_internal() => {
            let advice = "the call cannot be recorded, so it was not made or its outcome is unknown; check whether it took \
                          effect before you repeat it";
            run_span(run_id).in_scope(|| internal_message("record a tool call", error, advice))
        }
        error => format!("the call cannot be recorded: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use store::{CommitError, StoreError};

    use super::stopped_message;

    fn message_for(error: &CommitError) -> String {
        stopped_message(&"tc_1".into(), error)
    }

    #[test]
    fn the_text_of_a_store_error_is_not_in_the_message_of_a_stopped_call() {
        let broken = StoreError::Corrupt("no such column: SELECT secret_column FROM runs".to_owned());
        let message = message_for(&CommitError::Store(broken));
        assert!(message.starts_with("internal error (incident "), "{message}");
        assert!(!message.contains("SELECT") && !message.contains("the store contains"), "{message}");
    }

    #[test]
    fn a_call_that_another_process_makes_is_no_incident() {
        let message = message_for(&CommitError::Fenced);
        assert_eq!(message, "another process is making this call; repeat it in a moment");
    }
}
