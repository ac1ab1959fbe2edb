//! Load average and process memory, from `/proc`.

use crate::Result;

/// The load average of the last minute.
pub fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// Resident memory of a process in bytes. `process` is a process id or `self`.
pub fn resident_bytes(process: &str) -> Result<u64> {
    status_bytes(process, "VmRSS:")
}

/// The largest resident memory that a process has had, in bytes.
pub fn peak_bytes(process: &str) -> Result<u64> {
    status_bytes(process, "VmHWM:")
}

fn status_bytes(process: &str, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.ok_or_else(|| format!("the process status has no {name}"))?;
    let kilobytes: u64 = line.trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
