//! Every limit a cell runs under, with its default and its range.

use std::ops::RangeInclusive;

/// A number from configuration: what it is when nobody says, and how far it may be moved.
#[derive(Clone, Debug)]
pub struct Bound {
    pub key: &'static str,
    pub default: u64,
    pub range: RangeInclusive<u64>,
}

impl Bound {
    const fn new(key: &'static str, default: u64, range: RangeInclusive<u64>) -> Self {
        Self { key, default, range }
    }

    pub fn clamp(&self, raw: u64) -> u64 {
        raw.clamp(*self.range.start(), *self.range.end())
    }
}

pub const TIMEOUT_MS: Bound = Bound::new("timeoutMs", 10_000, 100..=60_000);
pub const MAX_WAIT_MS: Bound = Bound::new("maxWaitMs", 45_000, 100..=600_000);
pub const MEMORY_LIMIT_BYTES: Bound = Bound::new("memoryLimitBytes", 64 << 20, (1 << 20)..=(1 << 30));
pub const MAX_OUTPUT_BYTES: Bound = Bound::new("maxOutputBytes", 64 << 10, 1024..=(10 << 20));
pub const MAX_SNAPSHOT_BYTES: Bound = Bound::new("maxSnapshotBytes", 10 << 20, 1024..=(256 << 20));
pub const MAX_PENDING_TOOL_CALLS: Bound = Bound::new("maxPendingToolCalls", 16, 1..=128);
pub const SNAPSHOT_TTL_SECONDS: Bound = Bound::new("snapshotTtlSeconds", 900, 1..=86_400);
pub const MAX_SEARCH_LIMIT: Bound = Bound::new("maxSearchLimit", 50, 1..=50);

/// Bounded further by the `maxSearchLimit` beside it.
pub const SEARCH_DEFAULT_LIMIT: Bound = Bound::new("searchDefaultLimit", 8, 1..=50);

/// Runs a store keeps alive at once. The upper end is a million: some gigabytes of suspended cells.
pub const MAX_LIVE_RUNS: Bound = Bound::new("maxLiveRuns", 10_000, 1..=1_000_000);

/// For how long runs that have ended, and what sessions did, can be read: a week and a month; at most ten years.
pub const KEEP_RUNS_SECONDS: Bound = Bound::new("keepRunsSeconds", 7 * 86_400, 60..=315_360_000);
pub const KEEP_TRANSCRIPTS_SECONDS: Bound = Bound::new("keepTranscriptsSeconds", 30 * 86_400, 60..=315_360_000);

/// What one principal may have in a store at once, under `store.perPrincipal`.
pub const MAX_WAITING_RUNS: Bound = Bound::new("maxWaitingRuns", 2_000, 1..=1_000_000);
pub const MAX_STORED_BYTES: Bound = Bound::new("maxStoredBytes", 1 << 30, (1 << 20)..=(1 << 40));
pub const MAX_OPEN_APPROVALS: Bound = Bound::new("maxOpenApprovals", 500, 1..=100_000);

/// Standing approvals of one agent that are in force at once. Past it a call can be approved once, but not for good.
pub const MAX_STANDING_RULES: usize = 500;

/// The arguments of one call in an approval form, in characters.
pub const MAX_FORM_ARGUMENT_CHARS: usize = 2_000;

/// The arguments of one call beside a question on a terminal, in characters: about two screens.
pub const MAX_TERMINAL_ARGUMENT_CHARS: usize = 4_000;

/// The arguments of one call in a line of `cellmate approvals list`, in characters.
pub const MAX_LISTED_ARGUMENT_CHARS: usize = 160;

/// Tool Search has its own, under `tools.toolSearch`.
pub const TOOL_SEARCH_CODE_TIMEOUT_MS: Bound = Bound::new("codeTimeoutMs", 10_000, 1_000..=60_000);
pub const TOOL_SEARCH_MAX_SEARCH_LIMIT: Bound = Bound::new("maxSearchLimit", 20, 1..=50);

