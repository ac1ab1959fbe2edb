//! Turns of the incumbent, OpenClaw's gateway, compared with turns of ours that run in the same minutes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use figures::{Facts, Samples};

use crate::gateway::{Binaries, Gateway};
use crate::turns::{run_jobs, turn};
use crate::{Result, print_line};

/// The npm packages, and the ends of their facts' names.
const PACKAGES: [(&str, &str); 2] = [("openclaw-2026-9-6", "openclaw"), ("openclaw-2026-6-1", "openclaw_2026_6_1")];

/// Where `npm ci --ignore-scripts --prefix bench/peer/openclaw` installs them.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../peer/openclaw/node_modules");

/// Clients at once, and turns of each kind. OpenClaw takes seconds for each turn if there are more.
const CLIENTS: usize = 4;
const TURNS: usize = 24;

/// Turns before the measurement. The first one of OpenClaw takes seconds.
const WARM_UP: usize = 4;

/// What one gateway did.
struct Measured {
    cpu_ms: f64,
    times: Samples,
    lost: usize,
}

/// Compares turns with those of each OpenClaw that is installed, one gateway after the other.
pub(crate) fn measure(binaries: &Binaries, facts: &mut Facts) -> Result<()> {
    for (package, fact) in PACKAGES {
        let path: PathBuf = Path::new(FOLDER).join(package);
        if !path.exists() {
            println!(
                "\nskipped: {package} is not installed; `npm ci --ignore-scripts --prefix bench/peer/openclaw` does that"
            );
            continue;
        }
        let path = path.canonicalize()?;
        let openclaw = match Gateway::start_openclaw(binaries, &path) {
            Ok(openclaw) => openclaw,
            Err(error) => {
                println!("\nskipped: {package}: {error}");
                continue;
            }
        };
        let cellmate = Gateway::start(binaries)?;
        println!("\n{TURNS} turns of each kind, {CLIENTS} at once, beside {package}");
        let (ready, pss) = (openclaw.time_to_ready.as_secs_f64() * 1e3, openclaw.pss_mib()?);
        print_line(&format!("{package}: ready; memory"), &format!("{ready:.0} ms; {pss:.0} MiB"));
        facts.add(&format!("{fact}_ready_ms"), ready);
        facts.add(&format!("{fact}_pss_mib"), pss);
        for kind in ["plain", "cell"] {
            let (theirs, ours) = (measure_kind(&openclaw, kind)?, measure_kind(&cellmate, kind)?);
            let (their_p50, our_p50) = (theirs.times.p50(), ours.times.p50());
            print_line(
                &format!("{kind}: {package} (CPU; p50)"),
                &format!("{:.0} ms; {their_p50:.0} ms", theirs.cpu_ms),
            );
            print_line(&format!("{kind}: cellmate (CPU; p50)"), &format!("{:.1} ms; {our_p50:.0} ms", ours.cpu_ms));
            print_line(
                &format!("{kind}: turns lost by {package}; by cellmate"),
                &format!("{}; {}", theirs.lost, ours.lost),
            );
            facts.add(&format!("{kind}_{fact}_cpu_ms"), theirs.cpu_ms);
            facts.add(&format!("{kind}_{fact}_p50_ms"), their_p50);
            facts.add(&format!("{kind}_{fact}_lost"), theirs.lost as f64);
            facts.add(&format!("{kind}_{fact}_cpu_ratio"), theirs.cpu_ms / ours.cpu_ms);
            facts.add(&format!("{kind}_{fact}_p50_ratio"), their_p50 / our_p50);
        }
    }
    Ok(())
}

fn measure_kind(gateway: &Gateway, kind: &str) -> Result<Measured> {
    run_jobs(gateway, CLIENTS, WARM_UP, |client, number| turn(client, kind, TURNS + number));
    let (cpu, began) = (gateway.cpu_ms()?, Instant::now());
    let results = run_jobs(gateway, CLIENTS, TURNS, |client, number| turn(client, kind, number));
    let cpu_ms = (gateway.cpu_ms()? - cpu) / TURNS as f64;
    if results.times.is_empty() {
        return Err(format!("no turn of {TURNS} succeeded in {:.0} s", began.elapsed().as_secs_f64()).into());
    }
    Ok(Measured { cpu_ms, times: results.times, lost: results.lost })
}
