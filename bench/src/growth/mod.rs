//! Growth curves: what happens to times and sizes when there are more tools, runs, servers, nodes or turns.
//!
//! A point of a curve is measured by other processes than this one, so that memory of one point does not affect the next:
//! `cellmate mcp`, the programs `cellmate-bench-servers` and `cellmate-bench-gateway`, or this program started again
//! ([`point`]).

mod catalogs;
mod curve;
mod host;
mod nodes;
mod results;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use figures::machine::load_average;
use figures::{Bar, Facts};
use serde_json::{Map, Value};

use crate::Result;
use crate::nodes::SERVER;
use curve::CURVES;

/// The figures of one point, by their names.
type Figures = Map<String, Value>;

/// Bars of the largest number of suspended runs: 3 s, 300 MB more than with an empty store, and 1 GB.
const LARGEST: [(&str, Bar); 3] = [
    ("waiting_100000_ready_ms", Bar::AtMost(3_000.0)),
    ("waiting_100000_memory_mib", Bar::AtMost(286.0)),
    ("waiting_100000_store_mib", Bar::AtMost(953.0)),
];

/// Runs `growth [--quick] [CURVE…]` and returns whether every bar was met.
pub(crate) fn run(options: &[String]) -> Result<bool> {
    let quick = options.iter().any(|option| option == "--quick");
    let names: Vec<&String> = options.iter().filter(|option| *option != "--quick").collect();
    if let Some(unknown) = names.iter().find(|name| !CURVES.iter().any(|curve| curve.name == name.as_str())) {
        let known: Vec<&str> = CURVES.iter().map(|curve| curve.name).collect();
        return Err(format!("no curve `{unknown}`; there are {}", known.join(", ")).into());
    }
    let load = load_average()?;
    println!("load average before: {load:.2}");
    let mut facts = Facts::default();
    facts.add("load_average", load);
    let mut claims: Vec<(String, Bar)> = Vec::new();
    let folder = std::env::temp_dir().join(format!("cellmate-bench-growth-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = CURVES
        .iter()
        .filter(|curve| names.is_empty() || names.iter().any(|name| *name == curve.name))
        .try_for_each(|curve| {
            if curve.name == "nodes" && std::env::var(SERVER).is_err() {
                println!("\nno curve of nodes: {SERVER} names no Postgres server");
                return Ok(());
            }
            claims.extend(curve.measure(quick, &folder, &mut facts)?);
            if curve.name == "waiting" && !quick {
                claims.extend(LARGEST.map(|(name, bar)| (name.to_owned(), bar)));
            }
            Ok::<(), crate::BoxError>(())
        });
    std::fs::remove_dir_all(&folder)?;
    measured?;
    println!("\nload average after: {:.2}", load_average()?);
    facts.verdict(&claims)
}

/// Measures one point in this process, and prints its figures as one line of JSON.
pub(crate) fn point(curve: &str, size: usize) -> Result<bool> {
    let facts = match curve {
        "catalogs" => catalogs::measure(size),
        "nodes" => nodes::measure(size),
        other => Err(format!("no point of {other} is measured by itself").into()),
    };
    facts?.verdict::<&str>(&[])
}

/// Runs a program that prints figures as a line of JSON, and returns them.
fn figures_of(mut command: Command) -> Result<Figures> {
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().rev().find(|line| line.starts_with('{'));
    match figures {
        Some(figures) if output.status.success() => Ok(serde_json::from_str(figures)?),
        _ => Err(format!("{command:?} failed: {}", output.status).into()),
    }
}

/// Returns the program of this name beside this one.
fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    path.canonicalize().map_err(|error| format!("{}: {error}; build it first", path.display()).into())
}

/// Returns the bytes of all files in a folder whose names begin with `prefix`.
fn files_bytes(folder: &Path, prefix: &str) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
