//! Every limit on HTTP connections and requests. `docs/internals/promises.md` lists them with the tests that hit them.

use std::time::Duration;

/// Open connections. If the server has no slot left, it closes one that has not shown a valid token, so that a client
/// with a token is always served.
pub const MAX_CONNECTIONS: usize = 512;

/// Of those, the slots that connections with a valid token never take.
pub const RESERVED_UNAUTHENTICATED: usize = 128;

/// Connections from one peer network (an IPv4 address or an IPv6 /64) that have not shown a valid token. All clients
/// of a proxy have its address, so a burst of as many clients as can be served must fit.
pub const MAX_UNAUTHENTICATED_PER_NETWORK: usize = MAX_CONNECTIONS - RESERVED_UNAUTHENTICATED;

/// How long a new connection is not closed for another one. A client sends its token at once, so this is the time that
/// a loaded server has to read it. It also bounds the time that connections held by strangers delay a new one.
pub const UNAUTHENTICATED_GRACE: Duration = Duration::from_millis(500);

/// Accepted connections that wait for a slot. Further ones wait in the kernel's backlog.
pub const MAX_WAITING_CONNECTIONS: usize = 64;

/// Connections of one principal. The rest stays free for other principals.
pub const MAX_CONNECTIONS_PER_PRINCIPAL: usize = 256;

/// The total lifetime of a connection that shows no valid token.
pub const UNAUTHENTICATED_LIFETIME: Duration = Duration::from_secs(10);

/// How long a write may make no progress, and how long on routes whose clients show a response as it arrives. A stream
/// with nothing to send is not affected.
pub const WRITE_STALL: Duration = Duration::from_secs(10);
pub const LONG_WRITE_STALL: Duration = Duration::from_secs(30);

/// Requests with an invalid token from one peer network in `FAILED_LOGIN_WINDOW`; further ones get 429. Requests with a
/// valid token are not affected. At most this many networks are counted: the one that began first is forgotten.
pub const MAX_FAILED_LOGINS: u32 = 100;
pub const FAILED_LOGIN_WINDOW: Duration = Duration::from_secs(60);
pub const MAX_FAILED_NETWORKS: usize = 4_096;

/// How often the files of the certificate are read again.
pub const TLS_RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// From the start of a connection, or the end of its last response, to the end of the next request's head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A request's head: header lines, and bytes of all of them together.
pub const MAX_HEADERS: usize = 64;
pub const MAX_HEAD_BYTES: usize = 32 << 10;

/// How long and how much the server still reads and discards after its last response on a connection. Without it the
/// kernel resets the connection, and a client that is still sending may never see the response.
pub const LINGER: Duration = Duration::from_millis(500);
pub const LINGER_BYTES: usize = LARGE_BODY_BYTES;

/// A request's body, and how long it may take to arrive. A cell's source may have 256 KiB, and JSON writes a character
/// in at most six bytes.
pub const MAX_BODY_BYTES: usize = 4 << 20;
pub const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// How deep the JSON of a body may nest, checked before it is parsed.
pub const MAX_BODY_DEPTH: usize = 128;

/// The body of a request that carries a conversation with images, and how long it may take to arrive. Providers take up
/// to 32 MB.
pub const LARGE_BODY_BYTES: usize = 32 << 20;
pub const LARGE_BODY_TIMEOUT: Duration = Duration::from_secs(60);
pub const LARGE_BODY_VALUES: usize = 250_000;

/// Request bodies in memory on a server with such routes, of one principal and of all.
pub const LARGE_PRINCIPAL_BODY_BYTES: usize = 128 << 20;
pub const LARGE_TOTAL_BODY_BYTES: usize = 512 << 20;

/// JSON values in one body, counted before it is parsed, and the approximate memory that one parsed value takes.
pub const MAX_BODY_VALUES: usize = 10_000;
pub const PARSED_VALUE_BYTES: usize = 128;

/// Bodies above this size count towards the budgets below until their request has been handled.
pub const FREE_BODY_BYTES: usize = 64 << 10;

/// Request bodies in memory, of one principal and of all. A request waits for free budget for at most
/// `BODY_ROOM_TIMEOUT`.
pub const MAX_PRINCIPAL_BODY_BYTES: usize = 16 << 20;
pub const MAX_TOTAL_BODY_BYTES: usize = 64 << 20;
pub const BODY_ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests of one principal in progress, including notification streams.
pub const MAX_REQUESTS_PER_PRINCIPAL: usize = 256;

/// How long a token of the store is accepted without another look at the store, and how often tokens in use are checked.
/// Together they end a revoked token's requests and streams within a second.
pub const TOKEN_CACHE_TTL: Duration = Duration::from_millis(900);
pub const TOKEN_POLL_INTERVAL: Duration = Duration::from_millis(400);

/// How often the use of a token is recorded.
pub const TOKEN_USE_INTERVAL: Duration = Duration::from_secs(60);

/// How long the result of `/readyz` is cached before the server checks again.
pub const READINESS_TTL: Duration = Duration::from_millis(500);
