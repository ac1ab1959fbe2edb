//! However `cellmate` ends, nobody of the fleet is left soon after.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use figures::Samples;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Answer, Client};
use crate::fleet::Fleet;
use crate::heard::until_heard;
use crate::offer::{SERVERS, hanging};
use crate::processes::{Census, Kind, Process};
use crate::report::{Report, milliseconds};
use crate::{Result, Times, cells};

/// Servers that are at work on a call where some are.
const BUSY: usize = 8;

/// Past it, what is left is a miss.
const GIVE_UP: Duration = Duration::from_secs(15);

const LOOK: Duration = Duration::from_millis(10);

/// How far the start of all servers has come when the end comes in the middle of it.
const HALF_STARTED: Duration = Duration::from_millis(150);

#[derive(Clone, Copy)]
enum End {
    InputClosed,
    Told(Signal),
}

/// What is going on when the end comes.
#[derive(Clone, Copy)]
enum Moment {
    /// All servers run, and nobody calls them.
    Quiet,
    /// All run, and some are at work on a call.
    Busy,
    /// They are being started, for nothing is remembered of them.
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
    ending("gone_after_close_ms", "its input is closed", End::InputClosed, Moment::Quiet),
    ending("gone_after_term_ms", "SIGTERM", End::Told(Signal::TERM), Moment::Quiet),
    ending("gone_after_busy_term_ms", "SIGTERM while calls are under way", End::Told(Signal::TERM), Moment::Busy),
    ending("gone_after_busy_kill_ms", "SIGKILL while calls are under way", End::Told(Signal::KILL), Moment::Busy),
    ending("gone_after_early_term_ms", "SIGTERM while servers are started", End::Told(Signal::TERM), Moment::Starting),
    ending("gone_after_early_kill_ms", "SIGKILL while servers are started", End::Told(Signal::KILL), Moment::Starting),
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
    let (client, _under_way) = until(fleet, state, ending.moment)?;
    let census = Census::take(client.pid(), &fleet.mark())?;
    let servers = census.count(Kind::Server);
    let as_wanted = match ending.moment {
        Moment::Quiet | Moment::Busy => servers == SERVERS.len(),
        Moment::Starting => servers > 0,
    };
    if !as_wanted {
        return Err(format!("{servers} servers run, which are not those to be ended by this: {}", ending.name).into());
    }
    let began = Instant::now();
    tell(&client, ending.end)?;
    loop {
        // So that it is no zombie; the census does not count those either.
        client.has_ended()?;
        let left = census.left(&fleet.mark())?;
        if left.is_empty() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > GIVE_UP {
            eprintln!("bench-servers: {} processes are left {GIVE_UP:?} after this: {}", left.len(), ending.name);
            end_all(&left);
            return Ok(began.elapsed());
        }
        std::thread::sleep(LOOK);
    }
}

/// A `cellmate` to which this happens, and the calls that are under way.
fn until(fleet: &Fleet, state: &Path, moment: Moment) -> Result<(Client, Vec<Receiver<Answer>>)> {
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
                under_way.push(until_heard(fleet, server, &tool, || client.begin(&cells::call(server, &tool)))?);
            }
        }
        Moment::Starting => std::thread::sleep(HALF_STARTED),
    }
    Ok((client, under_way))
}

/// So that what one ending left is not counted at the next.
fn end_all(left: &[Process]) {
    for pid in left.iter().filter_map(|process| Pid::from_raw(process.pid)) {
        let _gone_meanwhile = kill_process(pid, Signal::KILL);
    }
}

fn tell(client: &Client, end: End) -> Result<()> {
    match end {
        End::InputClosed => client.close_input(),
        End::Told(signal) => kill_process(Pid::from_raw(client.pid()).ok_or("a process without number")?, signal)?,
    }
    Ok(())
}
