//! Every limit of cells, runs, servers and stores, with default and range where it can be configured.

use std::ops::RangeInclusive;

/// A configurable number with its key, default and range.
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

    /// Moves a number into the range.
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

/// The value is also limited by the `maxSearchLimit` of the same object.
pub const SEARCH_DEFAULT_LIMIT: Bound = Bound::new("searchDefaultLimit", 8, 1..=50);

/// Live runs in one store. The upper end is a million, which is some gigabytes of suspended cells.
pub const MAX_LIVE_RUNS: Bound = Bound::new("maxLiveRuns", 10_000, 1..=1_000_000);

/// How long ended runs are kept: a week by default, ten years at most.
pub const KEEP_RUNS_SECONDS: Bound = Bound::new("keepRunsSeconds", 7 * 86_400, 60..=315_360_000);

/// How long transcripts are kept: 30 days by default, ten years at most.
pub const KEEP_TRANSCRIPTS_SECONDS: Bound = Bound::new("keepTranscriptsSeconds", 30 * 86_400, 60..=315_360_000);

/// Suspended runs that one agent may have at once. This and the next two are keys of `store.perPrincipal`.
pub const MAX_WAITING_RUNS: Bound = Bound::new("maxWaitingRuns", 10_000, 1..=1_000_000);
pub const MAX_STORED_BYTES: Bound = Bound::new("maxStoredBytes", 1 << 30, (1 << 20)..=(1 << 40));
pub const MAX_OPEN_APPROVALS: Bound = Bound::new("maxOpenApprovals", 500, 1..=100_000);

/// How long a model provider may send nothing. A key of `models.providers.<id>`.
pub const PROVIDER_TIMEOUT_SECONDS: Bound = Bound::new("timeoutSeconds", 300, 1..=3_600);

/// Requests to models in one turn of an agent. A key of an agent, also as `maxTurns`.
pub const MAX_MODEL_CALLS: Bound = Bound::new("maxModelCalls", 32, 1..=256);
pub const MAX_TURNS: Bound = Bound::new("maxTurns", MAX_MODEL_CALLS.default, 1..=256);

/// How long a request is held open while its turn waits. This and the next five are keys of `gateway`.
pub const HOLD_SECONDS: Bound = Bound::new("holdSeconds", 240, 1..=3_600);
pub const CLIENT_TOOL_TTL_SECONDS: Bound = Bound::new("clientToolTtlSeconds", 86_400, 60..=604_800);
pub const CLIENT_TOOL_WAIT_MS: Bound = Bound::new("clientToolWaitMs", 250, 0..=60_000);
pub const KEEP_ALIVE_SECONDS: Bound = Bound::new("keepAliveSeconds", 10, 1..=300);
pub const ABANDONED_SECONDS: Bound = Bound::new("abandonedSeconds", 30, 0..=3_600);
pub const MAX_CONCURRENT_TURNS: Bound = Bound::new("maxConcurrentTurns", 256, 1..=65_536);

/// All keys of `gateway`.
pub const GATEWAY_NUMBERS: [&Bound; 6] = [
    &HOLD_SECONDS,
    &CLIENT_TOOL_TTL_SECONDS,
    &CLIENT_TOOL_WAIT_MS,
    &KEEP_ALIVE_SECONDS,
    &ABANDONED_SECONDS,
    &MAX_CONCURRENT_TURNS,
];

/// Turns that have ended before people decided about their calls, and whose calls one process continues afterwards. The
/// calls of further ones continue with the next message of their conversation.
pub const MAX_FOLLOWED_TURNS: usize = 512;

/// Messages of other processes that wait for a turn.
pub const MAX_TURN_MESSAGES: usize = 64;

/// Days for which the usage of models is kept.
pub const MODEL_USAGE_DAYS: i64 = 400;

/// Bytes of an agent's instructions.
pub const MAX_INSTRUCTION_BYTES: usize = 256 << 10;

/// Models that an agent may fall back to.
pub const MAX_FALLBACK_MODELS: usize = 8;

/// Standing approvals of one agent that are in force at once. At the limit a call can still be approved once.
pub const MAX_STANDING_RULES: usize = 500;

/// Characters of a call's arguments in an approval form.
pub const MAX_FORM_ARGUMENT_CHARS: usize = 2_000;

/// Calls that one approval form lists. Further ones are asked about when these are decided.
pub const MAX_FORM_CALLS: usize = 16;

/// Characters of the arguments of all calls in a form that lists several.
pub const MAX_FORM_BATCH_CHARS: usize = 4_000;

