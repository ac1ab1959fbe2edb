//! Why a request to a provider fails.

use std::time::Duration;

use wire::upstream::IncompleteResponse;

/// Why a request to a provider failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The provider answered with an error status.
    #[error("the provider answered with status {status}: {message}")]
    Status { status: u16, kind: String, message: String, retry_after: Option<Duration> },
    /// The provider could not be reached, or the connection was lost before the response began.
    #[error("the provider cannot be reached: {0}")]
    Unreachable(String),
    /// The response is not complete, so nothing in it may be executed.
    #[error(transparent)]
    Broken(#[from] IncompleteResponse),
    /// The provider did not respond in time.
    #[error("the provider sent nothing for {0:?}")]
    TimedOut(Duration),
}

impl CallError {
    /// Returns what failed, without any text of the provider.
    pub fn summary(&self) -> String {
        match self {
            Self::Status { status, kind, .. } if is_word(kind) => format!("status={status} type={kind}"),
            Self::Status { status, .. } => format!("status={status}"),
            Self::Unreachable(reason) => format!("unreachable: {reason}"),
            Self::TimedOut(time) => format!("timed out after {time:?}"),
            Self::Broken(IncompleteResponse::Truncated) => "cut".to_owned(),
            Self::Broken(IncompleteResponse::Unreadable(_)) => "unreadable".to_owned(),
            Self::Broken(IncompleteResponse::TooLarge(limit)) => format!("too large: {limit}"),
            Self::Broken(IncompleteResponse::Provider(error)) if is_word(&error.kind) => {
                format!("reported type={}", error.kind)
            }
            Self::Broken(IncompleteResponse::Provider(_)) => "reported".to_owned(),
        }
    }
}

/// Whether a provider's type of an error is a plain word, and not a text.
fn is_word(kind: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=64).contains(&kind.len()) && kind.bytes().all(valid)
}
