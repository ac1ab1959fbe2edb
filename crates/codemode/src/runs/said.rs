//! Results for runs that have no driver in this process to report one.

use contract::cell::CellResult;
use contract::error::ErrorCode;
use contract::frame::Failure;

use crate::driver::failed;

pub(crate) fn stopped_unreported() -> CellResult {
    failed(
        ErrorCode::InternalError,
        "the run stopped before it reported a result; check whether its calls took effect before you run it again",
    )
}

pub(super) fn no_such_run() -> CellResult {
    failed(ErrorCode::InvalidInput, "no such run; `wait` takes the `runId` of an `exec` that returned `waiting`")
}

pub(crate) fn snapshot_expired() -> CellResult {
    failed(ErrorCode::SnapshotExpired, "the cell waited too long and has expired; run it again with `exec`")
}

pub(super) fn aborted() -> CellResult {
    failed(ErrorCode::Aborted, "the run was aborted")
}

pub(super) fn unreadable_result() -> CellResult {
    failed(ErrorCode::InternalError, "the run's result cannot be read")
}

pub(super) fn unreadable(what: &str) -> Failure {
    Failure {
        code: Some(ErrorCode::SnapshotRestoreFailed),
        message: format!("the suspended cell cannot be resumed: {what}"),
        place: None,
    }
}

pub(super) fn locked(key: u32) -> Failure {
    unreadable(&format!(
        "it is sealed with key {key}, which is not in this server's key file; restore the key, or copy the key file from \
         the server that sealed it, and call `wait` again: the run is kept until it expires"
    ))
}

pub(super) fn internal(message: &str) -> Failure {
    Failure { code: Some(ErrorCode::InternalError), message: message.to_owned(), place: None }
}
