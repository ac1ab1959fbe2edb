//! A limit of how often something happens within a period.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Rate {
    most: usize,
    period: Duration,
    /// When the last ones happened, oldest first; at most `most`.
    times: VecDeque<Instant>,
}

impl Rate {
    pub(super) fn new(most: usize, period: Duration) -> Self {
        Self { most, period, times: VecDeque::new() }
    }

    /// Counts one more, or returns how long to wait for that.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        while self.times.front().is_some_and(|first| now.duration_since(*first) >= self.period) {
            self.times.pop_front();
        }
        if let Some(first) = self.times.front().filter(|_| self.times.len() >= self.most) {
            return Err(self.period.saturating_sub(now.duration_since(*first)));
        }
        self.times.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Rate;

    #[test]
    fn more_than_the_rate_must_wait_until_the_oldest_leaves_the_period() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rate = Rate::new(2, Duration::from_secs(10));
        assert_eq!((rate.admit(at(0)), rate.admit(at(4))), (Ok(()), Ok(())));
        assert_eq!(rate.admit(at(5)), Err(Duration::from_secs(5)));
        assert_eq!(rate.admit(at(10)), Ok(()));
        assert_eq!(rate.admit(at(11)), Err(Duration::from_secs(3)));
        assert_eq!(rate.admit(at(100)), Ok(()));
    }
}
