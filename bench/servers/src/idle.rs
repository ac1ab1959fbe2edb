//! Servers that nobody calls are stopped, and started again when somebody does.

use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::offer::SERVERS;
use crate::processes::{Census, Kind};
use crate::report::{Report, milliseconds};
use crate::{Result, cells};

/// Long enough for all to run at once.
const IDLE_STOP_SECONDS: u32 = 5;

/// What stopping may take beyond that. Past it what is left counts.
const SLACK: Duration = Duration::from_secs(10);

const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    let client = fleet.serve_stopping(&fleet.new_state(), IDLE_STOP_SECONDS)?;
    cells::ask_all(&client)?;
    let called = Instant::now();
    let behind = || -> Result<usize> {
        let census = Census::take(client.pid(), &fleet.mark())?;
        Ok(census.count(Kind::Server) + census.count(Kind::Keeper))
    };
    let before = behind()?;
    let mut left = before;
    while left > 0 && called.elapsed() < Duration::from_secs(IDLE_STOP_SECONDS.into()) + SLACK {
        std::thread::sleep(LOOK);
        left = behind()?;
    }
    let took = called.elapsed();
    cells::ask_one(&client, SERVERS.len() - 1)?;
    let again = behind()?;
    client.end()?;
    report.heading(&format!("idle servers are stopped after {IDLE_STOP_SECONDS} s"));
    report.line("processes behind us after a call to each: servers and keepers", &before.to_string());
    report.line("left, and how long after the last call", &format!("{left}, {:.1} s", took.as_secs_f64()));
    report.line("after one more call", &again.to_string());
    report.fact("idle_processes_before", before as f64);
    report.fact("idle_processes_left", left as f64);
    report.fact("idle_stopped_after_ms", milliseconds(took));
    report.fact("idle_processes_after_call", again as f64);
    Ok(())
}
