//! The report on all hostile cells, as text and as JSON.

use std::fmt::Write;
use std::time::Duration;

use contract::cell::CellResult;
use contract::error::ErrorCode;
use serde::Serialize;
use serde_json::json;

use super::index::{Cell, Expectation};
use super::memory::MemoryUsage;

/// Values and errors are cut to this length in the report.
const MAX_SHOWN_CHARS: usize = 200;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub cells: Vec<CellReport>,
    /// Problems of the host after the last cell.
    #[serde(rename = "host")]
    pub host_problems: Vec<String>,
    /// Memory that was not released after the last cell.
    #[serde(rename = "grown")]
    pub unreleased: MemoryUsage,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellReport {
    pub id: String,
    pub title: String,
    pub category: String,
    pub passed: bool,
    /// Whether the cell ended because its time was over.
    #[serde(skip)]
    pub has_timed_out: bool,
    pub expected: String,
    pub got: String,
    pub problems: Vec<String>,
    pub wall_ms: u64,
    /// Peak memory of host and workers while the cell ran.
    pub peak: MemoryUsage,
}

impl CellReport {
    pub fn new(cell: &Cell, result: &CellResult, wall: Duration, peak: MemoryUsage, problems: Vec<String>) -> Self {
        let expected: Vec<String> = cell.expect.iter().map(format_expectation).collect();
        Self {
            id: cell.id.clone(),
            title: cell.title.clone(),
            category: cell.category.clone(),
            passed: problems.is_empty(),
            has_timed_out: result.code() == Some(ErrorCode::Timeout),
            expected: expected.join(" or "),
            got: format_result(result),
            problems,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            peak,
        }
    }
}

impl Report {
    pub fn failed(&self) -> usize {
        self.cells.iter().filter(|cell| !cell.passed).count() + self.host_problems.len()
    }

    pub fn passed(&self) -> usize {
        self.cells.iter().filter(|cell| cell.passed).count()
    }

    /// Formats a line for each failed cell and a summary.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for CellReport { id, title, expected, got, problems, .. } in self.cells.iter().filter(|cell| !cell.passed) {
            writeln!(text, "{id} {title}: expected {expected}; got {got}; {}", problems.join("; ")).ok();
        }
        for problem in &self.host_problems {
            writeln!(text, "host: {problem}").ok();
        }
        let peak_mib =
            |bytes: fn(&MemoryUsage) -> u64| self.cells.iter().map(|cell| bytes(&cell.peak)).max().unwrap_or(0) >> 20;
        let (host, worker) = (peak_mib(|usage| usage.host_bytes), peak_mib(|usage| usage.worker_bytes));
        writeln!(text, "peak memory: host {host} MiB, worker {worker} MiB").ok();
        writeln!(text, "{} passed, {} failed", self.passed(), self.failed()).ok();
        text
    }
}

fn format_expectation(expected: &Expectation) -> String {
    let mut text = expected.status.clone();
    if let Some(codes) = &expected.code {
        let codes: Vec<&str> = codes.iter().map(|code| code.as_deref().unwrap_or("no code")).collect();
        write!(text, " ({})", codes.join(", ")).ok();
    }
    if let Some(value) = &expected.value {
        write!(text, " {}", shown(&value.to_string())).ok();
    }
    if let Some(value) = &expected.value_subset {
        write!(text, " with {}", shown(&value.to_string())).ok();
    }
    text
}

fn format_result(result: &CellResult) -> String {
    match result {
        CellResult::Completed { value, .. } => format!("completed {}", shown(value.get())),
        CellResult::Waiting { reason, pending_tool_calls, .. } => {
            format!("waiting ({}, {} calls)", json!(reason), pending_tool_calls.len())
        }
        CellResult::Failed { error, code, .. } => {
            format!("failed ({}) {}", code.map_or("no code", |code| code.as_str()), shown(error))
        }
    }
}

fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
