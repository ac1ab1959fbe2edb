//! Counts requests with invalid tokens by peer network.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{FAILED_LOGIN_WINDOW, MAX_FAILED_LOGINS, MAX_FAILED_NETWORKS};
use crate::slots::PeerNetwork;

/// The requests with invalid tokens of the last minute.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<HashMap<PeerNetwork, Window>>);

/// The requests of one network since the first of them.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    count: u32,
}

impl FailedLogins {
    /// Counts a request with an invalid token. Returns how long its network must wait, if it has sent too many.
    pub(crate) fn count(&self, network: PeerNetwork, now: Instant) -> Option<Duration> {
        let mut windows = self.0.lock();
        let is_over = |window: &Window| now.saturating_duration_since(window.since) >= FAILED_LOGIN_WINDOW;
        if windows.len() >= MAX_FAILED_NETWORKS && !windows.contains_key(&network) {
            windows.retain(|_, window| !is_over(window));
            let oldest = windows.iter().min_by_key(|(_, window)| window.since).map(|(network, _)| *network);
            if windows.len() >= MAX_FAILED_NETWORKS
                && let Some(oldest) = oldest
            {
                windows.remove(&oldest);
            }
        }
        let window = windows.entry(network).or_insert(Window { since: now, count: 0 });
        if is_over(window) {
            *window = Window { since: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        let left = FAILED_LOGIN_WINDOW.saturating_sub(now.saturating_duration_since(window.since));
        (window.count > MAX_FAILED_LOGINS).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::FailedLogins;
    use crate::limits::{FAILED_LOGIN_WINDOW, MAX_FAILED_LOGINS, MAX_FAILED_NETWORKS};
    use crate::slots::PeerNetwork;

    fn network(number: u32) -> PeerNetwork {
        PeerNetwork::of(IpAddr::V4(Ipv4Addr::from(number)))
    }

    #[test]
    fn a_network_past_its_limit_waits_until_the_window_is_over() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        for _ in 0..MAX_FAILED_LOGINS {
            assert_eq!(logins.count(network(1), now), None);
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(logins.count(network(1), later), Some(FAILED_LOGIN_WINDOW - Duration::from_secs(20)));
        assert_eq!(logins.count(network(2), later), None, "others are not affected");
        assert_eq!(logins.count(network(1), now + FAILED_LOGIN_WINDOW), None);
    }

    #[test]
    fn a_full_table_forgets_the_network_that_began_first() {
        let (logins, now) = (FailedLogins::default(), Instant::now());
        for number in 0..=u32::try_from(MAX_FAILED_NETWORKS).unwrap() {
            assert_eq!(logins.count(network(number), now + Duration::from_millis(number.into())), None);
        }
        let windows = logins.0.lock();
        assert_eq!(windows.len(), MAX_FAILED_NETWORKS);
        assert!(!windows.contains_key(&network(0)) && windows.contains_key(&network(1)));
    }
}
