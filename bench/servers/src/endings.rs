//! Measures how soon all processes of the fleet are gone after `cellmate` ends, for each way of ending.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use figures::Samples;
use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::Fleet;
use crate::processes::{Census, Kind, Process};
use crate::received_calls::until_received;
use crate::report::{Report, milliseconds};
use crate::server_tools::{SERVERS, hanging};
use crate::{Repetitions, Result, cells};
use figures::{Answer, McpClient};

/// The number of servers with a call under way in `FleetState::Busy`.
const BUSY_SERVERS: usize = 8;

/// How long to wait for the processes to end. The time of those that still run then is longer than any bar allows.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// The time between two looks at the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The time after the start of `cellmate` at which some servers have been started; for `FleetState::Starting`.
const PARTLY_STARTED_AFTER: Duration = Duration::from_millis(150);

/// How `cellmate` is ended.
#[derive(Clone, Copy)]
enum EndMethod {
    InputClosed,
    Signal(Signal),
}

/// The state of the fleet when `cellmate` is ended.
#[derive(Clone, Copy)]
enum FleetState {
    /// All servers run, and no call is under way.
    Quiet,
    /// All servers run, and some have a call under way.
    Busy,
    /// The servers are being started, because no list is cached.
    Starting,
}

/// One way of ending `cellmate`, and the name of its result.
struct Ending {
    /// The name of the fact.
    key: &'static str,
    /// The name in the printed table.
    name: &'static str,
    method: EndMethod,
    fleet_state: FleetState,
}

const fn ending(key: &'static str, name: &'static str, method: EndMethod, fleet_state: FleetState) -> Ending {
    Ending { key, name, method, fleet_state }
}

const ENDINGS: [Ending; 6] = [
    ending("gone_after_close_ms", "its input closed", EndMethod::InputClosed, FleetState::Quiet),
    ending("gone_after_term_ms", "SIGTERM", EndMethod::Signal(Signal::TERM), FleetState::Quiet),
    ending(
        "gone_after_busy_term_ms",
        "SIGTERM while calls are under way",
        EndMethod::Signal(Signal::TERM),
        FleetState::Busy,
    ),
    ending(
        "gone_after_busy_kill_ms",
        "SIGKILL while calls are under way",
        EndMethod::Signal(Signal::KILL),
        FleetState::Busy,
    ),
    ending(
        "gone_after_early_term_ms",
        "SIGTERM while servers are started",
        EndMethod::Signal(Signal::TERM),
        FleetState::Starting,
    ),
    ending(
        "gone_after_early_kill_ms",
        "SIGKILL while servers are started",
        EndMethod::Signal(Signal::KILL),
        FleetState::Starting,
    ),
];

pub(crate) fn run(fleet: &Fleet, repetitions: Repetitions, report: &mut Report) -> Result<()> {
    report.heading(&format!("from the end of cellmate until no process of {} servers is left", SERVERS.len()));
    let state = fleet.new_state();
    for ending in &ENDINGS {
        let mut samples = Samples::default();
        for _ in 0..repetitions.endings {
            samples.push(milliseconds(time_until_gone(fleet, &state, ending)?));
        }
        report.times(ending.name, &samples);
        report.fact(ending.key, samples.max());
    }
    Ok(())
}

/// Ends `cellmate`, and returns the time until all its processes are gone, or until `MAX_WAIT` is over.
fn time_until_gone(fleet: &Fleet, state: &Path, ending: &Ending) -> Result<Duration> {
    let (client, _under_way) = start_in_state(fleet, state, ending.fleet_state)?;
    let census = Census::take(client.pid(), &fleet.mark())?;
    let servers = census.count(Kind::Server);
    let as_wanted = match ending.fleet_state {
        FleetState::Quiet | FleetState::Busy => servers == SERVERS.len(),
        FleetState::Starting => servers > 0,
    };
    if !as_wanted {
        return Err(format!("{servers} servers run, which is not the expected state before: {}", ending.name).into());
    }
    let began = Instant::now();
    end_cellmate(&client, ending.method)?;
    loop {
        // Reaps `cellmate`, so that no zombie is left. The census does not count zombies.
        client.has_ended()?;
        let left = census.remaining(&fleet.mark())?;
        if left.is_empty() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > MAX_WAIT {
            eprintln!("bench-servers: {} processes are left {MAX_WAIT:?} after: {}", left.len(), ending.name);
            kill_all(&left);
            return Ok(began.elapsed());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Starts `cellmate` and brings the fleet into the wanted state. Returns the client and the answers of calls that are
/// under way.
fn start_in_state(
    fleet: &Fleet,
    state_folder: &Path,
    wanted: FleetState,
) -> Result<(McpClient, Vec<Receiver<Answer>>)> {
    let mut under_way = Vec::new();
    let client = match wanted {
        FleetState::Quiet | FleetState::Busy => fleet.serve(state_folder)?,
        FleetState::Starting => fleet.serve(&fleet.new_state())?,
    };
    match wanted {
        FleetState::Quiet => cells::ask_all(&client)?,
        FleetState::Busy => {
            cells::ask_all(&client)?;
            for server in 0..BUSY_SERVERS {
                let tool = hanging(server);
                under_way.push(until_received(fleet, server, &tool, || client.begin(&cells::call(server, &tool)))?);
            }
        }
        FleetState::Starting => std::thread::sleep(PARTLY_STARTED_AFTER),
    }
    Ok((client, under_way))
}

/// Kills remaining processes, so that they are not counted after the next ending.
fn kill_all(left: &[Process]) {
    for pid in left.iter().filter_map(|process| Pid::from_raw(process.pid)) {
        let _already_gone = kill_process(pid, Signal::KILL);
    }
}

fn end_cellmate(client: &McpClient, method: EndMethod) -> Result<()> {
    match method {
        EndMethod::InputClosed => client.close_input(),
        EndMethod::Signal(signal) => kill_process(Pid::from_raw(client.pid()).ok_or("invalid process id")?, signal)?,
    }
    Ok(())
}
