//! Measures calls to healthy servers while others are killed during a call, one after the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use figures::Samples;

use crate::fleet::Fleet;
use crate::report::{Report, milliseconds};
use crate::server_tools::SERVERS;
use crate::victims::{KillResults, call_and_kill, call_only};
use crate::{Repetitions, Result, cells};
use figures::McpClient;

/// Servers that are killed in one round. Each round kills different ones.
const KILLED_PER_ROUND: usize = 4;

/// Number of concurrent cells that call healthy servers.
const LANES: usize = 2;

/// Minimum duration of a round, with or without kills.
const ROUND: Duration = Duration::from_secs(4);

pub(crate) fn run(fleet: &Fleet, repetitions: Repetitions, report: &mut Report) -> Result<()> {
    let client = fleet.serve(&fleet.new_state())?;
    cells::ask_all(&client)?;
    let (mut calm, mut falling) = (Lanes::default(), Lanes::default());
    let mut killed = KillResults::default();
    // Servers that are killed in any round are excluded from both sides.
    let healthy = repetitions.rounds * KILLED_PER_ROUND..SERVERS.len();
    for round in 0..repetitions.rounds {
        let victims = round * KILLED_PER_ROUND..(round + 1) * KILLED_PER_ROUND;
        calm.add(beside(&client, healthy.clone(), || {
            victims.clone().try_for_each(|victim| call_only(&client, fleet, victim))
        })?);
        falling.add(beside(&client, healthy.clone(), || {
            victims.clone().try_for_each(|victim| call_and_kill(&client, fleet, victim, &mut killed))
        })?);
    }
    client.end()?;
    print(report, &calm, &falling, &killed);
    Ok(())
}

fn print(report: &mut Report, calm: &Lanes, falling: &Lanes, killed: &KillResults) {
    report.heading("calls through cells to healthy servers, two at a time");
    report.times("without kills", &calm.took);
    report.times(&format!("while {} servers are killed during a call", killed.servers), &falling.took);
    report.line("calls to healthy servers that failed", &(calm.failed + falling.failed).to_string());
    report.times("next call of a killed server", &killed.back);
    let of = |part: usize, whole: usize| format!("{part} of {whole}");
    report.line("killed servers that answered their next call", &of(killed.came_back, killed.servers));
    report.line("interrupted calls of tools that only read: answered", &of(killed.reads_answered, killed.reads));
    report.line("interrupted calls of other tools: reported as failed", &of(killed.writes_reported, killed.writes));
    report
        .line("interrupted calls of other tools: received more than once", &of(killed.writes_repeated, killed.writes));
    report.fact("calm_p50_ms", calm.took.p50());
    report.fact("calm_p99_ms", calm.took.p99());
    report.fact("falling_p50_ms", falling.took.p50());
    report.fact("falling_p99_ms", falling.took.p99());
    report.fact("falling_p99_ratio", falling.took.p99() / calm.took.p99());
    report.fact("falling_p99_beyond_twice_ms", falling.took.p99() - 2.0 * calm.took.p99());
    report.fact("healthy_calls_failed", (calm.failed + falling.failed) as f64);
    report.fact("killed_servers", killed.servers as f64);
    report.fact("killed_servers_not_back", (killed.servers - killed.came_back) as f64);
    report.fact("back_p50_ms", killed.back.p50());
    report.fact("killed_reads_unanswered", (killed.reads - killed.reads_answered) as f64);
    report.fact("killed_writes_untold", (killed.writes - killed.writes_reported) as f64);
    report.fact("killed_writes_repeated", killed.writes_repeated as f64);
}

#[derive(Default)]
struct Lanes {
    took: Samples,
    failed: usize,
}

impl Lanes {
    fn add(&mut self, other: Self) {
        self.took.add(other.took);
        self.failed += other.failed;
    }
}

/// Calls the healthy servers in turn while `work` runs, but at least for [`ROUND`].
fn beside(client: &McpClient, healthy: std::ops::Range<usize>, mut work: impl FnMut() -> Result<()>) -> Result<Lanes> {
    let (over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lane = || {
        let mut lane = Lanes::default();
        while !over.load(Ordering::Relaxed) {
            let server = healthy.start + next.fetch_add(1, Ordering::Relaxed) % healthy.len();
            let began = Instant::now();
            match cells::ask_one(client, server) {
                Ok(_) => lane.took.push(milliseconds(began.elapsed())),
                Err(error) => {
                    eprintln!("bench-servers: a call to a healthy server failed: {error}");
                    lane.failed += 1;
                }
            }
        }
        lane
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let began = Instant::now();
        let result = work();
        std::thread::sleep(ROUND.saturating_sub(began.elapsed()));
        over.store(true, Ordering::Relaxed);
        let mut all = Lanes::default();
        for lane in lanes {
            all.add(lane.join().map_err(|_| "a lane panicked")?);
        }
        result.map(|()| all)
    })
}
