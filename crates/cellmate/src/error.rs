//! The error type of this crate.

use std::fmt;

use codemode::pool::PoolError;
use codemode::replay::{ForkError, RecordError};
use contract::config::error::ConfigError;
use contract::error::ErrorCode;
use executor::run::PrepareError;
use store::{DecisionError, KeyFileError, SettleError, StoreError};

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed: what failed, why, and what to do, with a [`kind`](Error::kind) for programs.
///
/// A cell that fails is not an error: it is a [`CellResult::Failed`](crate::CellResult::Failed), which the model reads.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `main` does not call [`worker_main`](crate::worker_main).
    WorkerMainMissing,
    /// The configuration is invalid. The message names the path of each wrong value.
    InvalidConfig,
    /// A tool has an invalid id, no function, or the id of another tool.
    InvalidTool,
    /// No worker can be started, or the system gives no threads or randomness.
    RuntimeUnavailable,
    /// The key file cannot be created, read or used.
    KeyUnavailable,
    /// The store cannot be opened, read or written.
    StoreUnavailable,
    /// The approval was decided before, has expired, or never existed; or the parked call has settled.
    NotPending,
    /// The decision does not fit the approval.
    InvalidDecision,
    /// The run is not in the store or belongs to another scope, or it cannot be replayed or forked.
    InvalidRun,
    /// Too many runs are waiting; the limit is `maxLiveRuns`.
    TooManyRuns,
    /// An error of the program that uses this crate; see [`Error::other`].
    Other,
}

impl ErrorKind {
    /// Returns the code of the kind, such as `invalid_config`.
    pub fn code(self) -> &'static str {
        match self {
            Self::WorkerMainMissing => "worker_main_missing",
            Self::InvalidConfig => "invalid_config",
            Self::InvalidTool => "invalid_tool",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::KeyUnavailable => "key_unavailable",
            Self::StoreUnavailable => "store_unavailable",
            Self::NotPending => "not_pending",
            Self::InvalidDecision => "invalid_decision",
            Self::InvalidRun => "invalid_run",
            Self::TooManyRuns => "too_many_runs",
            Self::Other => "other",
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Returns an error of the program itself, so that it can use this crate's [`Result`] for everything.
    pub fn other(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Other, message.to_string())
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the code of the error's kind, such as `invalid_config`.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    pub(crate) fn config(errors: &[ConfigError]) -> Self {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Self::new(ErrorKind::InvalidConfig, format!("the configuration is invalid: {}", errors.join("; ")))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Shows the message and the code, because Rust prints the error that `main` returns in this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::other(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::other(error)
    }
}

// The conversions below are functions and not `From`: errors of the inner crates are no part of this crate's interface.

pub(crate) fn randomness(error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::RuntimeUnavailable, format!("cannot read system randomness: {error}"))
}

pub(crate) fn key(error: &KeyFileError) -> Error {
    Error::new(ErrorKind::KeyUnavailable, error.to_string())
}

pub(crate) fn store(error: &StoreError) -> Error {
    let kind = match error {
        StoreError::OtherKey { .. } => ErrorKind::KeyUnavailable,
        _ => ErrorKind::StoreUnavailable,
    };
    Error::new(kind, error.to_string())
}

pub(crate) fn pool(error: &PoolError) -> Error {
    Error::new(ErrorKind::RuntimeUnavailable, error.to_string())
}

pub(crate) fn prepare(error: &PrepareError) -> Error {
    let kind = match error {
        PrepareError::Catalog(_) => ErrorKind::InvalidTool,
        PrepareError::Surface(error) if error.code() == ErrorCode::RuntimeUnavailable => ErrorKind::RuntimeUnavailable,
        PrepareError::Surface(_) => ErrorKind::InvalidConfig,
    };
    Error::new(kind, error.to_string())
}

pub(crate) fn decision(error: &DecisionError) -> Error {
    match error {
        DecisionError::NotPending => Error::new(ErrorKind::NotPending, error.to_string()),
        DecisionError::Unfit(_) | DecisionError::TooManyRules => {
            Error::new(ErrorKind::InvalidDecision, error.to_string())
        }
        DecisionError::Store(error) => store(error),
    }
}

pub(crate) fn record(error: &RecordError) -> Error {
    match error {
        RecordError::Store(error) => store(error),
        error => Error::new(ErrorKind::InvalidRun, error.to_string()),
    }
}

pub(crate) fn fork(error: &ForkError) -> Error {
    match error {
        ForkError::Record(error) => record(error),
        ForkError::NotExec | ForkError::NoSuchStep { .. } => Error::new(ErrorKind::InvalidRun, error.to_string()),
        ForkError::Full => Error::new(ErrorKind::TooManyRuns, error.to_string()),
        ForkError::Randomness(error) => randomness(error),
        ForkError::Commit(_) => Error::new(ErrorKind::StoreUnavailable, error.to_string()),
    }
}

pub(crate) fn settle(error: &SettleError) -> Error {
    match error {
        SettleError::Store(error) => store(error),
        error => Error::new(ErrorKind::NotPending, error.to_string()),
    }
}
