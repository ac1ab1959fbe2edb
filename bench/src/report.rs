//! The table of results, and the bars of the sandbox benchmark.

use figures::{Bar, Claim, Facts, Samples};

use crate::Result;

const NAME_COLUMNS: usize = 62;

/// The bars of the sandbox benchmark.
pub(crate) const SANDBOX: [Claim; 15] = [
    ("trivial_worker_ratio", Bar::AtLeast(15.0)),
    ("trivial_sandbox_ratio", Bar::AtLeast(25.0)),
    ("snapshot_bytes", Bar::AtMost(8192.0)),
    ("restore_worker_ratio", Bar::AtLeast(15.0)),
    ("nested_call_ratio", Bar::AtLeast(1.0)),
    ("nested_wide_inprocess_ratio", Bar::AtLeast(1.0)),
    ("stored_bytes_per_cell", Bar::AtMost(10240.0)),
    ("start_to_first_cell_ms", Bar::AtMost(30.0)),
    ("worst_overshoot_ms", Bar::AtMost(50.0)),
    ("catalog_500_overhead_percent", Bar::AtMost(20.0)),
    ("neighbour_ratio", Bar::AtMost(2.0)),
    ("cpu_ratio_median", Bar::AtLeast(0.95)),
    ("cpu_ratio_worst", Bar::AtLeast(0.85)),
    ("freeze_5mb_zstd_ratio", Bar::AtLeast(2.0)),
    ("restore_5mb_zstd_ratio", Bar::AtLeast(2.0)),
];

#[derive(Debug, Default)]
pub(crate) struct Report {
    facts: Facts,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn heading(&self, title: &str) {
        let columns = ["ours p50", "ours p99", "peer p50", "peer p99", "ratio"];
        print!("\n{title:<NAME_COLUMNS$}");
        columns.iter().for_each(|column| print!("{column:>11}"));
        println!();
    }

    /// Prints a line with both sides and returns the ratio: the peer's p50 divided by ours.
    pub(crate) fn compare(&self, name: &str, ours: &Samples, peer: &Samples) -> f64 {
        let ratio = peer.p50() / ours.p50();
        self.line(
            name,
            [time(ours.p50()), time(ours.p99()), time(peer.p50()), time(peer.p99()), format!("{ratio:.2}x")],
        );
        ratio
    }

    /// Prints a line for a measurement that the peer has no counterpart for.
    pub(crate) fn show(&self, name: &str, ours: &Samples) {
        self.line(name, [time(ours.p50()), time(ours.p99()), String::new(), String::new(), String::new()]);
    }

    /// Prints a line of single numbers, with an optional ratio.
    pub(crate) fn numbers(&self, name: &str, ours: &str, peer: &str, ratio: Option<f64>) {
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        self.line(name, [ours.to_owned(), String::new(), peer.to_owned(), String::new(), ratio]);
    }

    fn line(&self, name: &str, columns: [String; 5]) {
        print!("{name:<NAME_COLUMNS$}");
        columns.iter().for_each(|column| print!("{column:>11}"));
        println!();
    }

    pub(crate) fn fact(&mut self, name: &str, value: f64) {
        self.facts.add(name, value);
    }

    pub(crate) fn verdict(&self, claims: &[Claim]) -> Result<bool> {
        self.facts.verdict(claims)
    }
}

/// Formats a time with about three significant digits and a unit.
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        us if us < 99.95 => format!("{us:.1} µs"),
        us if us < 999.5 => format!("{us:.0} µs"),
        us if us < 99_950.0 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

pub(crate) fn bytes(count: f64) -> String {
    match count {
        few if few.abs() < 10_240.0 => format!("{few:.0} B"),
        some if some.abs() < 10_485_760.0 => format!("{:.0} KiB", some / 1024.0),
        many => format!("{:.1} MiB", many / 1_048_576.0),
    }
}
