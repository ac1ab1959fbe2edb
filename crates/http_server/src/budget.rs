//! Limits on requests together: the bodies in memory, of each principal and of all, and the requests of each principal
//! that are in progress.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::limits::{
    BODY_ROOM_TIMEOUT, FREE_BODY_BYTES, LARGE_PRINCIPAL_BODY_BYTES, LARGE_TOTAL_BODY_BYTES, MAX_PRINCIPAL_BODY_BYTES,
    MAX_REQUESTS_PER_PRINCIPAL, MAX_TOTAL_BODY_BYTES,
};
use crate::principal::Principal;
use crate::refusal::Refusal;

/// Bodies are counted in units of this size.
const UNIT_BYTES: usize = 1 << 10;

/// The budgets of all principals. Their number is bounded by the number of configured tokens.
#[derive(Debug)]
pub(crate) struct Budgets {
    limits: BudgetLimits,
    /// The bodies of all principals, in units.
    all_bodies: Arc<Semaphore>,
    principals: Mutex<HashMap<Principal, Arc<Budget>>>,
}

/// The budget of one principal. It is carried in the extensions of the principal's requests.
#[derive(Debug)]
pub struct Budget {
    /// The bodies of all principals, in units.
    all_bodies: Arc<Semaphore>,
    /// The bodies of this principal, in units.
    bodies: Arc<Semaphore>,
    /// The limits of both, for refusals.
    limits: BudgetLimits,
    requests: Arc<Semaphore>,
}

/// The part of a budget that a request has reserved. It is released when the last clone is dropped, which the request's
/// extensions keep until the request has been handled.
#[derive(Clone, Debug)]
pub struct BudgetShare {
    _permits: Arc<[OwnedSemaphorePermit]>,
}

impl BudgetShare {
    pub(crate) fn new(permits: impl Into<Arc<[OwnedSemaphorePermit]>>) -> Self {
        Self { _permits: permits.into() }
    }
}

/// The error that a principal has too many requests in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimitError;

/// How many bytes of request bodies a server keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    pub principal_bytes: usize,
    pub total_bytes: usize,
}

impl BudgetLimits {
    /// Returns the limits of a server whose routes take large bodies.
    pub fn large() -> Self {
        Self { principal_bytes: LARGE_PRINCIPAL_BODY_BYTES, total_bytes: LARGE_TOTAL_BODY_BYTES }
    }
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self { principal_bytes: MAX_PRINCIPAL_BODY_BYTES, total_bytes: MAX_TOTAL_BODY_BYTES }
    }
}

impl Budgets {
    pub(crate) fn new(limits: BudgetLimits) -> Self {
        let all_bodies = Arc::new(Semaphore::new(limits.total_bytes / UNIT_BYTES));
        Self { limits, all_bodies, principals: Mutex::default() }
    }

    /// Returns the budget of a principal. All requests of the principal share it.
    pub(crate) fn of(&self, principal: &Principal) -> Arc<Budget> {
        let mut principals = self.principals.lock();
        if let Some(budget) = principals.get(principal) {
            return Arc::clone(budget);
        }
        let budget = Arc::new(Budget {
            all_bodies: Arc::clone(&self.all_bodies),
            bodies: Arc::new(Semaphore::new(self.limits.principal_bytes / UNIT_BYTES)),
            limits: self.limits,
            requests: Arc::new(Semaphore::new(MAX_REQUESTS_PER_PRINCIPAL)),
        });
        principals.insert(principal.clone(), Arc::clone(&budget));
        budget
    }
}

impl Budget {
    /// Returns whether a body of this size counts towards the budget. Small ones do not.
    pub(crate) fn is_counted(&self, bytes: usize) -> bool {
        bytes > FREE_BODY_BYTES
    }