/// Characters of a call's arguments beside a question on a terminal: about two screens.
pub const MAX_TERMINAL_ARGUMENT_CHARS: usize = 4_000;

/// Characters of a call's arguments in a line of `cellmate approvals list`.
pub const MAX_LISTED_ARGUMENT_CHARS: usize = 160;

/// Timeout of a Tool Search cell. This and the next are keys of `tools.toolSearch`.
pub const TOOL_SEARCH_CODE_TIMEOUT_MS: Bound = Bound::new("codeTimeoutMs", 10_000, 1_000..=60_000);
pub const TOOL_SEARCH_MAX_SEARCH_LIMIT: Bound = Bound::new("maxSearchLimit", 20, 1..=50);

/// Bytes of one pattern of an allow or deny list. With this limit, the time of a match depends only on the text.
pub const MAX_PATTERN_BYTES: usize = 256;

/// Calls that one cell may have outstanding, including queued ones. Past it a call rejects at once.
pub const MAX_OUTSTANDING_CALLS: usize = 1024;

/// Bytes of a cell's source text.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;

/// Bytes of one JSON value that crosses the bridge, in either direction.
pub const MAX_BRIDGE_VALUE_BYTES: usize = 16 << 20;

/// How deep a value that crosses the bridge may nest. Guest and host walk values recursively; the stacks of both
/// suffice.
pub const MAX_BRIDGE_VALUE_DEPTH: usize = 1000;

/// JSON values in one text that is parsed: scalars, keys, arrays and objects. A parsed value takes far more memory than
/// its text (`[0]` is 3 bytes and about 100 parsed), so the number is checked with a linear scan before parsing.
pub const MAX_JSON_VALUES: usize = 200_000;

/// Bytes of the target of a bridge call: a tool id or a namespace path. Real ids have at most 200 bytes.
pub const MAX_TARGET_BYTES: usize = 1 << 10;

/// Bytes of the payload of a call that the catalog answers: a search query, or the options of `$api`.
pub const MAX_QUERY_BYTES: usize = 64 << 10;

/// Targets and payloads of the calls that one cell has outstanding, in bytes. Far below `frame::MAX_FRAME_BYTES`, so a
/// leg that stays within it always fits into a frame. Past it a call rejects with `value_too_large`.
pub const MAX_OUTSTANDING_BYTES: usize = 32 << 20;

/// Bytes of JSON that a cell passes to `URL` in one call. A parsed URL takes up to sixteen times its length.
pub const MAX_URL_BYTES: usize = 1 << 20;

/// Calls of one run, timers included, from its start to its end. Each is a row of the run's journal. Past it a call
/// rejects; a run that sets a timer or yields, which cannot reject, fails.
pub const MAX_RUN_CALLS: usize = 100_000;

/// Calls of one run that are refused because its journal is full. Past it the run fails: it does not stop calling.
pub const MAX_REFUSED_CALLS: usize = 1024;

/// Bytes of targets, payloads and replies in the journal of one run, including their transcript entries. Past it a call
/// rejects.
pub const MAX_JOURNAL_BYTES: usize = 64 << 20;

/// Bytes that a journal row counts for in addition to its texts.
pub const JOURNAL_ROW_BYTES: usize = 512;

/// Bytes of payloads and replies of unfinished calls that one host process keeps in memory, over all runs. Past it a
/// call rejects with an error that the cell can catch.
pub const MAX_HOST_DATA_BYTES: usize = 96 << 20;

/// Bytes of a run's output and value that are stored because they exceed `maxOutputBytes`, from its start to its end.
/// Past it the cell fails with `output_limit_exceeded`.
pub const MAX_STORED_OUTPUT_BYTES: Bound = Bound::new("maxStoredOutputBytes", 16 << 20, (64 << 10)..=(64 << 20));

/// Bytes of one tool result that is stored because it exceeds [`MAX_BRIDGE_VALUE_BYTES`], and of all of them in a run.
pub const MAX_STORED_RESULT_BYTES: usize = 64 << 20;
pub const MAX_RUN_STORED_RESULT_BYTES: usize = 256 << 20;

/// Bytes in one piece of a stored output. The store reads and writes outputs piece by piece.
pub const OUTPUT_PIECE_BYTES: usize = 256 << 10;

/// Stored outputs of one run, and those that `output.list()` returns.
pub const MAX_RUN_OUTPUTS: usize = 1_000;
pub const MAX_LISTED_OUTPUTS: usize = 100;

