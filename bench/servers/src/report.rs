//! The table, the facts a machine reads, and the bars they must clear.

use serde_json::{Map, Value};

use crate::Result;
use crate::stats::Samples;

const NAME_COLUMNS: usize = 66;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    facts: Map<String, Value>,
}

impl Report {
    pub(crate) fn heading(&self, title: &str) {
        println!("\n{title}");
    }

    pub(crate) fn line(&self, name: &str, value: &str) {
        println!("  {name:<NAME_COLUMNS$}{value:>14}");
    }

    /// Times as p50, p99 and the longest.
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
        let rounded = (value * 1000.0).round() / 1000.0;
        self.facts.insert(name.to_owned(), Value::from(rounded));
    }

    /// Says how each bar was met, then every fact in one line.
    pub(crate) fn verdict(&self, bars: &[(&str, Bar)]) -> Result<bool> {
        let mut all_met = true;
        println!();
        for (name, bar) in bars {
            let value =
                self.facts.get(*name).and_then(Value::as_f64).ok_or_else(|| format!("{name} was not measured"))?;
            let (met, sign, bound) = match bar {
                Bar::AtLeast(bound) => (value >= *bound, "≥", bound),
                Bar::AtMost(bound) => (value <= *bound, "≤", bound),
            };
            all_met &= met;
            println!("{} {name:<36} {value:>10.2}   bar {sign} {bound}", if met { "pass" } else { "FAIL" });
        }
        println!("{}", serde_json::to_string(&self.facts)?);
        Ok(all_met)
    }
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
