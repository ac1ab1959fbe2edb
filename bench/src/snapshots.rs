//! Measures suspending a cell to a snapshot and resuming it to its result, through the worker process.

use std::time::Instant;

use contract::frame::{Deliver, LegEnd};
use contract::limits::Limits;
use figures::Samples;
use serde_json::{Value, json};

use crate::cells::CellText;
use crate::ours::{Runner, answer, budget, check};
use crate::peer::{number, samples};
use crate::report::bytes;
use crate::stats::us_since;
use crate::{Bench, Result};

struct Payload {
    name: &'static str,
    cell: &'static str,
    rounds: usize,
    ours: usize,
    peer: usize,
}

const PAYLOADS: [Payload; 2] = [
    Payload { name: "trivial", cell: "suspend_trivial", rounds: 10, ours: 100, peer: 20 },
    Payload { name: "5mb", cell: "suspend_5mb", rounds: 6, ours: 2, peer: 2 },
];

/// Measurements of one side: from source to snapshot, the snapshot part of that, and from snapshot to value.
#[derive(Default)]
struct Cycle {
    suspend: Samples,
    freeze: Samples,
    restore: Samples,
    bytes: f64,
}

impl Cycle {
    fn add(&mut self, now: Self) {
        self.suspend.add(now.suspend);
        self.freeze.add(now.freeze);
        self.restore.add(now.restore);
        self.bytes = now.bytes;
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    for payload in &PAYLOADS {
        let (mut ours, mut plain, mut packed) = (Cycle::default(), Cycle::default(), Cycle::default());
        for round in 0..=bench.rounds(payload.rounds) {
            let texts = bench.cells.texts(payload.cell, payload.ours)?;
            let now = bench.ours.wait_for(cycles(bench.ours.runner.clone(), texts))?;
            let now_plain = peer_cycles(bench, payload, "none")?;
            let now_packed = peer_cycles(bench, payload, "zstd")?;
            if round > 0 {
                ours.add(now);
                plain.add(now_plain);
                packed.add(now_packed);
            }
        }
        print(bench, payload, &ours, [("as is", &plain), ("with zstd", &packed)]);
    }
    Ok(())
}

/// Suspends, freezes, thaws and completes each cell.
async fn cycles(runner: Runner, texts: Vec<CellText>) -> Result<Cycle> {
    let mut cycle = Cycle::default();
    for text in texts {
        let from = Instant::now();
        let (lease, leg) = runner.start(text.source.clone(), budget()).await?;
        let suspended = Instant::now();
        let snapshot = lease.freeze(Limits::DEFAULT.snapshot_bytes).await?;
        cycle.freeze.push(us_since(suspended));
        cycle.suspend.push(us_since(from));
        cycle.bytes = snapshot.len() as f64;
        let LegEnd::Suspended { calls, .. } = &leg.end else {
            return Err(format!("`{}` did not suspend: {:?}", text.source, leg.end).into());
        };
        let replies = answer(calls)?;
        let from = Instant::now();
        let deliver = Deliver { budget: budget(), replies };
        let (_lease, leg) = runner.pool.thaw_cell(runner.catalog.tables(), snapshot, deliver).await?;
        check(&text, &leg)?;
        cycle.restore.push(us_since(from));
    }
    Ok(cycle)
}

fn peer_cycles(bench: &mut Bench, payload: &Payload, compress: &str) -> Result<Cycle> {
    let mut ask = |op: &str| -> Result<Value> {
        let seed = bench.cells.reserve_numbers(payload.peer);
        let request = json!({
            "op": op, "mode": "warm", "payload": payload.name, "compress": compress, "n": payload.peer, "seed": seed,
        });
        bench.peer.ask(&request)
    };
    let (suspend, restore) = (ask("suspend")?, ask("restore")?);
    Ok(Cycle {
        suspend: samples(&suspend, "samples_us")?,
        freeze: samples(&suspend, "snapshot_us")?,
        restore: samples(&restore, "samples_us")?,
        bytes: number(&suspend, "bytes")?,
    })
}

fn print(bench: &mut Bench, payload: &Payload, ours: &Cycle, peers: [(&str, &Cycle); 2]) {
    let report = &mut bench.report;
    report.heading(&format!("suspended cell, {} payload, through the worker | warm", payload.name));
    for (how, peer) in peers {
        report.compare(&format!("source to bytes | {how}"), &ours.suspend, &peer.suspend);
        let freeze = report.compare(&format!("  of that, suspended to bytes | {how}"), &ours.freeze, &peer.freeze);
        let restore = report.compare(&format!("bytes and reply to value | {how}"), &ours.restore, &peer.restore);
        let sizes = (bytes(ours.bytes), bytes(peer.bytes));
        report.numbers(&format!("size | {how}"), &sizes.0, &sizes.1, Some(peer.bytes / ours.bytes));
        if how == "as is" {
            let (ratio, size) = match payload.name {
                "trivial" => ("restore_worker_ratio", "snapshot_bytes"),
                _ => ("restore_5mb_worker_ratio", "snapshot_5mb_bytes"),
            };
            report.fact(ratio, restore);
            report.fact(size, ours.bytes);
        } else if payload.name == "5mb" {
            report.fact("freeze_5mb_zstd_ratio", freeze);
            report.fact("restore_5mb_zstd_ratio", restore);
        }
    }
}
