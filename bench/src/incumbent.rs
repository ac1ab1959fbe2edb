//! The incumbent: OpenClaw's code mode under Node, in two versions, compared with whole runs of ours.

use std::path::Path;

use figures::{Bar, Claim, Samples};
use serde_json::json;

use crate::Result;
use crate::peer::{self, Peer};
use crate::report::Report;

/// The bars against the newest version with its QuickJS executor; checked only if that is installed.
pub(crate) const CLAIMS: [Claim; 2] =
    [("trivial_openclaw_ratio", Bar::AtLeast(45.0)), ("sequential_16_openclaw_ratio", Bar::AtLeast(17.0))];

/// What is measured: its package, its executor, the end of its facts' names, and whether its runs take milliseconds.
const MEASURED: [(&str, &str, &str, Speed); 3] = [
    ("openclaw-2026-9-6", "quickjs", "openclaw", Speed::Fast),
    ("openclaw-2026-9-6", "node", "openclaw_node", Speed::Fast),
    ("openclaw-2026-6-1", "quickjs", "openclaw_2026_6_1", Speed::Slow),
];

/// Decides how many samples there is time for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Speed {
    Fast,
    /// 0.3 s for a trivial run, and as much for each call in sequence.
    Slow,
}

#[derive(Debug)]
pub(crate) struct Incumbent {
    peer: Peer,
    speed: Speed,
    /// The end of the names of its facts.
    fact: &'static str,
    /// Its cell, its samples, and the calls of `wait` that each took.
    cells: Vec<(&'static str, Samples, f64)>,
    per_second: Samples,
}

/// Starts what is installed. Prints a line for each one that cannot be started and leaves it out.
pub(crate) fn start(state: &Path) -> Vec<Incumbent> {
    let mut started = Vec::new();
    for (package, executor, fact, speed) in MEASURED {
        match spawn(package, executor, state) {
            Ok(peer) => {
                started.push(Incumbent { peer, speed, fact, cells: Vec::new(), per_second: Samples::default() });
            }
            Err(error) => println!("skipped: {package} with executor {executor}: {error}"),
        }
    }
    started
}

fn spawn(package: &str, executor: &str, state: &Path) -> Result<Peer> {
    if !peer::folder().join("openclaw/node_modules").join(package).exists() {
        let install = "`npm ci --ignore-scripts --prefix bench/peer/openclaw` installs it (1 GB)";
        return Err(format!("it is not installed; {install}").into());
    }
    let folder = state.join(format!("{package}-{executor}"));
    std::fs::create_dir_all(&folder)?;
    let mut script = peer::node("openclaw.mjs")?;
    // It must neither read nor write the state of an OpenClaw that the user has.
    script.args([package, executor]).env("HOME", &folder).env("OPENCLAW_STATE_DIR", &folder);
    Peer::spawn(script)
}

impl Incumbent {
    pub(crate) fn describe(&self) -> String {
        format!("OpenClaw {}, executor {}", self.peer.ready("version"), self.peer.ready("executor"))
    }

    pub(crate) fn node(&self) -> String {
        self.peer.ready("node")
    }

    /// Takes the samples of one round of `cell`, after unmeasured runs that wake its threads.
    pub(crate) fn run(&mut self, cell: &'static str, seed: u64) -> Result<()> {
        let (n, warmup) = match (self.speed, cell) {
            (Speed::Fast, _) => (10, 2),
            // It starts a new thread for each leg: there is nothing to wake.
            (Speed::Slow, "sequential_16") => (1, 0),
            (Speed::Slow, _) => (2, 0),
        };
        let request = json!({"op": "run", "cell": cell, "n": n, "seed": seed, "warmup": warmup});
        let answer = self.peer.ask(&request)?;
        let samples = peer::samples(&answer, "samples_us")?;
        let waits = peer::number(&answer, "waits")?;
        match self.cells.iter_mut().find(|(name, ..)| *name == cell) {
            Some((_, all, _)) => all.add(samples),
            None => self.cells.push((cell, samples, waits)),
        }
        Ok(())
    }

    /// Measures trivial cells per second, `lanes` at once.
    pub(crate) fn concurrent(&mut self, lanes: usize, seconds: f64, seed: u64) -> Result<()> {
        let request = json!({"op": "concurrent", "lanes": lanes, "seconds": seconds, "seed": seed});
        self.per_second.push(peer::number(&self.peer.ask(&request)?, "cells_per_s")?);
        Ok(())
    }

    /// Discards the samples of cells so far: those of the first round.
    pub(crate) fn discard_samples(&mut self) {
        self.cells.clear();
    }

    /// Discards the cells per second so far: those of the first round.
    pub(crate) fn discard_rates(&mut self) {
        self.per_second = Samples::default();
    }

    /// Whether it is what the bars are about.
    pub(crate) fn has_bars(&self) -> bool {
        self.fact == "openclaw"
    }

    /// Prints a line that compares `cell` and records the ratio.
    pub(crate) fn compare(&self, report: &mut Report, name: &str, cell: &str, ours: &Samples) -> Result<()> {
        let (_, samples, waits) =
            self.cells.iter().find(|(name, ..)| *name == cell).ok_or_else(|| format!("{cell} was not measured"))?;
        let name = if *waits > 0.0 { format!("{name} ({waits} `wait`)") } else { name.to_owned() };
        let ratio = report.compare(&name, ours, samples);
        report.fact(&format!("{cell}_{}_ms", self.fact), samples.p50() / 1e3);
        report.fact(&format!("{cell}_{}_ratio", self.fact), ratio);
        Ok(())
    }

    /// Prints a line that compares the cells per second and records the ratio, above 1 if ours are more.
    pub(crate) fn compare_rates(&self, report: &mut Report, name: &str, ours: f64) {
        let theirs = self.per_second.p50();
        report.numbers(name, &format!("{ours:.0}/s"), &format!("{theirs:.1}/s"), Some(ours / theirs));
        report.fact(&format!("per_second_{}", self.fact), theirs);
        report.fact(&format!("per_second_{}_ratio", self.fact), ours / theirs);
    }
}
