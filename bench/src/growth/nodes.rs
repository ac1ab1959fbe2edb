//! One number of nodes on one Postgres: runs per second, and their times.

use std::time::Instant;

use figures::{Facts, Samples};
use store::Location;
use tokio::task::JoinSet;

use crate::Result;
use crate::codemode_runs::{executed, trivial};
use crate::nodes::{Node, SERVER, warm_up};

/// Runs at once, and in total, of all nodes together.
const CONCURRENT: usize = 24;
const RUNS: usize = 3_000;

pub(super) fn measure(count: usize) -> Result<Facts> {
    let location = Location::Postgres(std::env::var(SERVER)?);
    let nodes = (0..count).map(|_| Node::start(&location, true)).collect::<Result<Vec<_>>>()?;
    nodes.iter().try_for_each(warm_up)?;
    let from = Instant::now();
    let mut samples = Samples::default();
    let work: Vec<_> = nodes
        .iter()
        .map(|node| {
            let setup = node.setup.clone();
            node.spawn(async move {
                let mut lanes = JoinSet::new();
                for _ in 0..CONCURRENT / count {
                    lanes.spawn(executed(setup.clone(), trivial, 1, RUNS / CONCURRENT));
                }
                let mut samples = Samples::default();
                while let Some(lane) = lanes.join_next().await {
                    samples.add(lane??);
                }
                Ok(samples)
            })
        })
        .collect();
    for (node, work) in nodes.iter().zip(work) {
        samples.add(node.wait_for(async { work.await? })?);
    }
    let seconds = from.elapsed().as_secs_f64();
    nodes.into_iter().try_for_each(Node::shut_down)?;
    let mut facts = Facts::default();
    facts.add("runs_per_second", samples.len() as f64 / seconds);
    facts.add("ms_per_run", seconds * 1e3 / samples.len() as f64);
    facts.add("run_p50_ms", samples.p50() / 1e3);
    facts.add("run_p99_ms", samples.p99() / 1e3);
    Ok(facts)
}
