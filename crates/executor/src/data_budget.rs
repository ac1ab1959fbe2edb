//! Limits the memory that payloads and replies of unfinished calls take in this process, for each run and for all runs
//! together.
//!
//! A reservation never waits: if the data does not fit, it fails. So one run's data never delays another run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::limits::MAX_HOST_DATA_BYTES;

/// The approximate memory for one parsed JSON value, in addition to its text: `[0]` counts as two values and takes 190
/// bytes, `{"a":0}` counts as three and takes 400.
const VALUE_BYTES: usize = 128;

/// How many copies of a payload's or reply's text are in memory: one for the call and one for the journal.
const COPIES: usize = 2;

/// The budget of a process for all its runs. Clones share it.
#[derive(Clone, Debug)]
pub struct DataBudget {
    limit: usize,
    used: Arc<AtomicUsize>,
}

/// The budget of one run. Its limit is two thirds of the process's limit, so that no run alone can use up the whole.
/// What the run reserves counts against both.
#[derive(Clone, Debug)]
pub struct RunDataBudget {
    process: DataBudget,
    run: DataBudget,
}

/// Reserved memory. It counts against the budget until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    data: RunDataBudget,
    bytes: usize,
}

/// Why data does not fit into a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataBudgetError {
    #[error(
        "the unfinished calls of this run take too much memory: {needed} bytes do not fit in the {limit} that one run may \
         use; await some calls before making more, or pass and request less data"
    )]
    Run { needed: usize, limit: usize },
    #[error(
        "the host is busy: {needed} bytes do not fit in the {limit} that it reserves for unfinished calls; try again \
         later, or with less data"
    )]
    Host { needed: usize, limit: usize },
}

impl DataBudgetError {
    /// Returns the `code` of the error that the cell can catch.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Run { .. } => "value_too_large",
            Self::Host { .. } => "host_busy",
        }
    }
}

impl Default for DataBudget {
    fn default() -> Self {
        Self::new(MAX_HOST_DATA_BYTES)
    }
}

impl DataBudget {
    pub fn new(limit: usize) -> Self {
        Self { limit, used: Arc::default() }
    }

    /// Creates the budget of one run.
    pub fn for_run(&self) -> RunDataBudget {
        RunDataBudget { process: self.clone(), run: Self::new(self.limit / 3 * 2) }
    }

    /// Returns how many bytes are reserved.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes. Returns false if they do not fit.
    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl RunDataBudget {
    /// Reserves memory for a JSON text of `text_bytes` that is parsed into `values` values.
    pub fn reserve(&self, text_bytes: usize, values: usize) -> Result<Reservation, DataBudgetError> {
        let bytes = text_bytes.saturating_mul(COPIES).saturating_add(values.saturating_mul(VALUE_BYTES));
        if !self.run.take(bytes) {
            return Err(DataBudgetError::Run { needed: bytes, limit: self.run.limit });
        }
        if !self.process.take(bytes) {
            self.run.give_back(bytes);
            return Err(DataBudgetError::Host { needed: bytes, limit: self.process.limit });
        }
        Ok(Reservation { data: self.clone(), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.data.run.give_back(self.bytes);
        self.data.process.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::{MAX_HOST_DATA_BYTES, MAX_JSON_VALUES, MAX_OUTSTANDING_BYTES};

    use super::{DataBudget, DataBudgetError};

    #[test]
    fn a_dropped_reservation_frees_its_bytes() {
        let budget = DataBudget::new(300);
        let run = budget.for_run();
        let first = run.reserve(100, 0).unwrap();
        assert_eq!(budget.used(), 200);
        assert_eq!(run.reserve(1, 0).unwrap_err(), DataBudgetError::Run { needed: 2, limit: 200 });
        drop(first);
        assert_eq!(budget.used(), 0);
        run.reserve(100, 0).unwrap();
    }

    #[test]
    fn one_run_cannot_use_up_the_budget_and_all_runs_together_are_bounded() {
        let budget = DataBudget::new(300);
        let (one, other) = (budget.for_run(), budget.for_run());
        let _taken = one.reserve(100, 0).unwrap();
        let _rest = other.reserve(50, 0).unwrap();
        assert_eq!(other.reserve(1, 0).unwrap_err(), DataBudgetError::Host { needed: 2, limit: 300 });
        assert_eq!(budget.used(), 300, "a refused reservation takes nothing");
    }

    #[test]
    fn parsed_values_count_in_addition_to_their_text() {
        let run = DataBudget::new(3 * 1_000).for_run();
        assert!(run.reserve(100, 20).is_err());
        assert!(run.reserve(100, 10).is_ok());
    }

    #[test]
    fn the_largest_call_fits_on_an_idle_host() {
        let run = DataBudget::new(MAX_HOST_DATA_BYTES).for_run();
        drop(run.reserve(MAX_OUTSTANDING_BYTES, 0).unwrap());
        run.reserve(16 << 20, MAX_JSON_VALUES).unwrap();
    }
}
