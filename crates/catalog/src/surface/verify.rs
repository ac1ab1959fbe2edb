//! Verifies that a payload's tools are those of the surface.

use std::collections::BTreeMap;
use std::fmt;

use contract::limits::MAX_IDENTIFIER_BYTES;

use crate::text::clean;

/// The maximum number of names in a message.
const MAX_NAMED: usize = 8;

/// The reason why a payload must not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SurfaceViolation {
    pub extra: Vec<String>,
    pub missing: Vec<String>,
    pub repeated: Vec<String>,
}

pub(super) fn verify(expected: &[String], names: &[&str]) -> Result<(), SurfaceViolation> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let mut violation = SurfaceViolation { extra: Vec::new(), missing: Vec::new(), repeated: Vec::new() };
    for name in expected {
        match counts.remove(name.as_str()) {
            None => violation.missing.push(name.clone()),
            Some(1) => {}
            Some(_) => violation.repeated.push(name.clone()),
        }
    }
    violation.extra.extend(counts.into_keys().map(|name| clean(name, MAX_IDENTIFIER_BYTES)));
    let SurfaceViolation { extra, missing, repeated } = &violation;
    if extra.is_empty() && missing.is_empty() && repeated.is_empty() { Ok(()) } else { Err(violation) }
}

impl fmt::Display for SurfaceViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request's tools are not those of this run")?;
        let lists = [("extra", &self.extra), ("missing", &self.missing), ("more than once", &self.repeated)];
        for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
            let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
            write!(f, "; {what}: {}", shown.join(", "))?;
            if names.len() > MAX_NAMED {
                write!(f, " and {} more", names.len() - MAX_NAMED)?;
            }
        }
        Ok(())
    }
}