/// Characters, as JavaScript counts them, that `output.read` returns if the call does not say, and at most.
pub const DEFAULT_PAGE_UNITS: usize = 64 << 10;
pub const MAX_PAGE_UNITS: usize = 4 << 20;

/// Lines that `output.lines` returns, and matches that `output.grep` returns, if the call does not say and at most.
pub const DEFAULT_PAGE_LINES: usize = 100;
pub const MAX_PAGE_LINES: usize = 10_000;

/// Images and sounds in one result, and bytes of their data together.
pub const MAX_MEDIA_BLOCKS: Bound = Bound::new("maxMediaBlocks", 8, 0..=64);
pub const MAX_MEDIA_BYTES: Bound = Bound::new("maxMediaBytes", 5 << 20, 0..=(32 << 20));

/// Images and sounds that a cell outputs in one leg, and bytes of their data, which are also at most
/// `maxStoredOutputBytes`. Past it `image` and `audio` throw an error that the cell can catch.
pub const MAX_LEG_MEDIA_BLOCKS: usize = 256;
pub const MAX_LEG_MEDIA_BYTES: usize = 64 << 20;

/// Bytes of a key and of a value of a session, values of a session, and bytes of all of them.
pub const MAX_STATE_KEY_BYTES: usize = 256;
pub const MAX_STATE_VALUE_BYTES: usize = 1 << 20;
pub const MAX_STATE_KEYS: usize = 256;
pub const MAX_STATE_BYTES: usize = 16 << 20;

/// Bytes of a stored output that one `resources/read` returns, reads that one process answers at once, and outputs in one
/// page of `resources/list`. Further reads wait.
pub const MAX_RESOURCE_READ_BYTES: u64 = 4 << 20;
pub const MAX_RESOURCE_READS: usize = 4;
pub const MAX_PAGE_RESOURCES: usize = 50;

/// Links to stored outputs in one MCP result. The text names all of them.
pub const MAX_RESULT_LINKS: usize = 8;

/// Steps and bytes of one stored turn of the gateway: its steps, deliveries, responses and transcript entries. Past either
/// a change is refused. A change that ends the turn may exceed them by the numbers below, so that a full turn can end.
pub const MAX_TURN_STEPS: usize = 4_096;
pub const MAX_TURN_BYTES: usize = 64 << 20;
pub const TURN_END_STEPS: usize = 8;
pub const TURN_END_BYTES: usize = 256 << 10;

/// Calls that one turn delivers to its client, from its start to its end.
pub const MAX_TURN_DELIVERIES: usize = 2_048;

/// Turns of one principal that wait for clients or people at once. Commits at the same moment may exceed it by their
/// number.
pub const MAX_OPEN_TURNS: usize = 10_000;

/// Bytes of one response that is stored for retrieval and replay.
pub const MAX_STORED_RESPONSE_BYTES: usize = 32 << 20;

/// Bytes of output that reached no client and that one process keeps for the next answers of its runs.
pub const MAX_UNDELIVERED_BYTES: usize = 32 << 20;

/// Calls that the `effects` of a failed result list.
pub const MAX_LISTED_EFFECTS: usize = 100;

/// Bytes of a stored snapshot that the driver of a suspended run also keeps in memory. A larger one is read from the
/// store again when the cell continues.
pub const MAX_KEPT_SNAPSHOT_BYTES: usize = 64 << 10;

/// Bytes of heap for all running cells of one worker, unless one cell alone is configured for more. The pool starts a
/// leg only if the `memoryLimitBytes` of all running cells fit.
pub const WORKER_HEAP_BYTES: u64 = 320 << 20;

/// Legs and freezes that one worker runs at once. There is about one worker per core, so few of them share a core.
pub const MAX_WORKER_TURNS: usize = 4;

/// New cells of one principal that wait for a worker, and the bytes of their sources together. Past either, `exec`
/// fails with `runtime_unavailable`.
pub const MAX_QUEUED_CELLS: usize = 1024;
pub const MAX_QUEUED_SOURCE_BYTES: usize = 32 << 20;

/// Bytes of one configuration file. It may also have at most [`MAX_JSON_VALUES`] values.
pub const MAX_CONFIG_FILE_BYTES: usize = 1 << 20;

/// A file that the user named, or another client's file in the user's own folder: `~/.claude.json` also holds that
/// client's history and can be large.
pub const MAX_USER_FILE_BYTES: usize = 16 << 20;

