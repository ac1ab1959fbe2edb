//! Measures tool calls from inside a cell that the host answers: one after the other, and sixteen at once.

use std::time::Instant;

use contract::frame::LegEnd;
use figures::Samples;

use crate::cells::CellText;
use crate::ours::{Runner, answer, budget, check};
use crate::peer::request;
use crate::stats::us_since;
use crate::{Bench, Result};

const ROUNDS: usize = 12;
const CELLS: usize = 6;

struct Kind {
    cell: &'static str,
    calls: f64,
    modes: &'static [(&'static str, &'static str)],
}

const KINDS: [Kind; 2] = [
    Kind {
        cell: "nested_seq",
        calls: 200.0,
        modes: &[("warm", "nested_call_ratio"), ("inprocess", "nested_call_inprocess_ratio")],
    },
    Kind {
        cell: "nested_wide",
        calls: 192.0,
        modes: &[("warm", "nested_wide_ratio"), ("inprocess", "nested_wide_inprocess_ratio")],
    },
];

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    bench.report.heading("nested calls, per call, through the worker process");
    for kind in &KINDS {
        let mut ours = Samples::default();
        let mut peer = vec![Samples::default(); kind.modes.len()];
        for round in 0..=bench.rounds(ROUNDS) {
            let texts = bench.cells.texts(kind.cell, CELLS)?;
            let now = bench.ours.wait_for(calls(bench.ours.runner.clone(), texts, kind.calls))?;
            for ((mode, _), peer) in kind.modes.iter().zip(&mut peer) {
                let seed = bench.cells.reserve_numbers(CELLS);
                let theirs = bench.peer.samples(&request(kind.cell, mode, CELLS, seed), "calls_us")?;
                if round > 0 {
                    peer.add(theirs);
                }
            }
            if round > 0 {
                ours.add(now);
            }
        }
        for ((mode, fact), peer) in kind.modes.iter().zip(&peer) {
            let width = if kind.cell == "nested_seq" { "one after the other" } else { "16 at once" };
            let ratio = bench.report.compare(&format!("{width} | {mode}"), &ours, peer);
            bench.report.fact(fact, ratio);
        }
    }
    Ok(())
}

/// Returns the time per call, measured from the first call to the cell's value.
async fn calls(runner: Runner, texts: Vec<CellText>, count: f64) -> Result<Samples> {
    let mut samples = Samples::default();
    for text in texts {
        let (mut lease, mut leg) = runner.start(text.source.clone(), budget()).await?;
        let from = Instant::now();
        let mut made = 0;
        while let LegEnd::Suspended { calls, .. } = &leg.end {
            made += calls.len();
            leg = lease.deliver(budget(), answer(calls)?).await?;
        }
        check(&text, &leg)?;
        samples.push(us_since(from) / count);
        if made as f64 != count {
            return Err(format!("a cell made {made} calls, not {count}").into());
        }
    }
    Ok(samples)
}
