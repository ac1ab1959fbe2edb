//! What a model is told of a run that is not there to speak for itself.

use contract::cell::CellResult;
use contract::error::ErrorCode;
use contract::frame::Failure;

use crate::driver::failed;

pub(crate) fn without_a_word() -> CellResult {
    failed(ErrorCode::InternalError, "the run stopped without a word; `wait` goes on with it")
}

pub(super) fn no_such_run() -> CellResult {
    failed(ErrorCode::InvalidInput, "no such run; `wait` takes the `runId` of an `exec` that answered `waiting`")
}

pub(crate) fn snapshot_expired() -> CellResult {
    failed(ErrorCode::SnapshotExpired, "the cell waited too long and was put away for good; run it again with `exec`")
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
        "it is sealed with key {key}, which this server's key file does not have; put the key back, or copy the file from \
         where it was made, and `wait` again: the run is kept until its time is over"
    ))
}

pub(super) fn internal(message: &str) -> Failure {
    Failure { code: Some(ErrorCode::InternalError), message: message.to_owned(), place: None }
}
