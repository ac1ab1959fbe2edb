//! The memory budget for parsed messages of all MCP servers and plugins of this process.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::json::Measure;
use contract::limits::{
    MAX_SERVER_DATA_BYTES, MAX_SERVER_DATA_WAIT_SECONDS, PARSED_VALUE_BYTES, SMALL_MESSAGE_BYTES,
    SMALL_SERVER_DATA_BYTES, TINY_MESSAGE_BYTES,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::spool::SpooledText;

/// The bytes that a permit stands for.
const UNIT: usize = 1 << 10;

static LARGE: Semaphore = Semaphore::const_new((MAX_SERVER_DATA_BYTES - SMALL_SERVER_DATA_BYTES) / UNIT);
static SMALL: Semaphore = Semaphore::const_new(SMALL_SERVER_DATA_BYTES / UNIT);

/// A message's part of the budget, released when it is dropped. Tiny messages need none.
#[derive(Debug, Default)]
pub struct Reservation {
    _permit: Option<SemaphorePermit<'static>>,
}

/// A pending reservation. It can be awaited repeatedly without losing its place in the queue.
pub struct PendingReservation(Pin<Box<dyn Future<Output = Option<Reservation>> + Send>>);

impl fmt::Debug for PendingReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingReservation")
    }
}

impl PendingReservation {
    /// Requests a reservation. Returns `None` for a tiny message, which needs none.
    pub fn new(bytes: usize, measure: Measure) -> Option<Self> {
        Self::within(Duration::from_secs(MAX_SERVER_DATA_WAIT_SECONDS), bytes, measure)
    }

    /// Returns true if a message of this size can ever be reserved.
    pub fn fits(bytes: usize, measure: Measure) -> bool {
        weight(bytes, measure) <= MAX_SERVER_DATA_BYTES - SMALL_SERVER_DATA_BYTES
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

    /// Waits for the reservation. Returns `None` if the budget stayed exhausted for too long. It must not be called
    /// again after it has returned.
    pub async fn wait(&mut self) -> Option<Reservation> {
        (&mut self.0).await
    }
}

/// Returns the memory that a message takes: its text, and its values after parsing.
fn weight(bytes: usize, measure: Measure) -> usize {
    bytes.saturating_add(measure.values.saturating_mul(PARSED_VALUE_BYTES))
}

/// Holds the memory reservation of a response, and the large texts that were taken out of it, until the caller that
/// sent the request has processed the response. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ResponseSlot(Arc<Mutex<SlotContents>>);

#[derive(Debug, Default)]
struct SlotContents {
    _reservation: Reservation,
    texts: ArrivedTexts,
}

/// The large texts of a response.
#[derive(Debug, Default)]
pub struct ArrivedTexts {
    pub texts: Vec<SpooledText>,
    /// Whether the reservation includes them, so that they may be read into memory.
    pub is_reserved: bool,
}

impl ResponseSlot {
    /// Keeps the reservation and texts of a response, and drops those of an earlier response.
    pub fn keep(&self, reservation: Reservation, texts: ArrivedTexts) {
        let earlier = std::mem::replace(&mut *self.0.lock(), SlotContents { _reservation: reservation, texts });
        // Dropped after the lock is released, because that may close a file.
        drop(earlier);
    }

    /// Returns the large texts of the response. The reservation is kept.
    pub fn take_texts(&self) -> ArrivedTexts {
        std::mem::take(&mut self.0.lock().texts)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::json::Measure;

    use super::{ArrivedTexts, PendingReservation, ResponseSlot, weight};

    #[tokio::test]
    async fn large_messages_wait_for_each_other_and_small_ones_do_not_wait() {
        let measure = |values: usize| Measure { depth: 1, values };
        assert_eq!(weight(10, measure(2)), 650);
        let largest = || PendingReservation::new(8 << 20, measure(200_000)).unwrap();
        let mut first = largest();
        let held = ResponseSlot::default();
        held.keep(first.wait().await.unwrap(), ArrivedTexts::default());
        let mut second = largest();
        let early = tokio::time::timeout(Duration::from_millis(50), second.wait()).await;
        assert!(early.is_err());
        // Small and tiny messages need not wait.
        assert!(PendingReservation::new(500 << 10, measure(10)).unwrap().wait().await.is_some());
        assert!(PendingReservation::new(10, measure(1)).is_none());
        drop(held);
        let second = second.wait().await;
        assert!(second.is_some());
        let mut third = PendingReservation::within(Duration::from_millis(50), 8 << 20, measure(200_000)).unwrap();
        assert!(third.wait().await.is_none(), "the second holds the budget");
    }
}
