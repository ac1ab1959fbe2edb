//! A fleet beside servers that start and never say a word.

use std::time::{Duration, Instant};

use crate::fleet::{Fleet, HANGING};
use crate::offer::SERVERS;
use crate::report::{Report, milliseconds};
use crate::{Result, cells};

/// The last to be started.
const CALLED: usize = SERVERS.len() - 1;

/// Past it nobody asks again.
const GIVE_UP: Duration = Duration::from_secs(60);

pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    let began = Instant::now();
    let client = fleet.serve_beside_hanging(&fleet.new_state())?;
    // A cell that comes before the server is listed fails; a model would try again.
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
    report.heading(&format!("nothing is remembered, and {HANGING} servers more do not answer when they are started"));
    report.line("start to the first result of a cell that calls a healthy one", &format!("{first:.1?}"));
    report.line("the next cell", &format!("{second:.1?}"));
    report.fact("first_cell_beside_hanging_ms", milliseconds(first));
    report.fact("next_cell_beside_hanging_ms", milliseconds(second));
    Ok(())
}
