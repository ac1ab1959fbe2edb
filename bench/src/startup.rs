//! Measures a new process from its start through one cell to its exit.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use figures::Samples;
use serde_json::Value;

use crate::stats::us_since;
use crate::{Bench, Result, peer};

const TIMES: usize = 20;

const CATALOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/trip.tools.json");

pub(crate) fn run(bench: &mut Bench) -> Result<()> {
    let cellmate = cellmate()?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    // The first round only fills the page cache.
    for round in 0..=bench.rounds(TIMES) {
        let mut command = Command::new(&cellmate);
        // With canned tools neither the user's servers nor their store matter.
        command.args(["exec", "--catalog", CATALOG, "-e", &format!("return {round}+1")]);
        let (took, output) = timed(&mut command)?;
        let result: Value = serde_json::from_str(&output)?;
        if result.get("value") != Some(&Value::from(round + 1)) {
            return Err(format!("`cellmate exec` printed {output}").into());
        }
        let (peer_took, peer_output) = timed(&mut peer::node("first.mjs")?)?;
        if peer_output.trim() != "ok" {
            return Err(format!("the peer's first.mjs printed {peer_output}").into());
        }
        if round > 0 {
            ours.push(took);
            theirs.push(peer_took);
        }
    }
    bench.report.heading("a new process to its first cell's result");
    bench.report.compare("cellmate exec -e 'return 1' with canned tools, spawn to exit | first.mjs", &ours, &theirs);
    bench.report.fact("start_to_first_cell_ms", ours.p50() / 1e3);
    Ok(())
}

/// The path of the `cellmate` binary, which is built beside this program.
fn cellmate() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("cellmate");
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} is missing; run `cargo build --release -p cellmate-cli`", path.display()).into())
}

fn timed(command: &mut Command) -> Result<(f64, String)> {
    let from = Instant::now();
    let output = command.output()?;
    let took = us_since(from);
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok((took, String::from_utf8(output.stdout)?))
}