/// One pattern of an allow or deny list. With it, matching takes time in proportion to the text alone.
pub const MAX_PATTERN_BYTES: usize = 256;

/// Calls one cell may have outstanding, queued ones included; past it a call rejects at once.
pub const MAX_OUTSTANDING_CALLS: usize = 1024;

/// A cell's source text.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;

/// One JSON value crossing the bridge, either way.
pub const MAX_BRIDGE_VALUE_BYTES: usize = 16 << 20;

/// How deep such a value may nest. Guest and host walk values recursively; both have room for this.
pub const MAX_BRIDGE_VALUE_DEPTH: usize = 1000;

/// JSON values in one text that is parsed: scalars, keys, arrays and objects. A parsed value takes far more memory than
/// its text (`[0]` is 3 bytes and about 100 parsed), so the number is checked with a linear scan before parsing.
pub const MAX_JSON_VALUES: usize = 200_000;

/// The target of a bridge call: a tool id, or the path of a namespace. Real ids have at most 200 bytes.
pub const MAX_TARGET_BYTES: usize = 1 << 10;

/// The payload of a call that the catalog answers: the query of a search, the options of `$api`.
pub const MAX_QUERY_BYTES: usize = 64 << 10;

/// Targets and payloads of the calls that one cell has outstanding, in bytes. Far below `frame::MAX_FRAME_BYTES`, so a
/// leg that stays within it always fits into a frame. Past it a call rejects with `value_too_large`.
pub const MAX_OUTSTANDING_BYTES: usize = 32 << 20;

/// What a cell hands to `URL` at once, as JSON. Parsed into its parts, an address takes up to sixteen times its length.
pub const MAX_URL_BYTES: usize = 1 << 20;

/// Calls of one run, timers included, from its start to its end. Each is a row of the run's journal. Past it a call
/// rejects; a run that makes `MAX_OUTSTANDING_CALLS` more, or sets a timer, fails.
pub const MAX_RUN_CALLS: usize = 100_000;

/// Targets, payloads and replies that the journal of one run keeps in the store, in bytes, with what the transcript
/// shows of them. Past it a call rejects.
pub const MAX_JOURNAL_BYTES: usize = 64 << 20;

/// What a row of a journal counts for beside its texts.
pub const JOURNAL_ROW_BYTES: usize = 512;

/// Payloads and replies of unfinished calls that one host process keeps in memory at once, all runs together. Past it
/// a call rejects with an error that the cell can catch.
pub const MAX_HOST_DATA_BYTES: usize = 96 << 20;

/// Heap that the cells running in one worker may take together, unless one cell alone is configured to take more. The
/// pool starts a leg only while the `memoryLimitBytes` of all running cells fit.
pub const WORKER_HEAP_BYTES: u64 = 256 << 20;

/// Legs and freezes that one worker runs at once. There is about one worker per core, so a core is shared by few.
pub const MAX_WORKER_TURNS: usize = 4;

/// New cells of one principal that wait for a worker, and the bytes of their sources together. Past either, `exec`
/// fails with `runtime_unavailable`.
pub const MAX_QUEUED_CELLS: usize = 1024;
pub const MAX_QUEUED_SOURCE_BYTES: usize = 32 << 20;

/// One configuration file. It has at most [`MAX_JSON_VALUES`] values, too.
pub const MAX_CONFIG_FILE_BYTES: usize = 1 << 20;

/// A file that the user named, or another client's file in the user's own folder: `~/.claude.json` also holds that
/// client's history and can be large.
pub const MAX_USER_FILE_BYTES: usize = 16 << 20;

/// The log file of `cellmate mcp`; one older file of the same size is kept. A longer event is replaced by a note.
pub const MAX_LOG_FILE_BYTES: u64 = 8 << 20;
pub const MAX_LOG_LINE_BYTES: usize = 64 << 10;

