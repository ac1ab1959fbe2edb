//! The reason why a connection ended.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use contract::limits::MAX_LARGE_MESSAGE_BYTES;

use crate::client::spec::{MAX_BAD_FRAMES, MAX_HELD_BYTES, MAX_UNANSWERED_REQUESTS, MAX_UNSENT};

/// Why a connection ended. It cannot recover from any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
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
    Unreachable(UnreachableCause),
    /// The server no longer knows the session.
    SessionGone,
    /// The server requires a login, or a new one.
    LoginNeeded,
}

impl fmt::Display for DisconnectReason {
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
            Self::Unreachable(cause) => write!(f, "the server cannot be reached at its address: {cause}"),
            Self::SessionGone => f.write_str("the server no longer knows the session"),
            Self::LoginNeeded => f.write_str("the server requires a login"),
        }
    }
}

/// Why no connection to an address could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableCause {
    /// Nothing listens there.
    Refused,
    /// The name has no address.
    NameNotFound,
    /// There is no route to the address.
    NoRoute,
    /// Nothing answered in time.
    TimedOut,
    /// No encrypted connection could be agreed upon, or the certificate is not valid.
    Tls,
    Other,
}

impl UnreachableCause {
    /// Finds the cause in the errors that led to this one.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let causes = || std::iter::successors(Some(error), |&error| error.source());
        if causes().any(|cause| cause.to_string().starts_with("dns error")) {
            return Self::NameNotFound;
        }
        if causes().any(is_tls) {
            return Self::Tls;
        }
        let kinds = causes().filter_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()));
        let known = kinds.filter_map(|kind| match kind {
            ErrorKind::ConnectionRefused => Some(Self::Refused),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Some(Self::NoRoute),
            ErrorKind::TimedOut => Some(Self::TimedOut),
            _ => None,
        });
        known.last().unwrap_or(Self::Other)
    }
}

/// Whether TLS failed. An I/O error does not name the error inside it as its source.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || inside.is_some_and(|inside| is_tls(inside))
}

impl fmt::Display for UnreachableCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::NameNotFound => "its name was not found",
            Self::NoRoute => "there is no route to it",
            Self::TimedOut => "the connection timed out",
            Self::Tls => "the encrypted connection (TLS) failed",
            Self::Other => "the connection failed",
        })
    }
}

/// The reason why a connection ended, shared by all parts of the connection.
pub(crate) type FirstDisconnect = process::FirstReason<DisconnectReason>;
