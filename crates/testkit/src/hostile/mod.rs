//! Runs a folder of hostile cells through a real host and checks what each of them achieved.
//!
//! A cell passes if the index allows its outcome and the host is unharmed afterwards: the host answers, other runs
//! resume, no secret leaked, and no process, file or memory is left behind.

pub mod index;
pub mod mcp_server;
pub mod report;

mod aftermath;
mod drive;
mod fixture;
mod judge;
mod lab;
mod memory;
mod process;
mod secrets;
mod store_growth;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aftermath::{Bystander, canary};
use index::{Cell, Index};
use lab::Lab;
use memory::{MemoryUsage, PeakMonitor};
use report::{CellReport, Report};
use store_growth::StoreGrowth;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Options for running a folder of hostile cells.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the cells and their `index.json`.
    pub folder: PathBuf,
    /// The folder for the host's files; nothing else may be written.
    pub state: PathBuf,
    /// Folders in which no file may be created.
    pub untouched: Vec<PathBuf>,
    /// Factor for all time limits, for unoptimised builds on busy machines.
    pub time_factor: u32,
    /// How long host and workers may take to release memory after a cell.
    pub settle: Duration,
}

pub async fn run(options: &Options) -> Result<Report> {
    let index = Index::read(&options.folder)?;
    let before = process::listing(&options.untouched);
    let lab = Lab::start(&options.state, index.default_config.clone()).await?;
    // The first cell allocates what all later ones share; it must not count as growth.
    canary(&lab, options.time_factor).await;
    let start = MemoryUsage::now();
    let mut cells = Vec::new();
    for cell in &index.cells {
        let mut report = run_cell(&lab, options, cell, 1, start).await?;
        // On a busy machine, a cell can use up its time before it has done what is expected.
        if options.time_factor > 1 && !report.passed && report.has_timed_out {
            report = run_cell(&lab, options, cell, options.time_factor, start).await?;
        }
        cells.push(report);
    }
    let (unreleased, mut host_problems) = memory::wait_for_release(start, options.settle).await;
    host_problems.extend(process::new_files(&before, &process::listing(&options.untouched)));
    host_problems.extend(secrets::on_disk(&options.state, &index.cells));
    Ok(Report { cells, host_problems, unreleased })
}

/// Runs one cell in a session of its own, with `factor` times its time limit, and checks everything that it may have
/// harmed.
async fn run_cell(lab: &Lab, options: &Options, cell: &Cell, factor: u32, start: MemoryUsage) -> Result<CellReport> {
    let name = &format!("{}-{factor}", cell.id);
    let store_growth = StoreGrowth::start(&lab::database(&options.state));
    let peaks = PeakMonitor::start()?;
    let prepared = lab.prepare(&format!("cell-{name}"), &cell.needs.config, factor)?;
    let bystander = Bystander::start_suspended(lab, name).await?;
    let began = Instant::now();
    let outcome = drive::drive(lab, &prepared, cell).await;
    let wall = began.elapsed();

    let mut problems = canary(lab, options.time_factor).await.into_iter().collect::<Vec<_>>();
    problems.extend(bystander.resume(lab).await);
    problems.extend(judge::expectation(cell, &outcome.last));
    problems.extend(judge::side_effects(cell, &prepared.effects));
    problems.extend(judge::wall(cell, wall, options.time_factor));
    problems.extend(secrets::leaked(lab, &prepared, cell, &outcome).await);
    problems.extend(process::unexpected(lab::WORKERS));
    lab.end(&prepared).await;
    let (peak, above) = peaks.stop();
    problems.extend(above);
    problems.extend(memory::wait_for_release(start, options.settle).await.1);
    problems.extend(store_growth.problem());
    Ok(CellReport::new(cell, &outcome.last, wall, peak, problems))
}

/// Returns the path of the file that records the effects of a session's tools.
fn effects_file(state: &Path, session: &str) -> PathBuf {
    state.join(format!("{session}.effects"))
}
