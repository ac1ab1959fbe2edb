//! How long a process may take it, without asking the store, that its runs are still its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A lease as its holder's own clock has it. A process that was held up for long finds it over when it wakes, and
/// asks the store before it calls a tool.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    length: Duration,
    renewed: Arc<Mutex<Instant>>,
}

impl LeaseClock {
    pub fn new(length: Duration) -> Self {
        Self { length, renewed: Arc::new(Mutex::new(Instant::now())) }
    }

    /// All runs of this process were prolonged by somebody who began to do so then.
    pub fn renewed_at(&self, then: Instant) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = then;
    }

    pub fn lasts(&self) -> bool {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < self.length
    }

    pub fn length_ms(&self) -> i64 {
        i64::try_from(self.length.as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::LeaseClock;

    #[test]
    fn a_lease_is_over_when_nobody_renewed_it_for_its_length() {
        let clock = LeaseClock::new(Duration::from_secs(3));
        assert!(clock.lasts());
        clock.renewed_at(Instant::now() - Duration::from_secs(4));
        assert!(!clock.lasts());
        clock.renewed_at(Instant::now());
        assert!(clock.lasts());
    }
}
