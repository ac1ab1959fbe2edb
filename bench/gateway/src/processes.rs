//! CPU time and memory of a process and all its descendants, from `/proc`.

use std::collections::HashMap;
use std::fs;

use crate::Result;

/// One process as `/proc/PID/stat` describes it.
struct Row {
    pid: u32,
    parent: u32,
    /// Of the process and of its children that have ended.
    ticks: u64,
}

fn row(pid: u32) -> Option<Row> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything; it ends at the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = (11..=14).map(number).sum::<Option<u64>>()?;
    Some(Row { pid, parent: u32::try_from(number(1)?).ok()?, ticks })
}

/// Returns this process and its descendants. A process that ends during the scan is left out.
fn family(root: u32) -> Result<Vec<Row>> {
    let numbers = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let rows: Vec<Row> = numbers.filter_map(row).collect();
    let parents: HashMap<u32, u32> = rows.iter().map(|row| (row.pid, row.parent)).collect();
    let count = rows.len();
    let descends = |pid: u32| {
        let mut up = std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).take(count);
        up.any(|pid| pid == root)
    };
    Ok(rows.into_iter().filter(|row| descends(row.pid)).collect())
}

/// Returns the CPU time that a process and its descendants have used, in milliseconds.
pub(crate) fn cpu_ms(root: u32) -> Result<f64> {
    let ticks: u64 = family(root)?.iter().map(|row| row.ticks).sum();
    Ok(ticks as f64 * 1e3 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the proportional set size of a process and its descendants, in MiB.
pub(crate) fn pss_mib(root: u32) -> Result<f64> {
    let mut kilobytes = 0;
    for row in family(root)? {
        let path = format!("/proc/{}/smaps_rollup", row.pid);
        let text = fs::read_to_string(&path)?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or_else(|| format!("no Pss in {path}"))?;
        kilobytes += line.trim_end_matches("kB").trim().parse::<u64>()?;
    }
    Ok(kilobytes as f64 / 1024.0)
}
