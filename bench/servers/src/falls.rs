//! Calls to healthy servers while others are killed in the middle of a call, one after the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use figures::Samples;

use crate::client::Client;
use crate::fleet::Fleet;
use crate::offer::SERVERS;
use crate::report::{Report, milliseconds};
use crate::victims::{Fallen, fall, work};
use crate::{Result, Times, cells};

/// Servers that are killed in one round. Each is killed once: rounds take others.
const KILLED_A_ROUND: usize = 4;

/// Cells that call healthy servers at one time.
const LANES: usize = 2;

/// How long a round lasts at least, with or without falls.
const ROUND: Duration = Duration::from_secs(4);

pub(crate) fn run(fleet: &Fleet, times: Times, report: &mut Report) -> Result<()> {
    let client = fleet.serve(&fleet.new_state())?;
    cells::ask_all(&client)?;
    let (mut calm, mut falling) = (Lanes::default(), Lanes::default());
    let mut fallen = Fallen::default();
    // All that are ever killed are left out of both sides from the beginning.
    let healthy = times.rounds * KILLED_A_ROUND..SERVERS.len();
    for round in 0..times.rounds {
        let victims = round * KILLED_A_ROUND..(round + 1) * KILLED_A_ROUND;
        calm.add(beside(&client, healthy.clone(), || {
            victims.clone().try_for_each(|victim| work(&client, fleet, victim))
        })?);
        falling.add(beside(&client, healthy.clone(), || {
            victims.clone().try_for_each(|victim| fall(&client, fleet, victim, &mut fallen))
        })?);
    }
    client.end()?;
    told(report, &calm, &falling, &fallen);
    Ok(())
}

fn told(report: &mut Report, calm: &Lanes, falling: &Lanes, fallen: &Fallen) {
    report.heading("calls through cells to healthy servers, two at a time");
    report.times("while nothing fails", &calm.took);
    report.times(&format!("while {} servers are killed in the middle of a call", fallen.killed), &falling.took);
    report.line("healthy calls that failed", &(calm.failed + falling.failed).to_string());
    report.times("a killed server's next call", &fallen.back);
    let of = |part: usize, whole: usize| format!("{part} of {whole}");
    report.line("killed servers that answered their next call", &of(fallen.came_back, fallen.killed));
    report.line("killed calls of tools that read, answered all the same", &of(fallen.reads_answered, fallen.reads));
    report.line("killed calls of tools that do not, told as lost", &of(fallen.writes_told, fallen.writes));
    report.line("of those, heard more than once", &of(fallen.writes_repeated, fallen.writes));
    report.fact("calm_p50_ms", calm.took.p50());
    report.fact("calm_p99_ms", calm.took.p99());
    report.fact("falling_p50_ms", falling.took.p50());
    report.fact("falling_p99_ms", falling.took.p99());
    report.fact("falling_p99_ratio", falling.took.p99() / calm.took.p99());
    report.fact("falling_p99_beyond_twice_ms", falling.took.p99() - 2.0 * calm.took.p99());
    report.fact("healthy_calls_failed", (calm.failed + falling.failed) as f64);
    report.fact("killed_servers", fallen.killed as f64);
    report.fact("killed_servers_not_back", (fallen.killed - fallen.came_back) as f64);
    report.fact("back_p50_ms", fallen.back.p50());
    report.fact("killed_reads_unanswered", (fallen.reads - fallen.reads_answered) as f64);
    report.fact("killed_writes_untold", (fallen.writes - fallen.writes_told) as f64);
    report.fact("killed_writes_repeated", fallen.writes_repeated as f64);
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

/// Calls these servers in turn for as long as something else is done, and a round at least.
fn beside(client: &Client, healthy: std::ops::Range<usize>, mut done: impl FnMut() -> Result<()>) -> Result<Lanes> {
    let (over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lane = || {
        let mut lane = Lanes::default();
        while !over.load(Ordering::Relaxed) {
            let server = healthy.start + next.fetch_add(1, Ordering::Relaxed) % healthy.len();
            let began = Instant::now();
            match cells::ask_one(client, server) {
                Ok(_) => lane.took.push(milliseconds(began.elapsed())),
                Err(error) => {
                    eprintln!("bench-servers: a healthy call failed: {error}");
                    lane.failed += 1;
                }
            }
        }
        lane
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let began = Instant::now();
        let came_to = done();
        std::thread::sleep(ROUND.saturating_sub(began.elapsed()));
        over.store(true, Ordering::Relaxed);
        let mut all = Lanes::default();
        for lane in lanes {
            all.add(lane.join().map_err(|_| "a lane panicked")?);
        }
        came_to.map(|()| all)
    })
}
