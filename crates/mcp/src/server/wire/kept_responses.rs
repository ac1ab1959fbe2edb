//! Counts the responses that the sessions of a principal keep for clients that resume a stream.
//!
//! The library keeps each response for [`RESUMABLE_FOR`] after its request has ended, however many there are. So a new
//! request waits while its principal's sessions keep more than [`MAX_KEPT_RESPONSE_BYTES`].

use std::collections::{HashMap, VecDeque};

use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::time::Instant;

use crate::server::http::limits::{MAX_KEPT_RESPONSE_BYTES, RESUMABLE_FOR};

/// Counted for every response in addition to its result: a list of tools has about this size, other answers are
/// smaller.
const RESPONSE_BYTES: usize = 8 << 10;

#[derive(Debug, Default)]
pub(super) struct KeptResponses {
    sessions: HashMap<SessionId, VecDeque<KeptResponse>>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptResponse {
    until: Instant,
    bytes: usize,
}

impl KeptResponses {
    /// Adds a response whose request has just ended.
    pub(super) fn add(&mut self, session: &SessionId, result_bytes: usize, now: Instant) {
        let bytes = result_bytes.saturating_add(RESPONSE_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        let response = KeptResponse { until: now + RESUMABLE_FOR, bytes };
        self.sessions.entry(SessionId::clone(session)).or_default().push_back(response);
    }

    /// Removes the responses that are kept no longer, and returns their sessions. An idle session frees them only when
    /// it is notified.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<SessionId> {
        let (mut expired, mut freed) = (Vec::new(), 0_usize);
        for (session, responses) in &mut self.sessions {
            let before = responses.len();
            while let Some(response) = responses.pop_front_if(|response| response.until <= now) {
                freed = freed.saturating_add(response.bytes);
            }
            if responses.len() < before {
                expired.push(SessionId::clone(session));
            }
        }
        self.bytes = self.bytes.saturating_sub(freed);
        self.sessions.retain(|_, responses| !responses.is_empty());
        expired
    }

    /// Removes the responses of a session that has ended.
    pub(super) fn remove(&mut self, session: &SessionId) {
        let responses = self.sessions.remove(session).unwrap_or_default();
        self.bytes = responses.iter().fold(self.bytes, |bytes, response| bytes.saturating_sub(response.bytes));
    }

    /// Returns when to check again, if too much is kept now.
    pub(super) fn full_until(&self) -> Option<Instant> {
        let oldest = || self.sessions.values().filter_map(|responses| Some(responses.front()?.until)).min();
        if self.bytes > MAX_KEPT_RESPONSE_BYTES { oldest() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rmcp::transport::streamable_http_server::session::SessionId;
    use tokio::time::Instant;

    use super::{KeptResponses, RESPONSE_BYTES};
    use crate::server::http::limits::{MAX_KEPT_RESPONSE_BYTES, RESUMABLE_FOR};

    #[test]
    fn responses_count_until_they_expire_or_their_session_ends() {
        let (ada, bob): (SessionId, SessionId) = ("a".into(), "b".into());
        let (mut kept, start) = (KeptResponses::default(), Instant::now());
        let later = start + Duration::from_secs(1);
        kept.add(&ada, MAX_KEPT_RESPONSE_BYTES - RESPONSE_BYTES, start);
        assert_eq!(kept.full_until(), None);
        kept.add(&bob, 0, later);
        assert_eq!(kept.full_until(), Some(start + RESUMABLE_FOR));
        assert!(kept.expire(later).is_empty());
        assert_eq!(kept.expire(start + RESUMABLE_FOR), [SessionId::clone(&ada)]);
        assert_eq!((kept.full_until(), kept.bytes), (None, RESPONSE_BYTES));
        kept.add(&ada, MAX_KEPT_RESPONSE_BYTES, later);
        assert!(kept.full_until().is_some());
        kept.remove(&ada);
        assert_eq!((kept.full_until(), kept.bytes), (None, RESPONSE_BYTES));
    }

    #[test]
    fn many_small_responses_fill_the_budget_too() {
        let (mut kept, start, session) = (KeptResponses::default(), Instant::now(), SessionId::from("a"));
        (0..=MAX_KEPT_RESPONSE_BYTES / RESPONSE_BYTES).for_each(|_| kept.add(&session, 0, start));
        assert!(kept.full_until().is_some());
    }
}
