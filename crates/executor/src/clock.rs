//! Wall-clock time, as it is stored.

use std::time::{SystemTime, UNIX_EPOCH};

pub fn now_ms() -> i64 {
    i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
}

pub fn now_us() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

fn since_1970() -> std::time::Duration {
    // A simulation has its own clock.
    fault::time().unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
