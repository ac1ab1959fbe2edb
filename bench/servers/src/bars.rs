//! The bars of this benchmark; `docs/internals/promises.md` describes them.

use figures::Bar::{AtLeast, AtMost};
use figures::Claim;

/// How much the p99 of calls to healthy servers may exceed twice that without kills: restarting a server starts two
/// processes that compete for the cores.
const SLACK_MS: f64 = 10.0;

/// How long a first cell waits for servers that have not been listed yet.
const WAIT_FOR_SERVERS_MS: f64 = 10_000.0;

/// Time until all processes are gone: if calls are under way, which get a second to end; and if none are.
const GONE_MS: f64 = 2_000.0;
const GONE_IDLE_MS: f64 = 500.0;

pub(crate) const BARS: [Claim; 24] = [
    ("first_cell_cold_ms", AtMost(5_000.0)),
    ("first_cell_remembered_ms", AtMost(300.0)),
    ("servers_started_uncalled", AtMost(0.0)),
    ("servers_started_by_one_call", AtMost(1.0)),
    ("first_cell_beside_hanging_ms", AtMost(WAIT_FOR_SERVERS_MS + 2_000.0)),
    ("next_cell_beside_hanging_ms", AtMost(500.0)),
    ("resident_listed_mib", AtMost(150.0)),
    ("resident_called_mib", AtMost(150.0)),
    ("resident_workers_called_mib", AtMost(150.0)),
    ("list_ratio", AtLeast(50.0)),
    ("falling_p99_beyond_twice_ms", AtMost(SLACK_MS)),
    ("healthy_calls_failed", AtMost(0.0)),
    ("killed_servers_not_back", AtMost(0.0)),
    ("killed_reads_unanswered", AtMost(0.0)),
    ("killed_writes_untold", AtMost(0.0)),
    ("killed_writes_repeated", AtMost(0.0)),
    ("idle_processes_left", AtMost(0.0)),
    ("idle_processes_after_call", AtMost(2.0)),
    ("gone_after_close_ms", AtMost(GONE_IDLE_MS)),
    ("gone_after_term_ms", AtMost(GONE_IDLE_MS)),
    ("gone_after_busy_term_ms", AtMost(GONE_MS)),
    ("gone_after_busy_kill_ms", AtMost(GONE_MS)),
    ("gone_after_early_term_ms", AtMost(GONE_MS)),
    ("gone_after_early_kill_ms", AtMost(GONE_MS)),
];
