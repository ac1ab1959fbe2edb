//! How much of what servers send may be in memory at once, parsed, for all servers of this process together.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::json::Measure;
use contract::limits::{
    MAX_SERVER_DATA_BYTES, MAX_SERVER_DATA_WAIT_SECONDS, PARSED_VALUE_BYTES, SMALL_MESSAGE_BYTES,
    SMALL_SERVER_DATA_BYTES, TINY_MESSAGE_BYTES,
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Permits are of a KiB each.
const UNIT: usize = 1 << 10;

static LARGE: Semaphore = Semaphore::const_new((MAX_SERVER_DATA_BYTES - SMALL_SERVER_DATA_BYTES) / UNIT);
static SMALL: Semaphore = Semaphore::const_new(SMALL_SERVER_DATA_BYTES / UNIT);

/// A message's part of the budget, given back when it is dropped. Tiny messages have none of it.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    _permit: Option<SemaphorePermit<'static>>,
}

/// A reservation on its way. It can be waited for again and again without losing its place.
pub(crate) struct Reserving(Pin<Box<dyn Future<Output = Option<Reservation>> + Send>>);

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reserving")
    }
}

impl Reserving {
    /// None for a tiny message, which needs none.
    pub(crate) fn new(bytes: usize, measure: Measure) -> Option<Self> {
        Self::within(Duration::from_secs(MAX_SERVER_DATA_WAIT_SECONDS), bytes, measure)
    }

    fn within(limit: Duration, bytes: usize, measure: Measure) -> Option<Self> {
        let weight = weight(bytes, measure);
        if weight <= TINY_MESSAGE_BYTES {
            return None;
        }
        let pool = if weight <= SMALL_MESSAGE_BYTES { &SMALL } else { &LARGE };
        let permits = u32::try_from(weight.div_ceil(UNIT)).unwrap_or(u32::MAX);
        Some(Self(Box::pin(async move {
            let permit = tokio::time::timeout(limit, pool.acquire_many(permits)).await.ok()?.ok()?;
            Some(Reservation { _permit: Some(permit) })
        })))
    }

    /// None where there was no room for too long. Not to be waited for once it has come.
    pub(crate) async fn come(&mut self) -> Option<Reservation> {
        (&mut self.0).await
    }
}

/// What a message takes in memory: its text, and its values once it is parsed.
pub(crate) fn weight(bytes: usize, measure: Measure) -> usize {
    bytes.saturating_add(measure.values.saturating_mul(PARSED_VALUE_BYTES))
}

/// Where the reservation of an answer is kept until its reader has done with the answer. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<Mutex<Reservation>>);

impl Slot {
    pub(crate) fn keep(&self, reservation: Reservation) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reservation;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::json::Measure;

    use super::{Reserving, Slot, weight};

    #[tokio::test]
    async fn large_messages_wait_for_each_other_and_small_ones_for_neither() {
        let measure = |values: usize| Measure { depth: 1, values };
        assert_eq!(weight(10, measure(2)), 650);
        let largest = || Reserving::new(8 << 20, measure(200_000)).unwrap();
        let mut first = largest();
        let held = Slot::default();
        held.keep(first.come().await.unwrap());
        let mut second = largest();
        let early = tokio::time::timeout(Duration::from_millis(50), second.come()).await;
        assert!(early.is_err());
        // Small and tiny messages do not wait for the large one.
        assert!(Reserving::new(500 << 10, measure(10)).unwrap().come().await.is_some());
        assert!(Reserving::new(10, measure(1)).is_none());
        drop(held);
        let second = second.come().await;
        assert!(second.is_some());
        let mut third = Reserving::within(Duration::from_millis(50), 8 << 20, measure(200_000)).unwrap();
        assert!(third.come().await.is_none(), "the second message holds the budget");
    }
}
