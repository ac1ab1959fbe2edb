//! The reason why a connection ended.

use std::fmt;

use contract::limits::MAX_LARGE_MESSAGE_BYTES;

use crate::client::spec::{MAX_BAD_FRAMES, MAX_HELD_BYTES, MAX_UNANSWERED_REQUESTS, MAX_UNSENT};

/// Why a connection ended. It cannot recover from any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The server exited or closed its output.
    Ended,
    /// The server sent a message that is too long to be skipped.
    FrameTooLong,
    /// The server sent too many lines in a row that are not messages.
    Garbage,
    /// The server does not read the messages sent to it.
    DoesNotRead,
    /// The server has too many unanswered requests.
    AsksTooMuch,
    /// The server's unfinished responses are too large together.
    TooMuchAtOnce,
    /// The server's address cannot be reached.
    Unreachable,
    /// The server no longer knows the session.
    SessionGone,
    /// The server requires a login, or a new one.
    LoginNeeded,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the server exited or closed its output"),
            Self::FrameTooLong => write!(f, "the server sent a message of more than {MAX_LARGE_MESSAGE_BYTES} bytes"),
            Self::Garbage => write!(f, "the server sent {MAX_BAD_FRAMES} lines in a row that are not JSON-RPC"),
            Self::DoesNotRead => write!(f, "the server left {MAX_UNSENT} messages unread"),
            Self::AsksTooMuch => write!(f, "the server sent more than {MAX_UNANSWERED_REQUESTS} requests at once"),
            Self::TooMuchAtOnce => {
                write!(f, "the server's unfinished responses take more than {MAX_HELD_BYTES} bytes together")
            }
            Self::Unreachable => f.write_str("the server cannot be reached at its address"),
            Self::SessionGone => f.write_str("the server no longer knows the session"),
            Self::LoginNeeded => f.write_str("the server requires a login"),
        }
    }
}

/// The reason why a connection ended, shared by all parts of the connection.
pub(crate) type ClosedCell = process::FirstReason<Closed>;
