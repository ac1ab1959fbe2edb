//! Hostile cells: a folder of them is driven through a real host, and each is judged by what came of it.
//!
//! A cell passes when its outcome is one that its index allows, and when everything that must hold after any
//! cell still holds: the host answers, other runs go on, nothing leaked, nothing is left behind.

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

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aftermath::{Bystander, canary};
use index::{Cell, Index};
use lab::Lab;
use memory::{PeakMonitor, StoreSize, Usage};
use report::{CellReport, Report};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How a folder is driven.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cells and their `index.json`.
    pub folder: PathBuf,
    /// Where the host keeps what it keeps; nothing else may be written.
    pub state: PathBuf,
    /// Must look the same afterwards.
    pub untouched: Vec<PathBuf>,
    /// Limits on time are multiplied by this: for builds without optimisation on busy machines.
    pub slack: u32,
    /// How long after a cell host and workers may take to give memory back.
    pub settle: Duration,
}

pub async fn run(options: &Options) -> Result<Report> {
    let index = Index::read(&options.folder)?;
    let before = process::listing(&options.untouched);
    let lab = Lab::start(&options.state, index.default_config.clone()).await?;
    // The first cell ever makes what all later ones share.
    canary(&lab, options.slack).await;
    let start = Usage::now();
    let mut cells = Vec::new();
    for cell in &index.cells {
        cells.push(one(&lab, options, cell, start).await?);
    }
    let (grown, mut host) = memory::settle(start, options.settle).await;
    host.extend(process::new_files(&before, &process::listing(&options.untouched)));
    host.extend(secrets::on_disk(&options.state, &index.cells));
    Ok(Report { cells, host, grown })
}

/// One cell from before it starts to when all that it may have harmed was looked at.
async fn one(lab: &Lab, options: &Options, cell: &Cell, start: Usage) -> Result<CellReport> {
    let stored = StoreSize::of(&lab::database(&options.state));
    let peaks = PeakMonitor::start()?;
    let prepared = lab.prepare(&format!("cell-{}", cell.id), &cell.needs.config)?;
    let bystander = Bystander::suspend(lab, &cell.id).await?;
    let began = Instant::now();
    let outcome = drive::drive(lab, &prepared, cell).await;
    let wall = began.elapsed();

    let mut problems = canary(lab, options.slack).await.into_iter().collect::<Vec<_>>();
    problems.extend(bystander.resume(lab).await);
    problems.extend(judge::expectation(cell, &outcome.last));
    problems.extend(judge::side_effects(cell, &prepared.effects));
    problems.extend(judge::wall(cell, wall, options.slack));
    problems.extend(secrets::leaked(lab, &prepared, cell, &outcome).await);
    problems.extend(process::strangers(lab::WORKERS));
    lab.end(&prepared).await;
    let (peak, above) = peaks.stop();
    problems.extend(above);
    problems.extend(memory::settle(start, options.settle).await.1);
    problems.extend(stored.problem());
    Ok(CellReport::new(cell, &outcome.last, wall, peak, problems))
}

/// The file in which a cell's effects are written down.
fn effects_file(state: &Path, session: &str) -> PathBuf {
    state.join(format!("{session}.effects"))
}
