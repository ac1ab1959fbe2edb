//! Prints the table of results.

use std::time::Duration;

use figures::{Claim, Facts, Samples};

use crate::Result;

const NAME_COLUMNS: usize = 66;

#[derive(Debug, Default)]
pub(crate) struct Report {
    facts: Facts,
}

impl Report {
    pub(crate) fn heading(&self, title: &str) {
        println!("\n{title}");
    }

    pub(crate) fn line(&self, name: &str, value: &str) {
        println!("  {name:<NAME_COLUMNS$}{value:>14}");
    }

    /// Prints p50, p99 and the maximum of times in milliseconds.
    pub(crate) fn times(&self, name: &str, samples: &Samples) {
        println!(
            "  {name:<NAME_COLUMNS$}{:>11.1} ms   p99 {:.1}, longest {:.1}, of {}",
            samples.p50(),
            samples.p99(),
            samples.max(),
            samples.len()
        );
    }

    pub(crate) fn fact(&mut self, name: &str, value: f64) {
        self.facts.add(name, value);
    }

    pub(crate) fn verdict(&self, claims: &[Claim]) -> Result<bool> {
        self.facts.verdict(claims)
    }
}

pub(crate) fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
