//! Measures that idle servers are stopped, and restarted at the next call.

use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::processes::{Census, Kind};
use crate::report::{Report, milliseconds};
use crate::server_tools::SERVERS;
use crate::{Result, cells};

/// Long enough for all servers to run at the same time.
const IDLE_STOP_SECONDS: u32 = 5;

/// Additional time for stopping. Processes that are left after it are counted.
const SLACK: Duration = Duration::from_secs(10);

const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    let client = fleet.serve_stopping(&fleet.new_state(), IDLE_STOP_SECONDS)?;
    cells::ask_all(&client)?;
    let called = Instant::now();
    let running = || -> Result<usize> {
        let census = Census::take(client.pid(), &fleet.mark())?;
        Ok(census.count(Kind::Server) + census.count(Kind::Keeper))
    };
    let before = running()?;
    let mut left = before;
    while left > 0 && called.elapsed() < Duration::from_secs(IDLE_STOP_SECONDS.into()) + SLACK {
        std::thread::sleep(LOOK);
        left = running()?;
    }
    let took = called.elapsed();
    cells::ask_one(&client, SERVERS.len() - 1)?;
    let again = running()?;
    client.end()?;
    report.heading(&format!("idle servers are stopped after {IDLE_STOP_SECONDS} s"));
    report.line("servers and keepers after a call to each", &before.to_string());
    report.line(
        "servers and keepers left, and time since the last call",
        &format!("{left}, {:.1} s", took.as_secs_f64()),
    );
    report.line("servers and keepers after one more call", &again.to_string());
    report.fact("idle_processes_before", before as f64);
    report.fact("idle_processes_left", left as f64);
    report.fact("idle_stopped_after_ms", milliseconds(took));
    report.fact("idle_processes_after_call", again as f64);
    Ok(())
}