/// The log file of `cellmate mcp`; one older file of the same size is kept. A longer event is replaced by a note.
pub const MAX_LOG_FILE_BYTES: u64 = 8 << 20;
pub const MAX_LOG_LINE_BYTES: usize = 64 << 10;

/// Servers in one configuration file; later entries are ignored.
pub const MAX_CONFIG_ENTRIES: usize = 512;

/// Patterns in the `tools.deny` of a project's configuration file.
pub const MAX_PROJECT_DENY_PATTERNS: usize = 1_000;

/// Bytes of an error message for the model.
pub const MAX_ERROR_BYTES: usize = 8 << 10;

/// Bytes of the tables of one catalog.
pub const MAX_CATALOG_BYTES: usize = 64 << 20;

/// Bytes, and number, of the catalogs that one worker holds.
pub const MAX_WORKER_CATALOG_BYTES: usize = 256 << 20;
pub const MAX_WORKER_CATALOGS: usize = 64;

/// Bytes of a generated identifier: the server or method in `MCP.<server>.<method>`, or a namespace's global.
pub const MAX_IDENTIFIER_BYTES: usize = 64;

/// Namespaces of one registry. Each is a global of every cell that sees it.
pub const MAX_NAMESPACES: usize = 64;

/// Depth, number of values, and bytes of names and texts of one namespace.
pub const MAX_NAMESPACE_DEPTH: usize = 16;
pub const MAX_NAMESPACE_VALUES: usize = 2048;
pub const MAX_NAMESPACE_BYTES: usize = 64 << 10;

/// Plugins that one user has installed.
pub const MAX_PLUGINS: usize = 64;

/// Files, folders included, and their bytes in the folder of one plugin.
pub const MAX_PLUGIN_FILES: usize = 2_000;
pub const MAX_PLUGIN_BYTES: usize = 64 << 20;

/// Versions of one plugin that are kept, so that it can be rolled back.
pub const MAX_PLUGIN_VERSIONS: usize = 5;

/// Bytes, JSON values and depth of a plugin's manifest.
pub const MAX_MANIFEST_BYTES: usize = 512 << 10;
pub const MAX_MANIFEST_VALUES: usize = 20_000;
pub const MAX_MANIFEST_DEPTH: usize = 64;

/// Tools, namespaces, and patterns of one hook, in a plugin's manifest.
pub const MAX_PLUGIN_TOOLS: usize = 128;
pub const MAX_PLUGIN_NAMESPACES: usize = 16;
pub const MAX_HOOK_PATTERNS: usize = 64;

/// Requests that one plugin has to answer at once; further ones wait.
pub const MAX_PLUGIN_REQUESTS: usize = 64;

/// Bytes of a result that an `after_tool_call` hook receives; a larger one is replaced by its size.
pub const MAX_HOOKED_RESULT_BYTES: usize = 1 << 20;

/// Scopes of namespaces that one plugin created and that are kept.
pub const MAX_PLUGIN_SCOPES: usize = 256;

/// Bytes of one plugin's value of `plugins.entries.<id>.config`.
pub const MAX_PLUGIN_CONFIG_BYTES: usize = 256 << 10;

/// Milliseconds that a plugin's tool may take. The manifest sets it; progress does not extend it.
pub const PLUGIN_CALL_TIMEOUT_MS: Bound = Bound::new("timeoutMs", 60_000, 100..=600_000);

/// Milliseconds that a plugin's hook may take, its start included. Below the time after which a hook denies the call
/// without a reason.
pub const PLUGIN_HOOK_TIMEOUT_MS: Bound = Bound::new("timeoutMs", 4_000, 50..=4_500);

/// UTF-16 code units, as JavaScript clients count, of the description of `exec`. Claude Code cuts a description after
/// 2,048. Characters are never more than code units.
pub const MAX_EXEC_DESCRIPTION_UNITS: usize = 1_900;

/// UTF-16 code units of the description of `wait`.
pub const MAX_WAIT_DESCRIPTION_UNITS: usize = 900;

/// Characters of the text that a cell passes to `yield_control`; the model receives it in the result.
pub const MAX_YIELD_REASON_CHARS: usize = 500;

/// Bytes of a tool's description in a Tool Search result.
pub const MAX_COMPACT_DESCRIPTION_BYTES: usize = 1 << 10;

/// Bytes of the description of a tool that the model sees directly.
pub const MAX_TOOL_DESCRIPTION_BYTES: usize = 16 << 10;

