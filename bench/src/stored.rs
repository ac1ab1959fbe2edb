//! Measures the memory of a thousand different suspended cells, kept as snapshots in the host.

use contract::limits::Limits;
use figures::machine::resident_bytes;
use serde_json::json;

use crate::cells::CellText;
use crate::ours::{Runner, budget};
use crate::peer::number;
use crate::report::bytes;
use crate::{Bench, Result};

const CELLS: usize = 1000;
const WARMUP: usize = 100;
/// Fewer cells for the peer, because each takes more than a megabyte.
const PEER_CELLS: usize = 200;

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    bench.report.heading("1,000 suspended cells kept, per cell");
    let texts = bench.cells.texts("suspend_trivial", WARMUP + CELLS)?;
    let (stored, resident) = keep(bench, texts)?;
    let mut own_data = bench.cells.texts("suspend_trivial", WARMUP + CELLS)?;
    own_data.iter_mut().enumerate().for_each(|(number, text)| carry_data(text, number));
    let (stored_with_data, _) = keep(bench, own_data)?;
    for (compress, how) in [("none", "as is"), ("zstd", "with zstd")] {
        let seed = bench.cells.reserve_numbers(PEER_CELLS);
        let answer = bench.peer.ask(&json!({
            "op": "suspended_1000", "mode": "warm", "n": PEER_CELLS, "compress": compress, "seed": seed,
        }))?;
        let per_cell = |field: &str| Ok::<f64, crate::BoxError>(number(&answer, field)? / number(&answer, "n")?);
        let (peer_stored, peer_resident) = (per_cell("total_bytes")?, per_cell("rss_growth_bytes")?);
        let report = &bench.report;
        report.numbers(&format!("stored | {how}"), &bytes(stored), &bytes(peer_stored), Some(peer_stored / stored));
        report.numbers(&format!("growth of the host's RSS | {how}"), &bytes(resident), &bytes(peer_resident), None);
    }
    bench.report.numbers("stored, each with about 2 KB of different data", &bytes(stored_with_data), "", None);
    bench.report.fact("stored_bytes_per_cell", stored);
    bench.report.fact("rss_bytes_per_cell", resident);
    Ok(())
}

/// Returns the bytes stored and the growth of resident memory, per cell. The first texts only warm up.
fn keep(bench: &Bench, mut texts: Vec<CellText>) -> Result<(f64, f64)> {
    let measured = texts.split_off(WARMUP);
    bench.ours.wait_for(frozen(bench.ours.runner.clone(), texts))?;
    let before = resident_bytes("self")?;
    let snapshots = bench.ours.wait_for(frozen(bench.ours.runner.clone(), measured))?;
    let grown = resident_bytes("self")? as f64 - before as f64;
    let total: usize = snapshots.iter().map(Vec::len).sum();
    let count = snapshots.len() as f64;
    Ok((total as f64 / count, grown / count))
}

async fn frozen(runner: Runner, texts: Vec<CellText>) -> Result<Vec<Vec<u8>>> {
    let mut snapshots = Vec::with_capacity(texts.len());
    for text in texts {
        let (lease, _) = runner.start(text.source, budget()).await?;
        snapshots.push(lease.freeze(Limits::DEFAULT.snapshot_bytes).await?);
    }
    Ok(snapshots)
}

/// Adds records to a cell that no other cell has.
fn carry_data(text: &mut CellText, number: usize) {
    let mut state = number as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let rows: Vec<_> = (0..20)
        .map(|_| json!({"id": next(), "name": format!("record {:x}", next()), "note": format!("{:x}{:x}{:x}", next(), next(), next())}))
        .collect();
    text.source = format!("const rows={};{}", json!(rows), text.source.replace("return ", "rows.length;return "));
}
