//! Measures cells that only compute. Both sides run the same engine, so neither should win by much.

use std::time::Instant;

use figures::Samples;
use serde_json::json;

use crate::cells::CellText;
use crate::ours::Runner;
use crate::report::time;
use crate::stats::us_since;
use crate::{Bench, Result};

const ROUNDS: usize = 8;

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    bench.report.heading("computing cells, through the worker | in process");
    let mut ratios = Samples::default();
    for name in bench.cells.computing_names() {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for round in 0..=bench.rounds(ROUNDS) {
            let text = bench.cells.text(&name)?;
            let now = bench.ours.wait_for(once(bench.ours.runner.clone(), text))?;
            let seed = bench.cells.reserve_numbers(1);
            let request = json!({"op": "cpu", "mode": "inprocess", "cell": name, "n": 1, "seed": seed});
            let theirs = bench.peer.samples(&request, "samples_us")?;
            if round > 0 {
                ours.push(now);
                peer.add(theirs);
            }
        }
        let least = format!("{name} (min {} | {})", time(ours.min()), time(peer.min()));
        bench.report.compare(&least, &ours, &peer);
        ratios.push(peer.min() / ours.min());
    }
    println!("ratios of the minima: {:.2}x to {:.2}x, median {:.2}x", ratios.min(), ratios.max(), ratios.p50());
    bench.report.fact("cpu_ratio_worst", ratios.min());
    bench.report.fact("cpu_ratio_median", ratios.p50());
    Ok(())
}

async fn once(runner: Runner, text: CellText) -> Result<f64> {
    let from = Instant::now();
    runner.complete(&text).await?;
    Ok(us_since(from))
}
