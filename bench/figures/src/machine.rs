//! What Linux says of the machine and of a process.

use crate::Result;

/// Of the last minute.
pub fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// Bytes of a process that are in memory; `self` is one, too.
pub fn resident_bytes(process: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("its status has no VmRSS")?;
    let kilobytes: u64 = line.trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
