//! Machine-readable results (facts), and the bars that they must meet.

use serde_json::{Map, Value};

use crate::Result;

#[derive(Clone, Copy, Debug)]
pub enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

/// The name of a fact, and its bar.
pub type Claim = (&'static str, Bar);

#[derive(Debug, Default)]
pub struct Facts(Map<String, Value>);

impl Facts {
    pub fn add(&mut self, name: &str, value: f64) {
        let rounded = (value * 1000.0).round() / 1000.0;
        self.0.insert(name.to_owned(), Value::from(rounded));
    }

    /// Prints whether each bar was met, then every fact as one line of JSON. Returns whether all bars were met.
    pub fn verdict<N: AsRef<str>>(&self, claims: &[(N, Bar)]) -> Result<bool> {
        let mut all_met = true;
        println!();
        for (name, bar) in claims {
            let name = name.as_ref();
            let value = self.0.get(name).and_then(Value::as_f64).ok_or_else(|| format!("{name} was not measured"))?;
            let (met, sign, bound) = match bar {
                Bar::AtLeast(bound) => (value >= *bound, "≥", bound),
                Bar::AtMost(bound) => (value <= *bound, "≤", bound),
            };
            all_met &= met;
            println!("{} {name:<36} {value:>10.2}   bar {sign} {bound}", if met { "pass" } else { "FAIL" });
        }
        println!("{}", serde_json::to_string(&self.0)?);
        Ok(all_met)
    }
}