/// The largest catalog that `--surface auto` shows directly: its tools, and the bytes of their names, descriptions and
/// schemas. That is about twice the size of `exec` and `wait`, and saves the model a cell for each call.
pub const MAX_AUTO_DIRECT_TOOLS: usize = 12;
pub const MAX_AUTO_DIRECT_BYTES: usize = 8 << 10;

/// The most tools, and bytes of their definitions, that `cellmate mcp` shows directly. A larger catalog is refused.
pub const MAX_DIRECT_TOOLS: usize = 1_000;
pub const MAX_DIRECT_BYTES: usize = 4 << 20;

/// Tools, and bytes of their definitions, in one answer to `tools/list`. The others are on further pages. A definition
/// that is larger has a page of its own.
pub const MAX_PAGE_TOOLS: usize = 250;
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// Bytes of the answer of a Tool Search tool over MCP. A longer one is cut and says so; a cell's own limit is lower.
pub const MAX_CONTROL_ANSWER_BYTES: usize = 256 << 10;

/// Bytes of messages from all MCP servers, as text and parsed, that one host process holds before their calls take them
/// over. A message that does not fit waits.
pub const MAX_SERVER_DATA_BYTES: usize = 104 << 20;

/// The part of [`MAX_SERVER_DATA_BYTES`] that is reserved for small messages, so that large ones do not delay them.
pub const SMALL_SERVER_DATA_BYTES: usize = 24 << 20;

/// The largest message that counts as small, and the largest that is not counted at all.
pub const SMALL_MESSAGE_BYTES: usize = 1 << 20;
pub const TINY_MESSAGE_BYTES: usize = 16 << 10;

/// How long a message from a server waits to be parsed, in seconds. Then its call fails.
pub const MAX_SERVER_DATA_WAIT_SECONDS: u64 = 10;

/// An upper bound on the memory of a parsed JSON value: `{"a":{"a":…}}` takes 300 bytes for each key and object.
pub const PARSED_VALUE_BYTES: usize = 320;

/// Bytes of one message from an MCP server.
pub const MAX_SERVER_MESSAGE_BYTES: usize = 8 << 20;

/// Bytes of a response to a tool call that is longer than [`MAX_SERVER_MESSAGE_BYTES`] because of long texts in it. The
/// texts are decoded into a file while the response is read. A text of [`MAX_STORED_RESULT_BYTES`] fits even if every
/// other byte of it is escaped. Other messages of servers, and all messages of plugins, must not be longer than
/// [`MAX_SERVER_MESSAGE_BYTES`].
pub const MAX_LARGE_MESSAGE_BYTES: usize = 160 << 20;

/// Bytes of the shortest text that is taken out of such a response. What is left of the response is parsed, and must
/// not be longer than [`MAX_SERVER_MESSAGE_BYTES`].
pub const LARGE_TEXT_BYTES: usize = 256 << 10;

/// Bytes of the texts of such responses that one host process keeps in temporary files until they are stored: four
/// times [`MAX_STORED_RESULT_BYTES`]. A response that does not fit waits, and then its call fails.
pub const MAX_SPOOL_BYTES: usize = 256 << 20;

/// How long such a response waits for its part of [`MAX_SPOOL_BYTES`], and how long its server may take to send the
/// rest of it, in seconds. Then its call fails.
pub const MAX_SPOOL_WAIT_SECONDS: u64 = 30;
pub const MAX_LARGE_MESSAGE_SECONDS: u64 = 120;

/// Characters of a stored result's beginning that the cell receives in its place.
pub const STORED_RESULT_FIRST_CHARS: usize = 500;

/// How deep a message from an MCP server may nest: the limit of the parser of such messages.
pub const MAX_SERVER_MESSAGE_DEPTH: usize = 127;

/// Bytes, and JSON values, of a server's handshake answer. The protocol library keeps it as long as the connection.
pub const MAX_HANDSHAKE_BYTES: usize = 1 << 20;
pub const MAX_HANDSHAKE_VALUES: usize = 20_000;

/// Bytes, and JSON values, of a server's request to Cellmate, such as a question to a person.
pub const MAX_SERVER_REQUEST_BYTES: usize = 256 << 10;
pub const MAX_SERVER_REQUEST_VALUES: usize = 10_000;

/// Bytes, and JSON values, of a server's notification. Larger ones are ignored, as are those that nothing handles.
pub const MAX_NOTIFICATION_BYTES: usize = 64 << 10;
pub const MAX_NOTIFICATION_VALUES: usize = 1_000;

/// JSON values in the body of an HTTP error response.
pub const MAX_REFUSAL_VALUES: usize = 1_000;

