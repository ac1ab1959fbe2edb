//! Every limit on MCP sessions over HTTP; those on connections and requests are in `http_server::limits`.
//! `docs/internals/promises.md` lists them with the tests that hit them.

use std::time::Duration;

/// The body of an `initialize` request. A session keeps its content until the session ends.
pub(crate) const MAX_INITIALIZE_BYTES: usize = 64 << 10;

/// Sessions of one principal, and of all. A new session replaces the one that has been idle longest.
pub(crate) const MAX_SESSIONS_PER_PRINCIPAL: usize = 64;
pub(crate) const MAX_SESSIONS: usize = 1024;

/// A session without requests ends after this time. Its runs continue.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// Open streams of one session.
pub(crate) const MAX_STREAMS_PER_SESSION: usize = 64;

/// Events that one stream keeps for a client that resumes it.
pub(crate) const MAX_RESUMABLE_EVENTS: usize = 16;

/// How long the response to an ended request is kept for a client that resumes its stream, and how many bytes of them
/// one principal's sessions keep. Past it, the principal's next request waits until older ones expire.
pub(crate) const RESUMABLE_FOR: Duration = Duration::from_secs(5);
pub(crate) const MAX_KEPT_RESPONSE_BYTES: usize = 16 << 20;
