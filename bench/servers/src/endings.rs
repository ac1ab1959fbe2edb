//! However `cellmate` ends, nobody of the fleet is left soon after.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::fleet::Fleet;
use crate::heard::until_heard;
use crate::offer::{SERVERS, hanging};
use crate::processes::{Census, Kind};
use crate::report::Report;
use crate::stats::Samples;
use crate::{Result, Times, cells};

/// Servers that are at work on a call when the end comes, where any are.
const BUSY: usize = 8;

/// Past it, what is left is left.
const GIVE_UP: Duration = Duration::from_secs(15);

const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
enum End {
    InputClosed,
    Told(Signal),
}

struct Ending {
    key: &'static str,
    name: &'static str,
    end: End,
    busy: usize,
}

const ENDINGS: [Ending; 4] = [
    Ending { key: "gone_after_close_ms", name: "its input is closed", end: End::InputClosed, busy: 0 },
    Ending { key: "gone_after_term_ms", name: "SIGTERM", end: End::Told(Signal::TERM), busy: 0 },
    Ending {
        key: "gone_after_busy_term_ms",
        name: "SIGTERM while calls are under way",
        end: End::Told(Signal::TERM),
        busy: BUSY,
    },
    Ending {
        key: "gone_after_busy_kill_ms",
        name: "SIGKILL while calls are under way",
        end: End::Told(Signal::KILL),
        busy: BUSY,
    },
];

pub(crate) fn run(fleet: &Fleet, times: Times, report: &mut Report) -> Result<()> {
    report.heading(&format!("from the end of cellmate until no process of {} servers is left", SERVERS.len()));
    let state = fleet.new_state();
    for ending in &ENDINGS {
        let mut samples = Samples::default();
        for _ in 0..times.endings {
            samples.push(gone_after(fleet, &state, ending)?);
        }
        report.times(ending.name, &samples);
        report.fact(ending.key, samples.max());
    }
    Ok(())
}

fn gone_after(fleet: &Fleet, state: &Path, ending: &Ending) -> Result<Duration> {
    let client = fleet.serve(state)?;
    cells::ask_all(&client)?;
    let mut under_way = Vec::new();
    for server in 0..ending.busy {
        let tool = hanging(server);
        under_way.push(until_heard(fleet, server, &tool, || client.begin(&cells::call(server, &tool)))?);
    }
    let census = Census::take(client.pid(), &fleet.mark())?;
    if census.count(Kind::Server) != SERVERS.len() {
        return Err(format!("{} servers run, not {}", census.count(Kind::Server), SERVERS.len()).into());
    }
    let began = Instant::now();
    tell(&client, ending.end)?;
    loop {
        // So that it is no zombie; the census does not count those either.
        client.has_ended()?;
        let left = census.left(&fleet.mark())?;
        if left == 0 {
            return Ok(began.elapsed());
        }
        if began.elapsed() > GIVE_UP {
            return Err(format!("{left} processes are left {GIVE_UP:?} after this: {}", ending.name).into());
        }
        std::thread::sleep(LOOK);
    }
}

fn tell(client: &Client, end: End) -> Result<()> {
    match end {
        End::InputClosed => client.close_input(),
        End::Told(signal) => kill_process(Pid::from_raw(client.pid()).ok_or("a process without number")?, signal)?,
    }
    Ok(())
}
