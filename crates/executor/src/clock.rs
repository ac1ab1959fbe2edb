//! Wall-clock time, as it is stored, and the local view of leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Returns milliseconds since 1970.
pub fn now_ms() -> i64 {
    i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
}

/// Returns microseconds since 1970.
pub fn now_us() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

fn since_1970() -> Duration {
    // A simulation has its own clock.
    fault::time().unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The holder's local view of a lease: how long a process may assume, without asking the store, that it still holds its
/// runs. A process that was suspended for long finds the lease expired, and asks the
/// store before it calls a tool.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    length: Duration,
    renewed: Arc<Mutex<Instant>>,
    /// How far the store's clock is ahead of this machine's. All processes that share a store use its clock for leases.
    ahead_ms: Arc<AtomicI64>,
}

impl LeaseClock {
    pub fn new(length: Duration) -> Self {
        Self { length, renewed: Arc::new(Mutex::new(Instant::now())), ahead_ms: Arc::default() }
    }

    /// Adjusts the offset by a reading of the store's clock. `asked_ms` and `answered_ms` are the local times of
    /// request and response; an offset that fits between them is kept.
    pub fn adjust_to_store(&self, store_ms: i64, asked_ms: i64, answered_ms: i64) {
        let least = store_ms.saturating_sub(answered_ms);
        let max = store_ms.saturating_sub(asked_ms).max(least);
        self.ahead_ms.store(self.ahead_ms.load(Ordering::Relaxed).clamp(least, max), Ordering::Relaxed);
    }

    /// Returns the current time of the store's clock.
    pub fn now_ms(&self) -> i64 {
        now_ms().saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Returns when a lease that starts now expires.
    pub fn until_ms(&self) -> i64 {
        self.now_ms().saturating_add(self.length_ms())
    }

    /// Records a renewal of all runs of this process that started at `then`.
    pub fn renewed_at(&self, then: Instant) {
        *self.renewed.lock() = then;
    }

    /// Returns whether the lease has not expired yet.
    pub fn lasts(&self) -> bool {
        self.renewed.lock().elapsed() + fault::clock_lead() < self.length
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
    fn a_lease_follows_the_stores_clock_even_if_the_local_clock_is_wrong() {
        let clock = LeaseClock::new(Duration::from_secs(3));
        let ahead = |clock: &LeaseClock| clock.now_ms() - super::now_ms();
        // The answer took 100 ms: the store is between 59,900 and 60,000 ahead.
        clock.adjust_to_store(1_060_000, 1_000_000, 1_000_100);
        assert!((59_899..=60_000).contains(&ahead(&clock)), "{}", ahead(&clock));
        assert!(clock.until_ms() > super::now_ms() + 62_000);
        // A reading that fits the known offset changes nothing; one that does not fit replaces it.
        let before = ahead(&clock);
        clock.adjust_to_store(2_059_950, 2_000_000, 2_000_500);
        assert!((ahead(&clock) - before).abs() <= 1);
        clock.adjust_to_store(2_000_000, 2_005_000, 2_005_010);
        assert!((-5_011..=-4_999).contains(&ahead(&clock)), "{}", ahead(&clock));
    }

    #[test]
    fn a_lease_expires_when_it_is_not_renewed_for_its_length() {
        let clock = LeaseClock::new(Duration::from_secs(3));
        assert!(clock.lasts());
        clock.renewed_at(Instant::now() - Duration::from_secs(4));
        assert!(!clock.lasts());
        clock.renewed_at(Instant::now());
        assert!(clock.lasts());
    }
}
