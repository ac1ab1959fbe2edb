//! Measures the fleet beside servers that start and never answer.

use std::time::{Duration, Instant};

use crate::fleet::{Fleet, HANGING};
use crate::report::{Report, milliseconds};
use crate::server_tools::SERVERS;
use crate::{Result, cells};

/// The server that is started last.
const CALLED: usize = SERVERS.len() - 1;

/// After this time, no further attempt is made.
const GIVE_UP: Duration = Duration::from_secs(60);

pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    let began = Instant::now();
    let client = fleet.serve_beside_hanging(&fleet.new_state())?;
    // A cell that runs before the server is listed fails; a model would retry.
    let first = loop {
        match cells::ask_one(&client, CALLED) {
            Ok(answer) => break client.since_start(&answer),
            Err(error) if began.elapsed() > GIVE_UP => return Err(error),
            Err(_) => {}
        }
    };
    let began = Instant::now();
    cells::ask_one(&client, CALLED)?;
    let second = began.elapsed();
    client.end()?;
    report.heading(&format!("no cached lists, and {HANGING} more servers that do not answer during start-up"));
    report.line("start to the first result of a cell that calls a healthy server", &format!("{first:.1?}"));
    report.line("the next cell", &format!("{second:.1?}"));
    report.fact("first_cell_beside_hanging_ms", milliseconds(first));
    report.fact("next_cell_beside_hanging_ms", milliseconds(second));
    Ok(())
}
