//! Internal errors: the details are logged, and the model gets only an id with which an operator finds them in the log.

use std::error::Error;
use std::fmt;

/// The id of an internal error in the log: eight hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncidentId(u32);

impl IncidentId {
    /// Logs an error and its causes at level `error`, and returns the id under which it is logged.
    pub fn log(operation: &'static str, error: &(dyn Error + 'static)) -> Self {
        let incident = Self::new();
        tracing::error!(%incident, operation, error = error_chain(error), "internal error");
        incident
    }

    fn new() -> Self {
        // If the system has no randomness, all incidents have the id 0. Their log lines still differ in time.
        Self(getrandom::u32().unwrap_or(0))
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Returns an error's message, followed by the messages of its causes.
///
/// Many errors repeat the message of their cause in their own. Such a cause is not repeated here.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !last.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        last = message;
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::{IncidentId, error_chain};

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|layer| layer as _)
        }
    }

    #[test]
    fn the_chain_names_each_cause_once() {
        let root = Layer("disk full", None);
        let middle = Layer("write failed: disk full", Some(Box::new(root)));
        let top = Layer("cannot store the run", Some(Box::new(middle)));
        assert_eq!(error_chain(&top), "cannot store the run: write failed: disk full");
    }

    #[test]
    fn an_incident_is_eight_digits_and_differs_from_the_next() {
        let error = Layer("broken", None);
        let (first, second) = (IncidentId::log("test", &error), IncidentId::log("test", &error));
        assert_eq!(first.to_string().len(), 8);
        assert_ne!(first, second);
    }
}