/// JSON values in a response of a login server.
pub const MAX_LOGIN_ANSWER_VALUES: usize = 10_000;

/// JSON values in the definition of one tool, which stays in memory.
pub const MAX_TOOL_VALUES: usize = 10_000;

/// JSON values in the definitions of all tools of one server, which stay in memory.
pub const MAX_LISTED_VALUES: usize = 200_000;

/// JSON values of a result's content that are kept in addition to the result, for transcripts.
pub const MAX_CONTENT_VALUES: usize = 10_000;

/// Steps that the check of one call's arguments may take for any input. A step is about one schema, property, item or
/// literal.
pub const ARGUMENT_CHECK_STEPS: usize = 100_000;

/// Additional steps for each value of the input.
pub const ARGUMENT_CHECK_STEPS_PER_VALUE: usize = 1_000;

/// The most steps for any input, however many values it has.
pub const MAX_ARGUMENT_CHECK_STEPS: usize = 4_000_000;

/// Steps that a schema may take for a single value of the input. A schema that needs more is not enforced for it.
pub const MAX_SCHEMA_STEPS_PER_VALUE: usize = 50_000;

/// Levels of schemas for one value, including followed references. Deeper schemas are not enforced.
pub const MAX_SCHEMA_DEPTH: usize = 128;

/// Levels of schemas for a value and all values around it. Arguments that nest deeper are rejected.
pub const MAX_ARGUMENT_CHECK_DEPTH: usize = 256;

/// Bytes of text that one check of arguments matches with simple regular expressions; an eighth of it with costly ones.
pub const MAX_MATCHED_BYTES: usize = 512 << 10;

/// Different regular expressions that one check of arguments uses.
pub const MAX_MATCHED_PATTERNS: usize = 256;

/// Folders in `tools.fs.roots`.
pub const MAX_FILE_ROOTS: usize = 32;

/// Bytes of a path in a call of a file tool, which is the limit of Linux, and folders inside each other in it. The
/// process may hold one descriptor for each folder of a path.
pub const MAX_FILE_PATH_BYTES: usize = 4_096;
pub const MAX_FILE_PATH_DEPTH: usize = 256;

/// Calls of file tools that one process executes at once. Others wait.
pub const MAX_FILE_CALLS: usize = 16;

/// Bytes of text that one `read` returns to a cell.
pub const MAX_READ_BYTES: usize = 2 << 20;

/// Bytes that one `read` goes through to find its lines and to count them. Lines after that are not counted.
pub const MAX_READ_SCAN_BYTES: u64 = 256 << 20;

/// Bytes of an image that `read` returns.
pub const MAX_IMAGE_BYTES: usize = 3 << 20;

/// Bytes, and lines, of the text block that a model sees of a file tool's result. Cells receive the details instead.
pub const MAX_FILE_TEXT_BYTES: usize = 50 << 10;
pub const MAX_FILE_TEXT_LINES: usize = 2_000;

/// Bytes of a file that `edit` and `apply_patch` change, before and after.
pub const MAX_EDITED_FILE_BYTES: usize = 8 << 20;

/// Lines of a file that `apply_patch` changes, because each takes memory of its own.
pub const MAX_EDITED_LINES: usize = 500_000;

/// Replacements in one `edit`.
pub const MAX_EDITS: usize = 200;

/// Bytes of the difference that `edit` returns.
pub const MAX_DIFF_BYTES: usize = 20 << 10;

/// Lines that are compared to find the places of a file's hunks.
pub const MAX_PATCH_STEPS: usize = 100_000_000;

/// Bytes and lines of a patch, and files in it.
pub const MAX_PATCH_BYTES: usize = 4 << 20;
pub const MAX_PATCH_LINES: usize = 200_000;
pub const MAX_PATCH_FILES: usize = 100;

/// Bytes of all files that a patch changes, before and after together.
pub const MAX_PATCHED_BYTES: usize = 64 << 20;

/// Entries that `ls` returns if `limit` is not given, and at most.
pub const LS_LIMIT: Bound = Bound::new("limit", 500, 1..=10_000);

/// Paths that `find` returns if `limit` is not given, and at most.
pub const FIND_LIMIT: Bound = Bound::new("limit", 1_000, 1..=20_000);

/// Matches that `grep` returns if `limit` is not given, and at most.
pub const GREP_LIMIT: Bound = Bound::new("limit", 100, 1..=10_000);

/// Lines around a match that `grep` returns.
pub const GREP_CONTEXT: Bound = Bound::new("context", 0, 0..=20);

