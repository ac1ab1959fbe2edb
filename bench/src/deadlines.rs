//! Measures how late endless cells are stopped, and how much they slow down another cell in the same worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::error::ErrorCode;
use contract::frame::{Budget, LegEnd};
use figures::Samples;
use serde_json::{Value, json};

use crate::cells::CellText;
use crate::endless::ENDLESS;
use crate::ours::{Runner, budget};
use crate::stats::us_since;
use crate::{Bench, Result};

const BUDGET_MS: u64 = 100;
const TIMES: usize = 5;
/// Time between two endless cells, in which the neighbour runs alone.
const PAUSE: Duration = Duration::from_millis(25);

/// Shared state with the task that runs the neighbour's cells.
#[derive(Default)]
struct Neighbour {
    /// Odd while an endless cell runs. A sample counts only if this did not change during it.
    phase: AtomicU64,
    over: AtomicBool,
}

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    let runner = bench.ours.pool(1, 16)?;
    let times = bench.rounds(TIMES);
    let (overshoots, worst, idle, busy) = bench.ours.wait_for(beside(runner, times))?;
    let peer = peer(bench)?;

    let report = &mut bench.report;
    report.heading("endless cells with 100 ms, a neighbour in the same worker");
    report.compare(
        &format!("overshoot, {} kinds, {} runs | interrupt handler", ENDLESS.len(), overshoots.len()),
        &overshoots,
        &peer.stopped,
    );
    println!("worst overshoot {:.1} ms, by `{}`", overshoots.max() / 1e3, worst);
    println!(
        "the peer's interrupt handler stops {} of {}, worst {:.1} ms late; {}",
        peer.stopped.len(),
        ENDLESS.len(),
        peer.stopped.max() / 1e3,
        peer.others
    );
    report.show("neighbour's trivial cell, alone", &idle);
    report.show("neighbour's trivial cell, beside an endless one", &busy);
    report.fact("worst_overshoot_ms", overshoots.p99() / 1e3);
    report.fact("max_overshoot_ms", overshoots.max() / 1e3);
    report.fact("neighbour_ratio", busy.p50() / idle.p50());
    report.fact("neighbour_p99_ratio", busy.p99() / idle.p99());
    Ok(())
}

/// Runs every endless cell `times` times while another task runs trivial ones.
async fn beside(runner: Runner, times: usize) -> Result<(Samples, String, Samples, Samples)> {
    let neighbour = Arc::new(Neighbour::default());
    let trivial = tokio::spawn(trivial_cells(runner.clone(), Arc::clone(&neighbour)));
    let mut overshoots = Samples::default();
    let mut worst = (f64::MIN, "");
    for _ in 0..times {
        for (name, source) in ENDLESS {
            tokio::time::sleep(PAUSE).await;
            neighbour.phase.fetch_add(1, Ordering::SeqCst);
            let late = overshoot(&runner, name, source).await?;
            neighbour.phase.fetch_add(1, Ordering::SeqCst);
            overshoots.push(late);
            if late > worst.0 {
                worst = (late, name);
            }
        }
    }
    neighbour.over.store(true, Ordering::SeqCst);
    let (idle, busy) = trivial.await??;
    Ok((overshoots, worst.1.to_owned(), idle, busy))
}

/// Returns how long after its budget an endless cell's failure arrived, in microseconds.
async fn overshoot(runner: &Runner, name: &str, source: &str) -> Result<f64> {
    let from = Instant::now();
    let (_lease, leg) = runner.start(source.to_owned(), Budget { run_ms: BUDGET_MS, ..budget() }).await?;
    let took = us_since(from);
    match &leg.end {
        LegEnd::Failed(failure) if failure.code == Some(ErrorCode::Timeout) => Ok(took - BUDGET_MS as f64 * 1e3),
        other => Err(format!("the endless cell `{name}` ended with {other:?}").into()),
    }
}

/// Runs trivial cells and returns the samples taken alone and those taken beside an endless cell.
async fn trivial_cells(runner: Runner, neighbour: Arc<Neighbour>) -> Result<(Samples, Samples)> {
    let (mut idle, mut busy) = (Samples::default(), Samples::default());
    let mut number = 0_u64;
    while !neighbour.over.load(Ordering::SeqCst) {
        number += 1;
        let text = CellText { source: format!("return {number}+1"), expect: (number + 1).to_string() };
        let phase = neighbour.phase.load(Ordering::SeqCst);
        let from = Instant::now();
        runner.complete(&text).await?;
        let took = us_since(from);
        if neighbour.phase.load(Ordering::SeqCst) == phase {
            if phase.is_multiple_of(2) { idle.push(took) } else { busy.push(took) }
        }
    }
    Ok((idle, busy))
}

struct PeerStops {
    /// Overshoots of the cells that the interrupt handler stopped.
    stopped: Samples,
    others: String,
}

fn peer(bench: &mut Bench) -> Result<PeerStops> {
    let sources: Vec<&str> = ENDLESS.iter().map(|(_, source)| *source).collect();
    let request = json!({"op": "loop", "sources": sources, "deadline_ms": BUDGET_MS, "grace_ms": 1000});
    let answer = bench.peer.ask(&request)?;
    let results = answer.get("results").and_then(Value::as_array).ok_or("the peer's answer has no `results`")?;
    let by = |result: &Value| result.get("stopped_by").and_then(Value::as_str).unwrap_or_default().to_owned();
    let stopped = results
        .iter()
        .filter(|result| by(result) == "interrupt")
        .filter_map(|result| result.get("overshoot_ms").and_then(Value::as_f64))
        .map(|late| late * 1e3)
        .collect();
    let others: Vec<String> = ENDLESS
        .iter()
        .zip(results)
        .filter(|(_, result)| by(result) != "interrupt")
        .map(|((name, _), result)| format!("{name}: {}", by(result)))
        .collect();
    Ok(PeerStops { stopped, others: others.join(", ") })
}
