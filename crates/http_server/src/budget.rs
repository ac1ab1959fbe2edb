//! Limits on all requests of a principal together: request bodies in memory, and requests in progress.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    bodies: Arc<Semaphore>,
    principals: Mutex<HashMap<Principal, Arc<Budget>>>,
}

/// The budget of one principal. It is carried in the extensions of the principal's requests.
#[derive(Debug)]
pub struct Budget {
    all_bodies: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    body_bytes: usize,
    requests: Arc<Semaphore>,
}

/// Part of a budget. It is carried in a request's extensions and released when the request has been handled.
#[derive(Clone, Debug)]
pub struct Share {
    _permits: Arc<[OwnedSemaphorePermit]>,
}

/// The error that a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

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
        let bodies = Arc::new(Semaphore::new(limits.total_bytes / UNIT_BYTES));
        Self { limits, bodies, principals: Mutex::default() }
    }

    pub(crate) fn of(&self, principal: &Principal) -> Arc<Budget> {
        let mut principals = self.principals.lock();
        if let Some(budget) = principals.get(principal) {
            return Arc::clone(budget);
        }
        let budget = Arc::new(Budget {
            all_bodies: Arc::clone(&self.bodies),
            bodies: Arc::new(Semaphore::new(self.limits.principal_bytes / UNIT_BYTES)),
            body_bytes: self.limits.principal_bytes,
            requests: Arc::new(Semaphore::new(MAX_REQUESTS_PER_PRINCIPAL)),
        });
        principals.insert(principal.clone(), Arc::clone(&budget));
        budget
    }
}

impl Budget {
    pub(crate) fn is_counted(&self, bytes: usize) -> bool {
        bytes > FREE_BODY_BYTES
    }

    pub(crate) fn no_room(&self) -> Refusal {
        Refusal::NoRoom(self.body_bytes)
    }

    /// Waits until there is room for a body of this size. Small bodies are free.
    pub(crate) async fn body(&self, bytes: usize) -> Result<Option<Share>, NoRoom> {
        if !self.is_counted(bytes) {
            return Ok(None);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).map_err(|_| NoRoom)?;
        let acquire = async {
            let own = Arc::clone(&self.bodies).acquire_many_owned(units).await.ok()?;
            let all = Arc::clone(&self.all_bodies).acquire_many_owned(units).await.ok()?;
            Some(Share { _permits: Arc::new([own, all]) })
        };
        tokio::time::timeout(BODY_ROOM_TIMEOUT, acquire).await.ok().flatten().map(Some).ok_or(NoRoom)
    }

    /// Reserves one request.
    pub fn request(&self) -> Result<Share, NoRoom> {
        let permit = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| NoRoom)?;
        Ok(Share { _permits: Arc::new([permit]) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BudgetLimits, Budgets, NoRoom};
    use crate::Principal;
    use crate::limits::{FREE_BODY_BYTES, MAX_BODY_BYTES, MAX_PRINCIPAL_BODY_BYTES, MAX_REQUESTS_PER_PRINCIPAL};

    #[tokio::test]
    async fn large_bodies_wait_only_for_those_of_the_same_principal() {
        let budgets = Budgets::new(BudgetLimits::default());
        let (ada, bob) = (Principal::named("ada").unwrap(), Principal::named("bob").unwrap());
        let mut held = Vec::new();
        for _ in 0..MAX_PRINCIPAL_BODY_BYTES / MAX_BODY_BYTES {
            held.push(budgets.of(&ada).body(MAX_BODY_BYTES).await.unwrap());
        }
        let adas = budgets.of(&ada);
        let waits = tokio::time::timeout(Duration::from_millis(50), adas.body(MAX_BODY_BYTES));
        assert!(waits.await.is_err());
        assert!(budgets.of(&ada).body(FREE_BODY_BYTES).await.unwrap().is_none());
        assert!(budgets.of(&bob).body(MAX_BODY_BYTES).await.unwrap().is_some());
        held.pop();
        assert!(budgets.of(&ada).body(MAX_BODY_BYTES).await.unwrap().is_some());
    }

    #[test]
    fn requests_of_one_principal_are_counted_until_they_have_been_handled() {
        let budgets = Budgets::new(BudgetLimits::default());
        let budget = budgets.of(&Principal::local());
        let mut held: Vec<_> = (0..MAX_REQUESTS_PER_PRINCIPAL).map(|_| budget.request().unwrap()).collect();
        assert_eq!(budget.request().err(), Some(NoRoom));
        held.pop();
        assert!(budget.request().is_ok());
    }
}