/// Characters of one line in the result of `grep`; bytes of its pattern; bytes of a glob.
pub const MAX_GREP_LINE_CHARS: usize = 500;
pub const MAX_GREP_PATTERN_BYTES: usize = 4 << 10;
pub const MAX_GLOB_BYTES: usize = 1 << 10;

/// Bytes of a file that `grep` searches; larger files are skipped and counted.
pub const MAX_GREP_FILE_BYTES: u64 = 256 << 20;

/// Bytes of one line that `grep` holds; a file with a longer line is skipped and counted.
pub const MAX_GREP_LINE_BYTES: usize = 1 << 20;

/// Entries that one `ls`, `find` or `grep` looks at, and how deep it descends.
pub const MAX_VISITED_ENTRIES: usize = 500_000;
pub const MAX_WALK_DEPTH: usize = 128;

/// Milliseconds that one `find` or `grep` takes. What was found until then is returned.
pub const MAX_WALK_MS: u64 = 20_000;

/// Bytes of paths and lines that one `ls`, `find` or `grep` returns.
pub const MAX_WALK_RESULT_BYTES: usize = 1 << 20;

/// Bytes of an ignore file, such as `.gitignore`; a larger one is not applied.
pub const MAX_IGNORE_FILE_BYTES: usize = 256 << 10;

/// Seconds that a shell command may take.
pub const SHELL_TIMEOUT_SECONDS: Bound = Bound::new("timeout", 1_800, 1..=7_200);

/// Bytes of a shell command. Linux allows 128 KiB for one argument.
pub const MAX_SHELL_COMMAND_BYTES: usize = 64 << 10;

/// Variables that a call of the shell sets, and the bytes of their names and values together.
pub const MAX_SHELL_VARIABLES: usize = 64;
pub const MAX_SHELL_VARIABLE_BYTES: usize = 64 << 10;

/// Bytes of each of a command's two output streams that are kept: half from its start, half from its end.
pub const MAX_SHELL_OUTPUT_BYTES: usize = 256 << 10;

/// Commands that one process runs at once, and those that wait for that. So the output of all commands together takes at
/// most 4 MiB of memory.
pub const MAX_SHELL_COMMANDS: usize = 8;
pub const MAX_QUEUED_SHELL_COMMANDS: usize = 64;

/// Processes of one command. With more it is ended.
pub const MAX_SHELL_PROCESSES: usize = 512;

/// Bytes of one file that a command writes, and open files of each of its processes.
pub const MAX_SHELL_FILE_BYTES: u64 = 4 << 30;
pub const MAX_SHELL_OPEN_FILES: u64 = 4_096;

/// Progress updates of one command, the milliseconds between two, and the characters of one.
pub const MAX_SHELL_UPDATES: usize = 1_000;
pub const SHELL_UPDATE_INTERVAL_MS: u64 = 500;
pub const MAX_SHELL_UPDATE_CHARS: usize = 200;

/// Folders in `tools.exec.readable`.
pub const MAX_SHELL_READABLE: usize = 64;

/// Characters that `web_fetch` returns if `maxChars` is not given, and at most.
pub const FETCH_CHARS: Bound = Bound::new("maxChars", 50_000, 100..=1_000_000);

/// Addresses of one name that an HTTP client considers.
pub const MAX_ADDRESSES: usize = 16;

/// Bytes of a URL, and redirects that are followed.
pub const MAX_FETCH_URL_BYTES: usize = 8 << 10;
pub const MAX_FETCH_REDIRECTS: usize = 5;

/// Bytes of a response before and after decompression. What is longer is cut.
pub const MAX_FETCH_WIRE_BYTES: usize = 4 << 20;
pub const MAX_FETCH_BYTES: usize = 4 << 20;

/// Headers of a response. The HTTP library limits their bytes to about 400 KiB.
pub const MAX_FETCH_HEADERS: usize = 100;

/// Seconds that a fetch may take, with all its redirects.
pub const MAX_FETCH_SECONDS: u64 = 30;

/// Fetches that one process makes at once, and starts within a minute. Others wait, or fail.
pub const MAX_FETCHES: usize = 8;
pub const MAX_FETCHES_PER_MINUTE: usize = 240;

/// Hosts in `tools.web.fetch.allowPrivate`.
pub const MAX_PRIVATE_HOSTS: usize = 64;

