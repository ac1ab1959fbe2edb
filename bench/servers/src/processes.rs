//! Finds the processes of the fleet in `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use crate::Result;

/// A process id and its start time: ids are reused, but not together with the start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    start_time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cellmate,
    Worker,
    /// The process that starts one server and ends it with `cellmate`.
    Keeper,
    Server,
}

/// The processes of a fleet at one time, with their kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census(Vec<(Process, Kind)>);

impl Census {
    /// Collects the process `cellmate` and its descendants, and all processes with the mark in their environment or
    /// command line.
    pub(crate) fn take(cellmate: i32, mark: &str) -> Result<Self> {
        let rows = rows()?;
        let parents: HashMap<i32, i32> = rows.iter().map(|row| (row.process.pid, row.parent)).collect();
        let descends = |pid: i32| {
            let up = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
            up.take(rows.len()).any(|pid| pid == cellmate)
        };
        let ours = rows.iter().filter(|row| descends(row.process.pid) || has_mark(row.process.pid, mark));
        Ok(Self(ours.map(|row| (row.process, kind(row.process.pid, cellmate))).collect()))
    }

    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = Process> {
        self.0.iter().filter(move |(_, one)| *one == kind).map(|(process, _)| *process)
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.of(kind).count()
    }

    /// Returns the processes of this census that still run, and new ones with the mark. Zombies do not count.
    pub(crate) fn remaining(&self, mark: &str) -> Result<Vec<Process>> {
        let known: HashSet<Process> = self.0.iter().map(|(process, _)| *process).collect();
        let here = rows()?.into_iter().map(|row| row.process);
        Ok(here.filter(|process| known.contains(process) || has_mark(process.pid, mark)).collect())
    }
}

/// Returns the process id of the server that runs this script; `None` if there is none.
pub(crate) fn find_server(script: &Path) -> Result<Option<i32>> {
    let script = script.display().to_string();
    let runs = |pid: i32| {
        let words = command_line(pid);
        words.first().is_some_and(|program| program.ends_with("fake-mcp")) && words.get(1) == Some(&script)
    };
    Ok(rows()?.into_iter().map(|row| row.process.pid).find(|pid| runs(*pid)))
}

/// Returns the private memory of a process in bytes; `None` if it cannot be read.
pub(crate) fn private_bytes(pid: i32) -> Option<u64> {
    let part = |name| field_bytes(&format!("/proc/{pid}/smaps_rollup"), name).ok();
    Some(part("Private_Clean:")? + part("Private_Dirty:")?)
}

/// Reads a field that a file of `/proc` has in kB, and returns it in bytes.
fn field_bytes(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name} in {path}"))?;
    Ok(line.trim_end_matches("kB").trim().parse::<u64>()? << 10)
}

/// A running process and its parent.
struct Row {
    process: Process,
    parent: i32,
}

/// Returns all running processes. A process that ends during the scan is left out.
fn rows() -> Result<Vec<Row>> {
    let numbers = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(row).collect())
}

/// Reads a process from `/proc`; `None` if it has ended.
fn row(pid: i32) -> Option<Row> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain any characters, so it ends at the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let (state, parent, start_time) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    let runs = !matches!(*state, "Z" | "X");
    runs.then_some(Row { process: Process { pid, start_time: start_time.parse().ok()? }, parent: parent.parse().ok()? })
}

/// Returns whether the mark is in the command line or environment of a process, other than this program.
fn has_mark(pid: i32, mark: &str) -> bool {
    if i32::try_from(std::process::id()) == Ok(pid) {
        return false;
    }
    let holds = |file: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(mark)
    };
    holds("cmdline") || holds("environ")
}

fn kind(pid: i32, cellmate: i32) -> Kind {
    let program = command_line(pid).into_iter().next().unwrap_or_default();
    match program.as_str() {
        _ if pid == cellmate => Kind::Cellmate,
        "cellmate-worker" => Kind::Worker,
        "cellmate-keeper" => Kind::Keeper,
        // A child of a keeper is a server, even before it has executed the server's program.
        _ => Kind::Server,
    }
}

fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
