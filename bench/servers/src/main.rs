//! `make bench-servers`: measures 64 MCP servers with 2,000 tools behind one `cellmate mcp`. The client writes and
//! reads JSON lines.

mod bars;
mod cells;
mod endings;
mod falls;
mod fleet;
mod growth;
mod hanging;
mod heard;
mod idle;
mod memory;
mod offer;
mod processes;
mod report;
mod sizes;
mod starts;
mod victims;

use std::path::PathBuf;
use std::process::ExitCode;

use figures::machine;

use bars::BARS;
use fleet::Fleet;
use offer::SERVERS;
use report::Report;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, BoxError>;

const USAGE: &str = "usage: cellmate-bench-servers [--quick] [--only-start SERVERS] [FOLDER]; FOLDER contains \
                     `cellmate` and `fake-mcp`; the default is the folder of this program";

/// Number of repetitions of each measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Starts of each kind.
    pub(crate) starts: usize,
    /// Endings of each kind.
    pub(crate) endings: usize,
    /// Rounds of calls without and with killed servers.
    pub(crate) rounds: usize,
}

const WHOLE: Times = Times { starts: 5, endings: 3, rounds: 4 };
const QUICK: Times = Times { starts: 1, endings: 1, rounds: 1 };

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
    let mut times = WHOLE;
    let (mut binaries, mut only_start) = (None, None);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--quick") => times = QUICK,
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
        None => measure(&fleet, times),
    };
    measured.inspect_err(|_| eprintln!("{}", fleet.last_stderr()))
}

fn measure(fleet: &Fleet, times: Times) -> Result<bool> {
    let mut report = Report::default();
    report.fact("load_before", machine::load_average()?);
    sizes::run(fleet, &mut report)?;
    starts::run(fleet, times, &mut report)?;
    hanging::run(fleet, &mut report)?;
    memory::run(fleet, &mut report)?;
    falls::run(fleet, times, &mut report)?;
    idle::run(fleet, &mut report)?;
    endings::run(fleet, times, &mut report)?;
    report.fact("load_after", machine::load_average()?);
    report.verdict(&BARS)
}
