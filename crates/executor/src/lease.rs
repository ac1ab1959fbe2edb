//! How long a process may take it, without asking the store, that its runs are still its own.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::now_ms;

/// A lease as its holder's own clock has it. A process that was held up for long finds it over when it wakes, and
/// asks the store before it calls a tool.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    length: Duration,
    renewed: Arc<Mutex<Instant>>,
    /// How far the store's clock is ahead of this machine's. All who share a store tell leases by its clock.
    ahead_ms: Arc<AtomicI64>,
}

impl LeaseClock {
    pub fn new(length: Duration) -> Self {
        Self { length, renewed: Arc::new(Mutex::new(Instant::now())), ahead_ms: Arc::default() }
    }

    /// What the store's clock said, asked at one time of ours and heard at another. What the time in between can explain
    /// changes nothing.
    pub fn heard(&self, store_ms: i64, asked_ms: i64, heard_ms: i64) {
        let least = store_ms.saturating_sub(heard_ms);
        let most = store_ms.saturating_sub(asked_ms).max(least);
        self.ahead_ms.store(self.ahead_ms.load(Ordering::Relaxed).clamp(least, most), Ordering::Relaxed);
    }

    /// The time, as the store has it.
    pub fn now_ms(&self) -> i64 {
        now_ms().saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// When a lease that begins now is over.
    pub fn until_ms(&self) -> i64 {
        self.now_ms().saturating_add(self.length_ms())
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
    fn a_lease_is_measured_by_the_stores_clock_however_wrong_the_local_one_is() {
        let clock = LeaseClock::new(Duration::from_secs(3));
        let ahead = |clock: &LeaseClock| clock.now_ms() - crate::clock::now_ms();
        // The round trip took 100 ms, so the store is between 59,900 and 60,000 ms ahead.
        clock.heard(1_060_000, 1_000_000, 1_000_100);
        assert!((59_899..=60_000).contains(&ahead(&clock)), "{}", ahead(&clock));
        assert!(clock.until_ms() > crate::clock::now_ms() + 62_000);
        // An answer consistent with the known offset changes nothing; an inconsistent one replaces it.
        let before = ahead(&clock);
        clock.heard(2_059_950, 2_000_000, 2_000_500);
        assert!((ahead(&clock) - before).abs() <= 1);
        clock.heard(2_000_000, 2_005_000, 2_005_010);
        assert!((-5_011..=-4_999).contains(&ahead(&clock)), "{}", ahead(&clock));
    }

    #[test]
    fn a_lease_expires_when_it_was_not_renewed_for_its_length() {
        let clock = LeaseClock::new(Duration::from_secs(3));
        assert!(clock.lasts());
        clock.renewed_at(Instant::now() - Duration::from_secs(4));
        assert!(!clock.lasts());
        clock.renewed_at(Instant::now());
        assert!(clock.lasts());
    }
}
