//! The limits of a run's journal: what is counted, and the errors when a limit is reached. Does no I/O.

use contract::ids::CallId;
use contract::limits::{MAX_JOURNAL_BYTES, MAX_REFUSED_CALLS, MAX_RUN_CALLS};
use store::JournalTotals;

/// The limit of a run's journal that was reached. The message is for the cell that made the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalFull {
    #[error(
        "this run has made {MAX_RUN_CALLS} calls, timers included, which is the limit for one run; return the results so \
         far and continue in another cell"
    )]
    Calls,
    #[error(
        "this run's calls and results take {used} bytes, and {needed} more do not fit: one run may keep \
         {MAX_JOURNAL_BYTES} bytes; pass or request less data, or return the results so far and continue in another \
         cell"
    )]
    Bytes { used: usize, needed: usize },
}

impl JournalFull {
    /// The `code` of the error that the cell can catch.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Calls => "call_limit_exceeded",
            Self::Bytes { .. } => "journal_limit_exceeded",
        }
    }
}

/// Why the journal did not accept a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The call is recorded without its payload, and its promise rejects.
    #[error(transparent)]
    Refused(JournalFull),
    /// The run fails: it kept making calls after [`MAX_REFUSED_CALLS`] were refused.
    #[error("the cell did not stop when its calls were refused: {0}")]
    TooManyRefused(JournalFull),
    /// The run fails: it set a timer or yielded, which cannot reject.
    #[error("the cell set a timer or yielded, which cannot fail with an error that it could catch: {0}")]
    CannotReject(JournalFull),
    /// The call's id is not larger than the last one, so the worker violates the protocol.
    #[error("the worker sent the call id {call}, which is not larger than {last}, the last one of this run")]
    IdNotIncreasing { call: CallId, last: CallId },
}

/// Whether the cell can learn that a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A call whose promise rejects if it is refused.
    Request,
    /// A timer or a yield, which cannot reject. It takes a row and hardly any bytes, so only the number of calls is
    /// limited.
    NonRejecting,
}

/// The current totals of a journal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    calls: usize,
    bytes: usize,
    last_call: CallId,
    refused: usize,
}

impl From<JournalTotals> for Totals {
    fn from(totals: JournalTotals) -> Self {
        let JournalTotals { calls, bytes, last_call, .. } = totals;
        Self { calls, bytes, last_call, refused: 0 }
    }
}

impl Totals {
    /// Counts one more call, unless its id, its kind or too many refused calls make the run fail.
    pub(crate) fn count_call(&mut self, call: CallId, bytes: usize, kind: CallKind) -> Result<(), OpenError> {
        if call <= self.last_call {
            return Err(OpenError::IdNotIncreasing { call, last: self.last_call });
        }
        let checked = if self.calls >= MAX_RUN_CALLS { Err(JournalFull::Calls) } else { self.check_room_for(bytes) };
        let checked = match checked {
            Err(JournalFull::Bytes { .. }) if kind == CallKind::NonRejecting => Ok(()),
            checked => checked,
        };
        if let Err(full) = checked {
            if kind == CallKind::NonRejecting {
                return Err(OpenError::CannotReject(full));
            }
            if self.refused >= MAX_REFUSED_CALLS {
                return Err(OpenError::TooManyRefused(full));
            }
            self.refused += 1;
            self.calls += 1;
            self.last_call = call;
            return Err(OpenError::Refused(full));
        }
        self.calls += 1;
        self.last_call = call;
        self.bytes += bytes;
        Ok(())
    }

    pub(crate) fn check_room_for(&self, bytes: usize) -> Result<(), JournalFull> {
        if self.bytes.saturating_add(bytes) > MAX_JOURNAL_BYTES {
            return Err(JournalFull::Bytes { used: self.bytes, needed: bytes });
        }
        Ok(())
    }

    pub(crate) fn subtract(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::CallId;
    use contract::limits::{MAX_JOURNAL_BYTES, MAX_REFUSED_CALLS, MAX_RUN_CALLS};

    use super::{CallKind, JournalFull, OpenError, Totals};

    fn full_of_calls() -> Totals {
        Totals { calls: MAX_RUN_CALLS, last_call: CallId(MAX_RUN_CALLS as u32), ..Totals::default() }
    }

    #[test]
    fn a_call_beyond_the_limit_is_refused_and_a_run_that_keeps_calling_fails() {
        let mut totals = full_of_calls();
        let mut id = totals.last_call;
        for _ in 0..MAX_REFUSED_CALLS {
            id.0 += 1;
            assert_eq!(totals.count_call(id, 1, CallKind::Request), Err(OpenError::Refused(JournalFull::Calls)));
        }
        let next = CallId(id.0 + 1);
        assert_eq!(totals.count_call(next, 1, CallKind::Request), Err(OpenError::TooManyRefused(JournalFull::Calls)));
    }

    #[test]
    fn a_timer_beyond_the_limit_fails_the_run_at_once_and_the_message_names_the_timer() {
        let mut totals = full_of_calls();
        let id = CallId(totals.last_call.0 + 1);
        let failed = totals.count_call(id, 1, CallKind::NonRejecting).unwrap_err();
        assert_eq!(failed, OpenError::CannotReject(JournalFull::Calls));
        let message = failed.to_string();
        assert!(message.starts_with("the cell set a timer or yielded, which cannot fail"), "{message}");
        assert!(message.contains("this run has made 100000 calls") && !message.contains("refused"), "{message}");
    }

    #[test]
    fn bytes_beyond_the_limit_are_refused_and_smaller_calls_still_fit() {
        let mut totals = Totals::default();
        totals.count_call(CallId(1), MAX_JOURNAL_BYTES - 10, CallKind::Request).unwrap();
        let full = JournalFull::Bytes { used: MAX_JOURNAL_BYTES - 10, needed: 11 };
        assert_eq!(totals.count_call(CallId(2), 11, CallKind::Request), Err(OpenError::Refused(full)));
        totals.count_call(CallId(3), 10, CallKind::Request).unwrap();
        assert!(totals.check_room_for(1).is_err());
        // A timer is a row and hardly any bytes: only their number is limited.
        totals.count_call(CallId(4), 1, CallKind::NonRejecting).unwrap();
    }

    #[test]
    fn an_id_that_does_not_grow_is_refused() {
        let mut totals = Totals::default();
        totals.count_call(CallId(5), 1, CallKind::Request).unwrap();
        for call in [0, 4, 5].map(CallId) {
            assert_eq!(
                totals.count_call(call, 1, CallKind::Request),
                Err(OpenError::IdNotIncreasing { call, last: CallId(5) })
            );
        }
        totals.count_call(CallId(6), 1, CallKind::Request).unwrap();
    }
}