    /// Reserves memory for a body or for its values. Waits for room for at most `BODY_ROOM_TIMEOUT`. A small one is not
    /// counted and needs no permits.
    pub(crate) async fn reserve_body(&self, bytes: usize) -> Result<Vec<OwnedSemaphorePermit>, Refusal> {
        if !self.is_counted(bytes) {
            return Ok(Vec::new());
        }
        let until = Instant::now() + BODY_ROOM_TIMEOUT;
        let own = acquire(&self.bodies, bytes, until).await.ok_or(Refusal::NoRoom(self.limits.principal_bytes))?;
        let all = acquire(&self.all_bodies, bytes, until).await.ok_or(Refusal::NoTotalRoom(self.limits.total_bytes))?;
        Ok(vec![own, all])
    }

    /// Reserves one request in progress. Does not wait.
    pub fn reserve_request(&self) -> Result<BudgetShare, RequestLimitError> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| RequestLimitError)?;
        Ok(BudgetShare::new([permit]))
    }
}

/// Reserves bytes of a limit, if there is room for them in time.
async fn acquire(bodies: &Arc<Semaphore>, bytes: usize, until: Instant) -> Option<OwnedSemaphorePermit> {
    let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
    tokio::time::timeout_at(until, Arc::clone(bodies).acquire_many_owned(units)).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BudgetLimits, Budgets, RequestLimitError};
    use crate::Principal;
    use crate::limits::{FREE_BODY_BYTES, MAX_BODY_BYTES, MAX_PRINCIPAL_BODY_BYTES, MAX_REQUESTS_PER_PRINCIPAL};
    use crate::refusal::Refusal;

    #[tokio::test]
    async fn a_large_body_waits_until_others_of_its_principal_are_released() {
        let budgets = Budgets::new(BudgetLimits::default());
        let (ada, bob) = (Principal::named("ada").unwrap(), Principal::named("bob").unwrap());
        let mut held = Vec::new();
        for _ in 0..MAX_PRINCIPAL_BODY_BYTES / MAX_BODY_BYTES {
            held.push(budgets.of(&ada).reserve_body(MAX_BODY_BYTES).await.unwrap());
        }
        let adas = budgets.of(&ada);
        let waits = tokio::time::timeout(Duration::from_millis(50), adas.reserve_body(MAX_BODY_BYTES));
        assert!(waits.await.is_err());
        assert!(budgets.of(&ada).reserve_body(FREE_BODY_BYTES).await.unwrap().is_empty());
        assert!(!budgets.of(&bob).reserve_body(MAX_BODY_BYTES).await.unwrap().is_empty());
        held.pop();
        assert!(!budgets.of(&ada).reserve_body(MAX_BODY_BYTES).await.unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_says_whether_the_principal_or_all_use_the_room() {
        let budgets = Budgets::new(BudgetLimits { principal_bytes: 2 << 20, total_bytes: 3 << 20 });
        let (ada, bob) = (Principal::named("ada").unwrap(), Principal::named("bob").unwrap());
        let _adas = budgets.of(&ada).reserve_body(2 << 20).await.unwrap();
        let refused = budgets.of(&ada).reserve_body(1 << 20).await.err();
        assert!(matches!(refused, Some(Refusal::NoRoom(2_097_152))), "{refused:?}");
        let refused = budgets.of(&bob).reserve_body(2 << 20).await.err();
        assert!(matches!(refused, Some(Refusal::NoTotalRoom(3_145_728))), "{refused:?}");
        assert!(budgets.of(&bob).reserve_body(1 << 20).await.is_ok());
    }

    #[test]
    fn requests_of_one_principal_are_counted_until_they_have_been_handled() {
        let budgets = Budgets::new(BudgetLimits::default());
        let budget = budgets.of(&Principal::local());
        let mut held: Vec<_> = (0..MAX_REQUESTS_PER_PRINCIPAL).map(|_| budget.reserve_request().unwrap()).collect();
        assert_eq!(budget.reserve_request().err(), Some(RequestLimitError));
        held.pop();
        assert!(budget.reserve_request().is_ok());
    }
}
