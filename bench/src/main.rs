//! Benchmarks of the sandbox and of whole runs.
//!
//! `make bench-sandbox` compares the sandbox with a peer in one run. `make bench-codemode` (`cellmate-bench codemode`)
//! measures whole runs with their journal on disk, and compares them with the incumbent if it is installed. `make
//! bench-nodes` (`cellmate-bench nodes`) measures resuming a run on another node, and `make bench-growth` (`cellmate-bench
//! growth`) how everything grows with its size.
//!
//! `cellmate-bench throughput` measures only the cells per second of the sandbox.
//!
//! Prints a table, then each bar with pass or FAIL, then one line of JSON. `--quick` takes fewer samples.

mod catalogs;
mod cells;
mod codemode_runs;
mod cpu;
mod deadlines;
mod disk;
mod endless;
mod growth;
mod incumbent;
mod nested;
mod nodes;
mod ours;
mod peer;
mod report;
mod snapshots;
mod startup;
mod stats;
mod stored;
mod throughput;
mod trivial;

use std::process::ExitCode;

use figures::machine;

use cells::Cells;
use ours::{Ours, STACK_BYTES};
use peer::Peer;
use report::Report;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, BoxError>;

/// The state that all measurements share.
pub(crate) struct Bench {
    pub(crate) ours: Ours,
    pub(crate) peer: Peer,
    pub(crate) cells: Cells,
    pub(crate) report: Report,
    quick: bool,
}

impl Bench {
    /// The number of repetitions: `normally`, or fewer with `--quick`.
    pub(crate) fn rounds(&self, normally: usize) -> usize {
        if self.quick { normally.div_ceil(5) } else { normally }
    }
}

fn main() -> ExitCode {
    // Must come first: workers are this program, started again.
    sandbox::worker_main();

    // The sandbox alone runs on the calling thread, which needs a worker's stack.
    let thread = std::thread::Builder::new().name("bench".into()).stack_size(STACK_BYTES).spawn(run);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(true))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(false))) => ExitCode::FAILURE,
        Ok(Ok(Err(error))) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
        Ok(Err(_)) | Err(_) => ExitCode::from(2),
    }
}

/// Runs the benchmark and returns whether every bar was met.
fn run() -> Result<bool> {
    let (quick, only_throughput) = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => (false, false),
        [flag] if flag == "--quick" => (true, false),
        [what] if what == "throughput" => (false, true),
        [what] if what == "codemode" => return codemode_runs::run(false),
        [what, flag] if what == "codemode" && flag == "--quick" => return codemode_runs::run(true),
        [what] if what == "nodes" => return nodes::run(false),
        [what, flag] if what == "nodes" && flag == "--quick" => return nodes::run(true),
        [what, options @ ..] if what == "growth" => return growth::run(options),
        [what, curve, size] if what == "growth-point" => return growth::point(curve, size.parse()?),
        other => {
            let known = "`codemode`, `nodes`, `growth`, `throughput` and `--quick` are known";
            return Err(format!("unknown arguments {other:?}; {known}").into());
        }
    };
    let load = machine::load_average()?;
    let ours = Ours::start()?;
    let peer = Peer::start()?;
    println!("ours: {}", ours.describe());
    println!("peer: {}; load average before: {load:.2}\n", peer.describe());
    let mut bench = Bench { ours, peer, cells: Cells::read()?, report: Report::new(), quick };
    bench.report.fact("load_average", load);

    if only_throughput {
        throughput::run(&mut bench)?;
        return bench.report.verdict(&[]);
    }
    startup::run(&mut bench)?;
    // Runs early: later, the stored cells would reuse freed memory and RSS would not grow.
    stored::run(&mut bench)?;
    trivial::run(&mut bench)?;
    nested::run(&mut bench)?;
    snapshots::run(&mut bench)?;
    throughput::run(&mut bench)?;
    cpu::run(&mut bench)?;
    deadlines::run(&mut bench)?;

    println!("\nload average after: {:.2}", machine::load_average()?);
    bench.report.verdict(&report::SANDBOX)
}
