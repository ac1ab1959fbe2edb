//! The curves: their sizes, what is measured at each, and how it may grow.

use std::path::Path;
use std::process::Command;

use figures::{Bar, Facts, steepest_slope};
use serde_json::Value;

use super::{Figures, beside, figures_of, results, waiting};
use crate::Result;

/// How a figure may grow with the size.
#[derive(Clone, Copy)]
enum Growth {
    /// Not at all: the size is that of the surroundings, and one run, call or turn is touched. Indexes become deeper, so
    /// a doubling for each factor of ten is allowed.
    Flat,
    /// In proportion, with some room for noise and for `n log n`.
    Linear,
    /// The figure has no bar.
    Any,
}

impl Growth {
    fn bar(self) -> Option<Bar> {
        match self {
            Self::Flat => Some(Bar::AtMost(0.3)),
            Self::Linear => Some(Bar::AtMost(1.2)),
            Self::Any => None,
        }
    }
}

/// Measures the points of a curve, smallest first. The folder is empty, and of this curve alone.
type Measure = fn(&[usize], &Path, &mut dyn FnMut(usize, Figures)) -> Result<()>;

pub(super) struct Curve {
    pub(super) name: &'static str,
    title: &'static str,
    sizes: &'static [usize],
    quick: &'static [usize],
    figures: &'static [(&'static str, Growth)],
    measure: Measure,
}

use Growth::{Any, Flat, Linear};

pub(super) const CURVES: [Curve; 6] = [
    Curve {
        name: "catalogs",
        title: "tools in a catalog",
        sizes: &[20, 200, 2_000, 20_000, 50_000],
        quick: &[20, 200, 1_000],
        figures: &[
            ("build_ms", Linear),
            ("first_search_ms", Linear),
            ("search_p50_ms", Linear),
            ("search_p99_ms", Any),
            ("first_cell_ms", Linear),
            ("memory_mib", Linear),
        ],
        measure: |sizes, _, found| each(sizes, found, |size| this_program("catalogs", size)),
    },
    Curve {
        name: "waiting",
        title: "suspended runs in one SQLite file, opened by another process",
        sizes: &[1, 10, 100, 1_000, 10_000, 100_000],
        quick: &[1, 10, 200],
        figures: &[
            ("exec_p50_ms", Flat),
            ("exec_p99_ms", Any),
            ("store_mib", Linear),
            ("host_mib", Linear),
            ("ready_ms", Flat),
            ("memory_mib", Any),
            ("resume_p50_ms", Flat),
            ("resume_p99_ms", Any),
        ],
        measure: waiting::measure,
    },
    Curve {
        name: "results",
        title: "bytes of the result of one tool call",
        sizes: &[1_000, 16_000, 256_000, 4 << 20, 16 << 20, 64 << 20],
        quick: &[1_000, 256_000, 4 << 20],
        figures: &[("cell_p50_ms", Linear), ("cell_max_ms", Any), ("stored_mib", Linear), ("peak_mib", Linear)],
        measure: results::measure,
    },
    Curve {
        name: "servers",
        title: "MCP servers behind one `cellmate mcp`",
        // More than 256 servers are not configured.
        sizes: &[1, 8, 64, 128, 256],
        quick: &[1, 8],
        figures: &[("ready_ms", Linear), ("memory_mib", Linear), ("call_p50_ms", Flat), ("call_p99_ms", Any)],
        measure: |sizes, _, found| {
            each(sizes, found, |size| {
                let mut command = Command::new(beside("cellmate-bench-servers")?);
                command.args(["--only-start", &size.to_string()]);
                Ok(command)
            })
        },
    },
    Curve {
        name: "nodes",
        title: "nodes that share one Postgres, 24 runs at once in total",
        sizes: &[1, 2, 3],
        quick: &[1, 2],
        figures: &[("runs_per_second", Any), ("ms_per_run", Flat), ("run_p50_ms", Flat), ("run_p99_ms", Any)],
        measure: |sizes, _, found| each(sizes, found, |size| this_program("nodes", size)),
    },
    Curve {
        name: "gateway",
        title: "turns with a cell at once at one gateway",
        sizes: &[1, 10, 100, 1_000],
        quick: &[1, 10],
        figures: &[
            ("cell_cpu_ms", Flat),
            ("cell_p50_ms", Linear),
            ("cell_p99_ms", Any),
            ("cell_pss_mib", Linear),
            ("cell_refused", Any),
            ("cell_lost", Any),
        ],
        measure: |sizes, _, found| {
            each(sizes, found, |size| {
                let mut command = Command::new(beside("cellmate-bench-gateway")?);
                let turns = (2 * size).max(60);
                command.args(["--only-turns", "--at-once", &size.to_string(), "--turns", &turns.to_string()]);
                Ok(command)
            })
        },
    },
];

/// Measures each point with a program of its own.
fn each(
    sizes: &[usize],
    found: &mut dyn FnMut(usize, Figures),
    command: impl Fn(usize) -> Result<Command>,
) -> Result<()> {
    sizes.iter().try_for_each(|size| {
        found(*size, figures_of(command(*size)?)?);
        Ok(())
    })
}

fn this_program(curve: &str, size: usize) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["growth-point", curve, &size.to_string()]);
    Ok(command)
}

impl Curve {
    /// Measures and prints the curve, and returns the bars of its slopes.
    pub(super) fn measure(&self, quick: bool, folder: &Path, facts: &mut Facts) -> Result<Vec<(String, Bar)>> {
        let folder = folder.join(self.name);
        std::fs::create_dir(&folder)?;
        print!("\n{}\n{:>10}", self.title, "");
        self.figures.iter().for_each(|(figure, _)| print!("{figure:>17}"));
        println!();
        let mut points: Vec<(usize, Figures)> = Vec::new();
        (self.measure)(if quick { self.quick } else { self.sizes }, &folder, &mut |size, figures| {
            print!("{size:>10}");
            for (figure, _) in self.figures {
                let value = figures.get(*figure).and_then(Value::as_f64).unwrap_or(f64::NAN);
                print!("{value:>17.3}");
                facts.add(&format!("{}_{size}_{figure}", self.name), value);
            }
            println!();
            points.push((size, figures));
        })?;
        print!("{:>10}", "slope");
        let mut claims = Vec::new();
        for (figure, growth) in self.figures {
            let Some(bar) = growth.bar() else {
                print!("{:>17}", "");
                continue;
            };
            let value = |(size, figures): &(usize, Figures)| Some((*size as f64, figures.get(*figure)?.as_f64()?));
            let slope = steepest_slope(&points.iter().filter_map(value).collect::<Vec<_>>());
            print!("{slope:>17.2}");
            let name = format!("{}_{figure}_slope", self.name);
            facts.add(&name, slope);
            claims.push((name, bar));
        }
        println!();
        Ok(claims)
    }
}
