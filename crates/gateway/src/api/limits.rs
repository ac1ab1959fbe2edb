//! Every limit of the HTTP API for programs (`/api/v1`, `/tools/invoke`).

use std::time::Duration;

/// The maximum size of a request to `/tools/invoke`, and to the other routes.
pub const MAX_INVOKE_BYTES: usize = 2 << 20;
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The maximum length of an id in a path, and of a value in a query.
pub const MAX_ID_BYTES: usize = 256;
pub const MAX_QUERY_VALUE_BYTES: usize = 1_024;

/// The maximum number of rows of a page, and the number that a request without `limit` gets.
pub const MAX_PAGE: u32 = 500;
pub const DEFAULT_PAGE: u32 = 50;

/// The maximum number of tools on a page of the catalog.
pub const MAX_CATALOG_PAGE: u32 = 1_000;

/// The maximum number of entries on a page of a transcript, and the number that a request without `limit` gets. Long
/// values in an entry are cut to a few kilobytes.
pub const MAX_TRANSCRIPT_PAGE: u32 = 2_000;
pub const DEFAULT_TRANSCRIPT_PAGE: u32 = 500;

/// The maximum number of calls of one run, and of turns of one session, in a response.
pub const MAX_SHOWN_CALLS: usize = 500;
pub const MAX_SHOWN_TURNS: usize = 500;

/// The maximum number of transcript entries that an export holds back until an earlier cell has ended, so that the
/// entries of each cell stay together. If there are more, the earliest cell is exported although it has not ended.
pub const MAX_HELD_ENTRIES: usize = 4_096;

/// The maximum length of a message that a client sends into a turn in progress (steering).
pub const MAX_STEER_CHARS: usize = 32 << 10;

/// The newest turns that a compaction keeps as they are, and how many if a request does not say.
pub const MAX_KEPT_TURNS: u64 = 1_000;
pub const DEFAULT_KEPT_TURNS: u64 = 2;

/// The characters of a key that makes a request idempotent.
pub const MAX_KEY_CHARS: usize = 200;

/// The days of usage that one request can ask for, and how many if it does not say.
pub const MAX_USAGE_DAYS: u32 = 400;
pub const DEFAULT_USAGE_DAYS: u32 = 30;

/// The characters of a note to a denial.
pub const MAX_NOTE_CHARS: usize = 2_000;

/// The maximum number of calls of `/tools/invoke` that one principal has in progress.
pub const MAX_INVOKES_PER_PRINCIPAL: usize = 32;

/// The `Retry-After` for a client that has too many calls or streams.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The number of past events that are kept for clients that lost their connection.
pub const MAX_EVENTS: usize = 4_096;

/// The maximum number of event streams of one principal, and of all.
pub const MAX_STREAMS_PER_PRINCIPAL: usize = 16;
pub const MAX_STREAMS: usize = 128;

/// The maximum number of events in one write.
pub const EVENTS_PER_WRITE: usize = 64;

/// How often a stream without events sends a comment.
pub const EVENT_KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The minimum time between two reads of changed rows.
pub const EVENT_READ_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of changed rows that one read returns. If more have changed, clients receive `reset` and read
/// everything again.
pub const MAX_CHANGED_ROWS: u32 = 5_000;

/// The maximum difference between the clocks of the processes that share a store.
pub const CLOCK_SKEW_MS: i64 = 2_000;