/// Servers that one configuration file may list; entries after these are not read.
pub const MAX_CONFIG_ENTRIES: usize = 512;

/// Patterns that the `tools.deny` of a project's file may have.
pub const MAX_PROJECT_DENY_PATTERNS: usize = 1_000;

/// An error's text, as the model reads it.
pub const MAX_ERROR_BYTES: usize = 8 << 10;

/// The tables of one catalog, and all the catalogs one worker holds.
pub const MAX_CATALOG_BYTES: usize = 64 << 20;
pub const MAX_WORKER_CATALOG_BYTES: usize = 256 << 20;
pub const MAX_WORKER_CATALOGS: usize = 64;

/// A name made for a cell to write: `MCP.<server>.<method>`, a namespace's global.
pub const MAX_IDENTIFIER_BYTES: usize = 64;

/// Namespaces of one registry. Each is a global of every cell that sees it.
pub const MAX_NAMESPACES: usize = 64;

/// One namespace's scope: how deep, how many values, and how many bytes of names and texts.
pub const MAX_NAMESPACE_DEPTH: usize = 16;
pub const MAX_NAMESPACE_VALUES: usize = 2048;
pub const MAX_NAMESPACE_BYTES: usize = 64 << 10;

/// The description of one control tool: the model pays for it with every request.
pub const MAX_CONTROL_DESCRIPTION_BYTES: usize = 12 << 10;

/// The description of one tool in a list that Tool Search puts before the model.
pub const MAX_COMPACT_DESCRIPTION_BYTES: usize = 1 << 10;

/// The description of one tool that the model sees directly.
pub const MAX_TOOL_DESCRIPTION_BYTES: usize = 16 << 10;

/// What MCP servers send, as text and parsed, that one host process has in memory before its calls take it over: all
/// servers together. A message that does not fit waits for its turn.
pub const MAX_SERVER_DATA_BYTES: usize = 104 << 20;

/// The part of it that small messages have for themselves, so that large ones do not hold them up.
pub const SMALL_SERVER_DATA_BYTES: usize = 24 << 20;

/// The largest message that counts as small, and the largest that is not counted at all.
pub const SMALL_MESSAGE_BYTES: usize = 1 << 20;
pub const TINY_MESSAGE_BYTES: usize = 16 << 10;

/// How long a message from a server waits for its turn to be parsed, in seconds. Then its call fails.
pub const MAX_SERVER_DATA_WAIT_SECONDS: u64 = 10;

/// What a JSON value takes in memory once parsed, at most: `{"a":{"a":…}}` takes 300 bytes for each key and object.
pub const PARSED_VALUE_BYTES: usize = 320;

/// One message from an MCP server.
pub const MAX_SERVER_MESSAGE_BYTES: usize = 8 << 20;

/// How deep a message from an MCP server may nest. It is what the parser of such messages allows.
pub const MAX_SERVER_MESSAGE_DEPTH: usize = 127;

/// The answer that begins a connection, of which the protocol library keeps what it says for as long as the connection.
pub const MAX_HANDSHAKE_BYTES: usize = 1 << 20;
pub const MAX_HANDSHAKE_VALUES: usize = 20_000;

/// A request of a server to us, such as a question to a person.
pub const MAX_SERVER_REQUEST_BYTES: usize = 256 << 10;
pub const MAX_SERVER_REQUEST_VALUES: usize = 10_000;

/// A notification of a server. Longer ones are passed over, as are those that nothing reads.
pub const MAX_NOTIFICATION_BYTES: usize = 64 << 10;
pub const MAX_NOTIFICATION_VALUES: usize = 1_000;

/// The body of an HTTP answer that refuses a request, and what a login server answers.
pub const MAX_REFUSAL_VALUES: usize = 1_000;
pub const MAX_LOGIN_ANSWER_VALUES: usize = 10_000;

