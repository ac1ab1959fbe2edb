//! Measures trivial cells per second, with several in flight for each worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cells::CellText;
use crate::ours::{BareSandbox, Runner, STACK_BYTES};
use crate::peer::number;
use crate::{Bench, Result};

/// Cells that run at once in each worker.
const IN_FLIGHT: usize = 4;
const ROUNDS: usize = 2;
const WARMUP: Duration = Duration::from_millis(300);

/// The default number of threads of a worker.
const DEFAULT_THREADS: usize = 16;

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    bench.report.heading("trivial cells per second, 4 in flight per worker");
    let seconds = if bench.rounds(5) < 5 { 0.5 } else { 1.5 };
    let length = Duration::from_secs_f64(seconds);
    for workers in [1, 2] {
        let (mut alone, mut with_one_thread, mut with_default_threads, mut peer) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..ROUNDS {
            alone += sandbox_throughput(bench, workers, length)? / ROUNDS as f64;
            with_one_thread += worker_throughput(bench, workers, 1, length)? / ROUNDS as f64;
            with_default_threads += worker_throughput(bench, workers, DEFAULT_THREADS, length)? / ROUNDS as f64;
            let seed = bench.cells.reserve_numbers(1_000_000);
            let request = json!({"op": "throughput", "workers": workers, "in_flight": IN_FLIGHT, "seconds": seconds, "seed": seed});
            peer += number(&bench.peer.ask(&request)?, "cells_per_s")? / ROUNDS as f64;
        }
        let rows = [
            (format!("{workers} thread(s) of the sandbox alone"), alone),
            (format!("{workers} worker process(es) of 1 thread"), with_one_thread),
            (format!("{workers} worker process(es) of {DEFAULT_THREADS} threads"), with_default_threads),
        ];
        for (name, ours) in &rows {
            bench.report.numbers(name, &format!("{ours:.0}/s"), &format!("{peer:.0}/s"), Some(ours / peer));
        }
        bench.report.fact(&format!("cells_per_second_{workers}"), with_default_threads);
        bench.report.fact(&format!("cells_per_second_{workers}_single_threaded"), with_one_thread);
        bench.report.fact(&format!("cells_per_second_{workers}_sandbox_alone"), alone);
        bench.report.fact(&format!("peer_cells_per_second_{workers}"), peer);
    }
    Ok(())
}

/// Returns the cells per second in worker processes.
fn worker_throughput(bench: &mut Bench, workers: usize, threads: usize, length: Duration) -> Result<f64> {
    let runner = bench.ours.pool(workers, threads)?;
    let numbers = Arc::new(AtomicU64::new(bench.cells.reserve_numbers(10_000_000)));
    let count = move |length: Duration| {
        let (runner, numbers) = (runner.clone(), Arc::clone(&numbers));
        async move {
            let from = Instant::now();
            let lanes: Vec<_> = (0..workers * IN_FLIGHT)
                .map(|_| tokio::spawn(run_cells_until(runner.clone(), Arc::clone(&numbers), from + length)))
                .collect();
            let mut cells = 0;
            for lane in lanes {
                cells += lane.await??;
            }
            Ok(cells as f64 / from.elapsed().as_secs_f64())
        }
    };
    bench.ours.wait_for(count(WARMUP))?;
    bench.ours.wait_for(count(length))
}

/// Runs cells one after the other until this time, and returns how many.
async fn run_cells_until(runner: Runner, numbers: Arc<AtomicU64>, until: Instant) -> Result<u64> {
    let mut cells = 0;
    while Instant::now() < until {
        runner.complete(&trivial(numbers.fetch_add(1, Ordering::Relaxed))).await?;
        cells += 1;
    }
    Ok(cells)
}

/// Returns the cells per second in threads of this process that use the sandbox directly.
fn sandbox_throughput(bench: &mut Bench, threads: usize, length: Duration) -> Result<f64> {
    let alone = BareSandbox::new(&bench.ours.runner.catalog)?;
    let numbers = Arc::new(AtomicU64::new(bench.cells.reserve_numbers(10_000_000)));
    let from = Instant::now();
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (alone, numbers) = (alone.clone(), Arc::clone(&numbers));
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || -> Result<u64> {
                let mut cells = 0;
                while from.elapsed() < WARMUP + length {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    alone.complete(number, &trivial(number))?;
                    cells += u64::from(from.elapsed() > WARMUP);
                }
                Ok(cells)
            })
        })
        .collect::<std::io::Result<_>>()?;
    let mut cells = 0;
    for thread in running {
        cells += thread.join().map_err(|_| "a thread of the sandbox died")??;
    }
    Ok(cells as f64 / length.as_secs_f64())
}

/// Returns the trivial cell of `cells.json`. It is built here because concurrent tasks cannot share `Cells`.
fn trivial(number: u64) -> CellText {
    CellText { source: format!("return {number}+1"), expect: (number + 1).to_string() }
}
