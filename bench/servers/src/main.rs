//! `make bench-servers`: measures 64 MCP servers with 2,000 tools behind one `cellmate mcp`. The client writes and
//! reads JSON lines.

mod bars;
mod calls_during_kills;
mod cells;
mod endings;
mod fleet;
mod growth;
mod hanging;
mod idle;
mod memory;
mod processes;
mod received_calls;
mod report;
mod server_tools;
mod sizes;
mod starts;
mod victims;

use std::path::PathBuf;
use std::process::ExitCode;

use figures::machine;

use bars::BARS;
use fleet::Fleet;
use report::Report;
use server_tools::SERVERS;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, BoxError>;

const USAGE: &str = "usage: cellmate-bench-servers [--quick] [--only-start SERVERS] [FOLDER]; FOLDER contains \
                     `cellmate` and `fake-mcp`; the default is the folder of this program";

/// How often each measurement is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repetitions {
    /// Starts of each kind.
    pub(crate) starts: usize,
    /// Endings of each kind.
    pub(crate) endings: usize,
    /// Rounds of calls without and with killed servers.
    pub(crate) rounds: usize,
}

const FULL: Repetitions = Repetitions { starts: 5, endings: 3, rounds: 4 };
const QUICK: Repetitions = Repetitions { starts: 1, endings: 1, rounds: 1 };

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-servers: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let mut repetitions = FULL;
    let (mut binaries, mut only_start) = (None, None);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--quick") => repetitions = QUICK,
            Some("--only-start") => {
                let count = arguments.next().and_then(|count| count.to_str()?.parse::<usize>().ok());
                only_start = Some(count.filter(|count| *count > 0).ok_or(USAGE)?);
            }
            Some(flag) if flag.starts_with('-') => return Err(USAGE.into()),
            _ => binaries = Some(PathBuf::from(argument)),
        }
    }
    let beside = std::env::current_exe()?.parent().map(PathBuf::from);
    let fleet = Fleet::prepare(&binaries.or(beside).ok_or(USAGE)?, only_start.unwrap_or(SERVERS.len()))?;
    let measured = match only_start {
        Some(servers) => growth::measure(&fleet, servers),
        None => measure(&fleet, repetitions),
    };
    measured.inspect_err(|_| eprintln!("{}", fleet.last_stderr()))
}

fn measure(fleet: &Fleet, repetitions: Repetitions) -> Result<bool> {
    let mut report = Report::default();
    report.fact("load_before", machine::load_average()?);
    sizes::run(fleet, &mut report)?;
    starts::run(fleet, repetitions, &mut report)?;
    hanging::run(fleet, &mut report)?;
    memory::run(fleet, &mut report)?;
    calls_during_kills::run(fleet, repetitions, &mut report)?;
    idle::run(fleet, &mut report)?;
    endings::run(fleet, repetitions, &mut report)?;
    report.fact("load_after", machine::load_average()?);
    report.verdict(&BARS)
}
