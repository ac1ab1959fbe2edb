//! Failures, and the results that report them to the model.
//!
//! An error of the store or of the system has two sides. Its text is logged under an incident id; the model reads a
//! sentence with that id.

use contract::cell::{CellResult, Telemetry};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::limits::MAX_ERROR_BYTES;
use executor::internal_message;
use store::{CommitError, StoreError};

/// Formats a failure for the model: `TypeError: x is not a function (at 3:5)`.
pub(crate) fn failure_text(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    if text.len() > MAX_ERROR_BYTES * 2 {
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES * 2));
    }
    if let Some(position) = failure.position {
        text += &format!(" (at {}:{})", position.line, position.column);
    }
    text
}

pub(crate) fn failed(code: ErrorCode, message: &str) -> CellResult {
    failed_with(&failure(code, message))
}

/// Builds the result for a failure without output. The caller adds the telemetry.
pub(crate) fn failed_with(failure: &Failure) -> CellResult {
    CellResult::Failed {
        error: failure_text(failure),
        code: failure.code,
        output: Vec::new(),
        effects: Vec::new(),
        telemetry: Telemetry::default(),
    }
}

pub(crate) fn failure(code: ErrorCode, message: impl Into<String>) -> Failure {
    Failure { code: Some(code), message: message.into(), position: None }
}

/// Builds the failure of an operation on a run that the store did not complete. The run is unchanged.
pub(crate) fn store_unavailable(operation: &'static str, error: &StoreError) -> Failure {
    let advice = "the store is unavailable; call `wait` to try again";
    failure(ErrorCode::InternalError, internal_message(operation, error, advice))
}

/// Returns the message for a write that failed. The text of an error that names no internals is part of it.
pub(crate) fn commit_message(operation: &'static str, error: &CommitError, what_failed: &str, next: &str) -> String {
    if error.is_internal() {
        internal_message(operation, error, &format!("{what_failed}; {next}"))
    } else {
        format!("{what_failed}: {error}")
    }
}

pub(crate) fn stopped_unreported() -> CellResult {
    failed(
        ErrorCode::InternalError,
        "the run stopped before it reported a result; check whether its calls took effect before you run it again",
    )
}

pub(crate) fn no_such_run() -> CellResult {
    failed(ErrorCode::InvalidInput, "no such run; `wait` takes the `runId` of an `exec` that returned `waiting`")
}

pub(crate) fn started_in_sandbox() -> CellResult {
    failed(
        ErrorCode::InvalidInput,
        "the run was started for an agent in a sandbox and is resumed only where `tools.sandbox` applies: call `wait` in the \
         server that started it, or start this one with --sandboxed",
    )
}

pub(crate) fn snapshot_expired() -> CellResult {
    failed(
        ErrorCode::SnapshotExpired,
        "the cell waited too long and has expired, so it cannot be resumed; calls that it made may have taken effect, \
         so check that before you run it again with `exec`",
    )
}

/// Builds the result of an expired run that made no calls, or only calls that change nothing.
pub(crate) fn snapshot_expired_without_effects() -> CellResult {
    failed(
        ErrorCode::SnapshotExpired,
        "the cell waited too long and has expired, so it cannot be resumed; it made no call that may have changed \
         something, so you can run it again with `exec`",
    )
}

pub(crate) fn aborted() -> Failure {
    failure(ErrorCode::Aborted, "the run was aborted")
}

pub(crate) fn unreadable_result() -> CellResult {
    failed(ErrorCode::InternalError, "the run's result cannot be read")
}

/// Builds the failure of a suspended cell that no process can resume.
pub(crate) fn not_resumable(why: &str) -> Failure {
    failure(ErrorCode::SnapshotRestoreFailed, format!("the suspended cell cannot be resumed: {why}"))
}

/// Builds the failure of a suspended cell that the current configuration does not allow to be resumed. The run is kept.
pub(crate) fn over_lowered_limit(code: ErrorCode, what: &str, key: &str) -> Failure {
    failure(
        code,
        format!(
            "{what}; the configuration was changed since the cell was suspended. Ask your user to raise \
             `tools.codeMode.{key}` again, then call `wait`: the run is kept until it expires"
        ),
    )
}

/// Builds the failure of a suspended cell whose key this process does not have.
pub(crate) fn key_missing(key: u32) -> Failure {
    not_resumable(&format!(
        "it is sealed with key {key}, which is not in this server's key file; restore the key, or copy the key file from \
         the server that sealed it, and call `wait` again: the run is kept until it expires"
    ))
}

#[cfg(test)]
mod tests {
    use store::{CommitError, StoreError};

    use super::{commit_message, store_unavailable};

    const SQL: &str = "no such column: SELECT secret_column FROM runs";

    fn broken() -> StoreError {
        StoreError::Corrupt(SQL.to_owned())
    }

    #[test]
    fn the_text_of_a_store_error_does_not_reach_the_model() {
        let messages = [
            store_unavailable("load the run", &broken()).message,
            commit_message("write the run", &CommitError::Store(broken()), "it was not written", "try again"),
        ];
        for message in messages {
            assert!(message.starts_with("internal error (incident "), "{message}");
            assert!(!message.contains("SELECT") && !message.contains("the store contains"), "{message}");
        }
    }

    #[test]
    fn a_fenced_write_is_no_incident() {
        let message = commit_message("write the run", &CommitError::Fenced, "it was not written", "try again");
        assert_eq!(message, "it was not written: another process has taken over the run, or the run has ended");
    }
}
