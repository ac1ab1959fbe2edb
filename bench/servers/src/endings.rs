//! Measures how soon all processes of the fleet are gone after `cellmate` ends, for each way of ending.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use figures::Samples;
use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::Fleet;
use crate::heard::until_received;
use crate::offer::{SERVERS, hanging};
use crate::processes::{Census, Kind, Process};
use crate::report::{Report, milliseconds};
use crate::{Result, Times, cells};
use figures::{Answer, McpClient};

/// Number of servers with a call under way in [`Moment::Busy`].
const BUSY: usize = 8;

/// After this time, remaining processes count as a miss.
const GIVE_UP: Duration = Duration::from_secs(15);

const LOOK: Duration = Duration::from_millis(10);

/// Time after the start in [`Moment::Starting`], when some servers have been started.
const HALF_STARTED: Duration = Duration::from_millis(150);

#[derive(Clone, Copy)]
enum End {
    InputClosed,
    Signal(Signal),
}

/// The state of the fleet when `cellmate` is ended.
#[derive(Clone, Copy)]
enum Moment {
    /// All servers run, and no call is under way.
    Quiet,
    /// All servers run, and some have a call under way.
    Busy,
    /// The servers are being started, because no list is cached.
    Starting,
}

struct Ending {
    key: &'static str,
    name: &'static str,
    end: End,
    moment: Moment,
}

const fn ending(key: &'static str, name: &'static str, end: End, moment: Moment) -> Ending {
    Ending { key, name, end, moment }
}

const ENDINGS: [Ending; 6] = [
    ending("gone_after_close_ms", "its input closed", End::InputClosed, Moment::Quiet),
    ending("gone_after_term_ms", "SIGTERM", End::Signal(Signal::TERM), Moment::Quiet),
    ending("gone_after_busy_term_ms", "SIGTERM while calls are under way", End::Signal(Signal::TERM), Moment::Busy),
    ending("gone_after_busy_kill_ms", "SIGKILL while calls are under way", End::Signal(Signal::KILL), Moment::Busy),
    ending(
        "gone_after_early_term_ms",
        "SIGTERM while servers are started",
        End::Signal(Signal::TERM),
        Moment::Starting,
    ),
    ending(
        "gone_after_early_kill_ms",
        "SIGKILL while servers are started",
        End::Signal(Signal::KILL),
        Moment::Starting,
    ),
];

pub(crate) fn run(fleet: &Fleet, times: Times, report: &mut Report) -> Result<()> {
    report.heading(&format!("from the end of cellmate until no process of {} servers is left", SERVERS.len()));
    let state = fleet.new_state();
    for ending in &ENDINGS {
        let mut samples = Samples::default();
        for _ in 0..times.endings {
            samples.push(milliseconds(gone_after(fleet, &state, ending)?));
        }
        report.times(ending.name, &samples);
        report.fact(ending.key, samples.max());
    }
    Ok(())
}

fn gone_after(fleet: &Fleet, state: &Path, ending: &Ending) -> Result<Duration> {
    let (client, _under_way) = start_until(fleet, state, ending.moment)?;
    let census = Census::take(client.pid(), &fleet.mark())?;
    let servers = census.count(Kind::Server);
    let as_wanted = match ending.moment {
        Moment::Quiet | Moment::Busy => servers == SERVERS.len(),
        Moment::Starting => servers > 0,
    };
    if !as_wanted {
        return Err(format!("{servers} servers run, which is not the expected state before: {}", ending.name).into());
    }
    let began = Instant::now();
    end(&client, ending.end)?;
    loop {
        // Reaps the process, so that no zombie is left; the census does not count zombies either.
        client.has_ended()?;
        let left = census.left(&fleet.mark())?;
        if left.is_empty() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > GIVE_UP {
            eprintln!("bench-servers: {} processes are left {GIVE_UP:?} after: {}", left.len(), ending.name);
            kill_all(&left);
            return Ok(began.elapsed());
        }
        std::thread::sleep(LOOK);
    }
}

/// Starts `cellmate` and brings the fleet into this state. Returns the calls that are under way, too.
fn start_until(fleet: &Fleet, state: &Path, moment: Moment) -> Result<(McpClient, Vec<Receiver<Answer>>)> {
    let mut under_way = Vec::new();
    let client = match moment {
        Moment::Quiet | Moment::Busy => fleet.serve(state)?,
        Moment::Starting => fleet.serve(&fleet.new_state())?,
    };
    match moment {
        Moment::Quiet => cells::ask_all(&client)?,
        Moment::Busy => {
            cells::ask_all(&client)?;
            for server in 0..BUSY {
                let tool = hanging(server);
                under_way.push(until_received(fleet, server, &tool, || client.begin(&cells::call(server, &tool)))?);
            }
        }
        Moment::Starting => std::thread::sleep(HALF_STARTED),
    }
    Ok((client, under_way))
}

/// Kills remaining processes, so that they are not counted after the next ending.
fn kill_all(left: &[Process]) {
    for pid in left.iter().filter_map(|process| Pid::from_raw(process.pid)) {
        let _already_gone = kill_process(pid, Signal::KILL);
    }
}

fn end(client: &McpClient, end: End) -> Result<()> {
    match end {
        End::InputClosed => client.close_input(),
        End::Signal(signal) => kill_process(Pid::from_raw(client.pid()).ok_or("invalid process id")?, signal)?,
    }
    Ok(())
}
