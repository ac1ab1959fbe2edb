//! Logs errors that are ignored.

use std::fmt::Display;

/// Logs the error of a result whose success is not needed.
pub trait LogIgnored {
    /// Logs an error at `warn` together with the name of the operation that failed.
    fn log_ignored(self, operation: &'static str);

    /// Logs an error at `debug`: for failures that are expected, such as writing to a peer that has disconnected.
    fn log_expected(self, operation: &'static str);
}

impl<T, E: Display> LogIgnored for Result<T, E> {
    fn log_ignored(self, operation: &'static str) {
        if let Err(error) = self {
            tracing::warn!(operation, %error, "an operation failed; the error is ignored");
        }
    }

    fn log_expected(self, operation: &'static str) {
        if let Err(error) = self {
            tracing::debug!(operation, %error, "an operation failed, which can be expected");
        }
    }
}
