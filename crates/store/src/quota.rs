//! Quotas: how much one agent may store at once. Pure; `commit::usage` checks them in the transaction that uses
//! them.

use std::collections::HashMap;
use std::fmt;

use contract::config::Quotas;
use contract::ids::RunId;
use parking_lot::Mutex;

/// A limit on what one agent may store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    WaitingRuns,
    /// The sum of suspended cells, the journals and outputs of all stored runs, session values, and stored turns.
    StoredBytes,
    OpenApprovals,
}

/// A change would exceed a quota of its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    pub quota: Quota,
    pub limit: u64,
    /// Some of the agent's suspended runs, oldest first.
    pub oldest: Vec<RunId>,
}

impl std::error::Error for QuotaExceeded {}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match self.quota {
            Quota::WaitingRuns => {
                write!(f, "too many waiting cells: one agent may have {limit} (`store.perPrincipal.maxWaitingRuns`)")?
            }
            Quota::StoredBytes => write!(
                f,
                "suspended cells, recorded calls, stored outputs, session values and turns need too much storage: one agent may store {limit} bytes \
                 (`store.perPrincipal.maxStoredBytes`); ended runs are kept for `store.keepRunsSeconds`"
            )?,
            Quota::OpenApprovals => {
                return write!(
                    f,
                    "too many pending approvals: one agent may have {limit} (`store.perPrincipal.maxOpenApprovals`); wait until an operator has decided \
                     some of them (`cellmate approvals list`), then call the tool again"
                );
            }
        }
        match self.oldest.as_slice() {
            [] => Ok(()),
            oldest => {
                write!(f, "; finish other cells with `wait` or end them, then retry; the oldest: {}", oldest.join(", "))
            }
        }
    }
}

/// The quota that a change uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) runs: i64,
    pub(crate) snapshot_bytes: i64,
    /// Bytes of the journal, of outputs, of session values and of turns.
    pub(crate) kept_bytes: i64,
    pub(crate) approvals: i64,
}

impl Claim {
    /// Whether the claim is for kept bytes only.
    pub(crate) fn can_be_deferred(&self) -> bool {
        self.runs + self.snapshot_bytes + self.approvals == 0
    }

    pub(crate) fn bytes(&self) -> i64 {
        self.snapshot_bytes.saturating_add(self.kept_bytes)
    }
}

/// Kept bytes that each principal has written and that are not in its row of `usage` yet.
///
/// Most commits add a few hundred bytes of journal. Adding them to `usage` one commit at a time would cost a statement
/// each, so a process collects them and adds them with the next claim for something else, or once they come to
/// [`MAX_DEFERRED_BYTES`]. If the process dies or that commit fails, at most that much is missing until the next full
/// count.
#[derive(Debug, Default)]
pub(crate) struct DeferredBytes(Mutex<HashMap<String, i64>>);

/// Bytes that one process may defer for one principal; a small quota allows less ([`DeferredBytes::due`]).
const MAX_DEFERRED_BYTES: i64 = 64 << 10;

/// Principals for which one process defers bytes; for further ones every claim is taken at once.
const MAX_DEFERRING_PRINCIPALS: usize = 1_024;

impl DeferredBytes {
    /// Returns the claim to take now, with the bytes deferred before, or `None` if it is deferred.
    pub(crate) fn due(&self, agent_id: &str, claim: Claim, quotas: &Quotas) -> Option<Claim> {
        let max = i64::try_from(quotas.stored_bytes / 16).unwrap_or(i64::MAX).min(MAX_DEFERRED_BYTES);
        let mut deferred = self.0.lock();
        let before = deferred.get(agent_id).copied().unwrap_or(0);
        let bytes = before.saturating_add(claim.kept_bytes);
        let has_place = before > 0 || deferred.len() < MAX_DEFERRING_PRINCIPALS;
        if claim.can_be_deferred() && bytes <= max && has_place {
            deferred.insert(agent_id.to_owned(), bytes);
            return None;
        }
        deferred.remove(agent_id);
        Some(Claim { kept_bytes: bytes, ..claim })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(bytes: i64) -> Claim {
        Claim { runs: 0, snapshot_bytes: 0, kept_bytes: bytes, approvals: 0 }
    }

    #[test]
    fn small_journal_claims_are_deferred_until_they_reach_the_limit() {
        let deferred = DeferredBytes::default();
        let claims = [30 << 10, 30 << 10, 30 << 10].map(|bytes| deferred.due("ada", journal(bytes), &Quotas::DEFAULT));
        assert!(claims[0].is_none() && claims[1].is_none());
        assert_eq!(claims[2].map(|claim| claim.bytes()), Some(90 << 10));
        assert!(deferred.due("ada", journal(1), &Quotas::DEFAULT).is_none(), "counting starts again from zero");
    }

    #[test]
    fn a_claim_for_a_waiting_run_takes_the_deferred_bytes_along() {
        let deferred = DeferredBytes::default();
        assert!(deferred.due("ada", journal(100), &Quotas::DEFAULT).is_none());
        let claim = Claim { runs: 1, snapshot_bytes: 10, ..journal(5) };
        assert_eq!(deferred.due("bob", claim, &Quotas::DEFAULT).map(|claim| claim.bytes()), Some(15));
        assert_eq!(deferred.due("ada", claim, &Quotas::DEFAULT).map(|claim| claim.bytes()), Some(115));
    }

    #[test]
    fn a_small_quota_defers_at_most_a_sixteenth_of_itself() {
        let deferred = DeferredBytes::default();
        let quotas = Quotas { stored_bytes: 160, ..Quotas::DEFAULT };
        assert!(deferred.due("ada", journal(10), &quotas).is_none());
        assert!(deferred.due("ada", journal(1), &quotas).is_some());
    }
}
