//! `make bench-gateway`: puts load on one `cellmate gateway` in front of a scripted model. The client writes and reads
//! HTTP/1.1 by hand, and the model is another process, so that only the gateway and its workers are measured.

mod client;
mod gateway;
mod incumbent;
mod parked;
mod processes;
mod turns;

use std::path::PathBuf;
use std::process::ExitCode;

use figures::Bar::AtMost;
use figures::{Claim, Facts, machine};

use gateway::Binaries;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, BoxError>;

const USAGE: &str = "usage: cellmate-bench-gateway [--at-once N] [--turns N] [--parked N | --only-turns] [FOLDER]; FOLDER \
                     contains `cellmate` and `scripted-model`; the default is the folder of this program";

/// The bars of this benchmark; `docs/internals/promises.md` describes them.
const BARS: [Claim; 9] = [
    ("ready_ms", AtMost(300.0)),
    ("idle_pss_mib", AtMost(60.0)),
    ("plain_lost", AtMost(0.0)),
    ("plain_cpu_ms", AtMost(3.0)),
    ("cell_lost", AtMost(0.0)),
    ("cell_cpu_ms", AtMost(3.0)),
    ("parked_lost", AtMost(0.0)),
    ("parked_growth_mib", AtMost(64.0)),
    ("answers_wrong", AtMost(0.0)),
];

/// How much load the benchmark makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Clients at the same time.
    pub(crate) clients: usize,
    /// Turns of each kind.
    pub(crate) turns: usize,
    /// Sessions that wait for their client. One principal may have 10,000.
    pub(crate) parked: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-gateway: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let mut load = Load { clients: 200, turns: 2_000, parked: 10_000 };
    let (mut folder, mut only_turns) = (None, false);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let field = match argument.to_str() {
            Some("--at-once") => &mut load.clients,
            Some("--turns") => &mut load.turns,
            Some("--parked") => &mut load.parked,
            Some("--only-turns") => {
                only_turns = true;
                continue;
            }
            Some(flag) if flag.starts_with('-') => return Err(USAGE.into()),
            _ => {
                folder = Some(PathBuf::from(argument));
                continue;
            }
        };
        let number = arguments.next().and_then(|number| number.to_str()?.parse().ok());
        *field = number.filter(|number| *number > 0).ok_or(USAGE)?;
    }
    let beside = std::env::current_exe()?.parent().map(PathBuf::from);
    let binaries = Binaries::find(&folder.or(beside).ok_or(USAGE)?)?;
    let mut facts = Facts::default();
    facts.add("load_before", machine::load_average()?);
    facts.add("clients", load.clients as f64);
    if only_turns {
        turns::measure(&binaries, load, &mut facts)?;
        return facts.verdict::<&str>(&[]);
    }
    gateway::measure_starts(&binaries, &mut facts)?;
    turns::measure(&binaries, load, &mut facts)?;
    parked::measure(&binaries, load, &mut facts)?;
    incumbent::measure(&binaries, &mut facts)?;
    facts.add("load_after", machine::load_average()?);
    facts.verdict(&BARS)
}

pub(crate) fn print_line(name: &str, value: &str) {
    println!("  {name:<58}{value:>22}");
}
