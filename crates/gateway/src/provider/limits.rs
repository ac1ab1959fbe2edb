//! The limits of requests to providers that cannot be configured.

use std::time::Duration;

/// How long establishing a connection may take.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// How long idle connections are kept.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// How long a whole response may take, however steadily it arrives.
pub(super) const MAX_RESPONSE_TIME: Duration = Duration::from_secs(3_600);

/// Bytes of an error response that are read.
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;

/// Bytes that are read after the end of a streamed response, so that its connection can be used again, and the time for it.
pub(super) const MAX_TRAILING_BYTES: usize = 64 << 10;
pub(super) const TRAILING: Duration = Duration::from_secs(1);

/// Headers of a response.
pub(super) const MAX_HEADERS: usize = 128;

/// Requests for one response, the first one included.
pub(super) const MAX_ATTEMPTS: u32 = 4;

/// The delay before the second request. It doubles with every further one.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The longest delay that a provider may ask for. If it asks for more, the request is not retried.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(60);
