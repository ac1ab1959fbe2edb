//! Why the HTTP server refuses a request.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::limits::MAX_CONNECTIONS_PER_PRINCIPAL;
use crate::permissions::Permission;

/// The `Retry-After` of every 503 response.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Why a connection with a valid token is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    Principal,
    Total,
    /// The connection has already been closed.
    Closed,
}

/// Why a request is refused. Its `Display` text is the message for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this Host or Origin is not allowed; use the server's own address, or start it with --allow-host")]
    Host,
    #[error(
        "missing or invalid token; send `Authorization: Bearer …`; the server prints the path of its token file when it starts"
    )]
    Token,
    /// With the seconds after which the peer may try again.
    #[error("too many requests with an invalid token; try again in {0} seconds, with a valid one")]
    TooManyFailures(u64),
    #[error("this token may not {}; use one with the permission `{}`", .0.action(), .0.as_str())]
    Permission(Permission),
    /// The thing does not exist, or the client may not see it, which is hidden from the client.
    #[error("not found")]
    NotFound,
    #[error("tokens cannot be checked now; try again later")]
    Unavailable,
    #[error("{}", connections(*.0))]
    Connections(ConnectionRefusal),
    #[error("this request may have at most {0} bytes")]
    TooLarge(usize),
    #[error("a request may have at most {0} JSON values")]
    TooManyValues(usize),
    #[error("the JSON of a request may nest at most {0} levels deep")]
    TooDeep(usize),
    #[error("compressed requests are not accepted; send them without Content-Encoding")]
    Encoding,
    #[error("the request did not arrive in time")]
    TooSlow,
    #[error("large requests of this principal already use {0} bytes; try again later")]
    NoRoom(usize),
    #[error("large requests of all principals already use {0} bytes; try again later")]
    NoTotalRoom(usize),
}

fn connections(why: ConnectionRefusal) -> String {
    match why {
        ConnectionRefusal::Principal => {
            format!("this principal has {MAX_CONNECTIONS_PER_PRINCIPAL} connections already; close some of them")
        }
        ConnectionRefusal::Total | ConnectionRefusal::Closed => {
            "the server has no free connections; try again later".to_owned()
        }
    }
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Host | Self::Permission(_) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::TooManyFailures(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Connections(_) | Self::NoRoom(_) | Self::NoTotalRoom(_) | Self::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::TooLarge(_) | Self::TooManyValues(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooDeep(_) => StatusCode::BAD_REQUEST,
            Self::Encoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// Returns a plain-text response without the headers of `add_headers`.
    pub fn plain(&self) -> Response {
        (self.status(), format!("{self}\n")).into_response()
    }

    /// Adds the headers that belong to this refusal, whatever the response's body is.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if let Self::TooManyFailures(seconds) = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
        }
        match self.status() {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
    }
}