/// The limits of one cell, already clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub timeout_ms: u64,
    pub max_wait_ms: u64,
    pub memory_bytes: u64,
    /// Bytes of output and value that one result shows.
    pub output_bytes: u64,
    pub snapshot_bytes: u64,
    pub pending_calls: u64,
    /// Bytes of output and value that are stored because results do not show them, of the whole run.
    pub stored_output_bytes: u64,
    /// Images and sounds that one result shows, and bytes of their data.
    pub media_blocks: u64,
    pub media_bytes: u64,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        timeout_ms: TIMEOUT_MS.default,
        max_wait_ms: MAX_WAIT_MS.default,
        memory_bytes: MEMORY_LIMIT_BYTES.default,
        output_bytes: MAX_OUTPUT_BYTES.default,
        snapshot_bytes: MAX_SNAPSHOT_BYTES.default,
        pending_calls: MAX_PENDING_TOOL_CALLS.default,
        stored_output_bytes: MAX_STORED_OUTPUT_BYTES.default,
        media_blocks: MAX_MEDIA_BLOCKS.default,
        media_bytes: MAX_MEDIA_BYTES.default,
    };

    pub fn clamped(self) -> Self {
        Self {
            timeout_ms: TIMEOUT_MS.clamp(self.timeout_ms),
            max_wait_ms: MAX_WAIT_MS.clamp(self.max_wait_ms),
            memory_bytes: MEMORY_LIMIT_BYTES.clamp(self.memory_bytes),
            output_bytes: MAX_OUTPUT_BYTES.clamp(self.output_bytes),
            snapshot_bytes: MAX_SNAPSHOT_BYTES.clamp(self.snapshot_bytes),
            pending_calls: MAX_PENDING_TOOL_CALLS.clamp(self.pending_calls),
            stored_output_bytes: MAX_STORED_OUTPUT_BYTES.clamp(self.stored_output_bytes),
            media_blocks: MAX_MEDIA_BLOCKS.clamp(self.media_blocks),
            media_bytes: MAX_MEDIA_BYTES.clamp(self.media_bytes),
        }
    }

    /// Returns the bytes that a cell may output in a turn if its run has stored this many bytes of output before. A turn
    /// may always output what one result shows.
    pub fn output_budget(&self, stored_bytes: u64) -> u64 {
        self.stored_output_bytes.saturating_sub(stored_bytes).max(self.output_bytes)
    }
}

/// The stack that a host thread needs to walk a value of the maximum depth, also in an unoptimised build. A program
/// that runs Cellmate on its own threads must give them this much.
pub const HOST_STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::{
        LARGE_TEXT_BYTES, MAX_BRIDGE_VALUE_BYTES, MAX_JSON_VALUES, MAX_LARGE_MESSAGE_BYTES,
        MAX_RUN_STORED_RESULT_BYTES, MAX_SERVER_DATA_BYTES, MAX_SERVER_MESSAGE_BYTES, MAX_SPOOL_BYTES,
        MAX_STORED_RESULT_BYTES, PARSED_VALUE_BYTES, SMALL_MESSAGE_BYTES, SMALL_SERVER_DATA_BYTES, TINY_MESSAGE_BYTES,
    };

    #[test]
    fn four_of_the_largest_results_fit_the_files_of_a_process_and_what_one_run_stores() {
        const {
            assert!(4 * MAX_STORED_RESULT_BYTES <= MAX_SPOOL_BYTES);
            assert!(4 * MAX_STORED_RESULT_BYTES <= MAX_RUN_STORED_RESULT_BYTES);
            assert!(2 * MAX_STORED_RESULT_BYTES + MAX_SERVER_MESSAGE_BYTES <= MAX_LARGE_MESSAGE_BYTES);
            assert!(LARGE_TEXT_BYTES < MAX_SERVER_MESSAGE_BYTES);
            // A text that the cell receives whole, with its message, fits the budget for large messages.
            assert!(MAX_BRIDGE_VALUE_BYTES <= MAX_SERVER_DATA_BYTES - SMALL_SERVER_DATA_BYTES);
        }
    }

    #[test]
    fn the_largest_server_message_fits_the_budget_for_large_messages() {
        let largest = MAX_SERVER_MESSAGE_BYTES + MAX_JSON_VALUES * PARSED_VALUE_BYTES;
        assert!(largest <= MAX_SERVER_DATA_BYTES - SMALL_SERVER_DATA_BYTES, "{largest}");
        const { assert!(SMALL_MESSAGE_BYTES < SMALL_SERVER_DATA_BYTES && TINY_MESSAGE_BYTES < SMALL_MESSAGE_BYTES) };
    }
}