/// JSON values in the definitions of one tool, and of all tools of one server. They stay in memory.
pub const MAX_TOOL_VALUES: usize = 10_000;
pub const MAX_LISTED_VALUES: usize = 200_000;

/// JSON values of a result's content that are kept beside the result itself, for transcripts.
pub const MAX_CONTENT_VALUES: usize = 10_000;

/// Work that the check of one call's arguments may take: so many steps for any input, so many more for each value in
/// it, and so many in all. About a step for each schema, property, item or literal looked at.
pub const ARGUMENT_CHECK_STEPS: usize = 100_000;
pub const ARGUMENT_CHECK_STEPS_PER_VALUE: usize = 1_000;
pub const MAX_ARGUMENT_CHECK_STEPS: usize = 4_000_000;

/// Steps that a schema may cost for one value of the input alone. A schema that asks for more is not enforced there.
pub const MAX_SCHEMA_STEPS_PER_VALUE: usize = 50_000;

/// Levels of schemas for one value, references followed among them; deeper ones are not enforced.
pub const MAX_SCHEMA_DEPTH: usize = 128;

/// Levels of schemas for a value and all values around it. Arguments that nest deeper are refused.
pub const MAX_ARGUMENT_CHECK_DEPTH: usize = 256;

/// Text that one check of arguments matches with simple regular expressions; an eighth of it with costly ones.
pub const MAX_MATCHED_BYTES: usize = 512 << 10;

/// Different regular expressions that one check of arguments uses.
pub const MAX_MATCHED_PATTERNS: usize = 256;

/// What one cell may use, already clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub timeout_ms: u64,
    pub max_wait_ms: u64,
    pub memory_bytes: u64,
    pub output_bytes: u64,
    pub snapshot_bytes: u64,
    pub pending_calls: u64,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        timeout_ms: TIMEOUT_MS.default,
        max_wait_ms: MAX_WAIT_MS.default,
        memory_bytes: MEMORY_LIMIT_BYTES.default,
        output_bytes: MAX_OUTPUT_BYTES.default,
        snapshot_bytes: MAX_SNAPSHOT_BYTES.default,
        pending_calls: MAX_PENDING_TOOL_CALLS.default,
    };

    pub fn clamped(self) -> Self {
        Self {
            timeout_ms: TIMEOUT_MS.clamp(self.timeout_ms),
            max_wait_ms: MAX_WAIT_MS.clamp(self.max_wait_ms),
            memory_bytes: MEMORY_LIMIT_BYTES.clamp(self.memory_bytes),
            output_bytes: MAX_OUTPUT_BYTES.clamp(self.output_bytes),
            snapshot_bytes: MAX_SNAPSHOT_BYTES.clamp(self.snapshot_bytes),
            pending_calls: MAX_PENDING_TOOL_CALLS.clamp(self.pending_calls),
        }
    }
}

/// What a thread of a host needs to walk a value as deep as one may be, unoptimised too: whoever runs us on threads of its
/// own gives them so much.
pub const HOST_STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::{
        MAX_JSON_VALUES, MAX_SERVER_DATA_BYTES, MAX_SERVER_MESSAGE_BYTES, PARSED_VALUE_BYTES, SMALL_MESSAGE_BYTES,
        SMALL_SERVER_DATA_BYTES, TINY_MESSAGE_BYTES,
    };

    #[test]
    fn the_largest_message_of_a_server_fits_the_budget_for_large_ones() {
        let largest = MAX_SERVER_MESSAGE_BYTES + MAX_JSON_VALUES * PARSED_VALUE_BYTES;
        assert!(largest <= MAX_SERVER_DATA_BYTES - SMALL_SERVER_DATA_BYTES, "{largest}");
        const { assert!(SMALL_MESSAGE_BYTES < SMALL_SERVER_DATA_BYTES && TINY_MESSAGE_BYTES < SMALL_MESSAGE_BYTES) };
    }
}
