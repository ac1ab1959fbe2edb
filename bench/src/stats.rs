//! Elapsed time in microseconds.

use std::time::Instant;

pub(crate) fn us_since(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e6
}
