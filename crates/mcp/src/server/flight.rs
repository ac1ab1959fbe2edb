//! Control calls under way: what is known of each, so that it can be called off, and so that a cell is found whose
//! first word is not written yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::Millis;

use super::principal::Principal;

/// One control call, from its beginning to its answer.
#[derive(Debug, Default)]
pub(crate) struct CallHandle {
    state: Mutex<Called>,
}

#[derive(Debug, Default)]
struct Called {
    run_id: Option<String>,
    /// Only a person is waited for: nothing is under way that could be called off.
    holding: bool,
    off: bool,
}

impl CallHandle {
    /// Whether the call was called off before it had a run, which then must end.
    pub(crate) fn began(&self, run_id: &str) -> bool {
        let mut state = self.lock();
        state.run_id = Some(run_id.to_owned());
        state.off
    }

    pub(crate) fn run_id(&self) -> Option<String> {
        self.lock().run_id.clone()
    }

    pub(crate) fn hold(&self, holding: bool) {
        self.lock().holding = holding;
    }

    /// The run whose turn must end with the call, where there is one.
    pub(crate) fn cancel(&self) -> Option<String> {
        let mut state = self.lock();
        state.off = true;
        state.run_id.clone().filter(|_| !state.holding)
    }

    fn lock(&self) -> MutexGuard<'_, Called> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cell in its first turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlightRun {
    pub(crate) run_id: String,
    pub(crate) principal: Principal,
    pub(crate) source: String,
    pub(crate) started_at: Millis,
}

/// The cells that this process runs the first turn of, by their runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    flying: HashMap<String, InFlightRun>,
    /// Cells that are asked for and have no run yet.
    starting: HashMap<Principal, usize>,
}

/// A cell on its way to having a run; dropped when it has one, or never will.
#[derive(Debug)]
pub(crate) struct Starting {
    flights: InFlight,
    principal: Principal,
}

impl Drop for Starting {
    fn drop(&mut self) {
        let mut known = self.flights.lock();
        match known.starting.get_mut(&self.principal) {
            Some(more) if *more > 1 => *more -= 1,
            Some(_) | None => drop(known.starting.remove(&self.principal)),
        }
    }
}

impl InFlight {
    pub(crate) fn starting(&self, principal: &Principal) -> Starting {
        *self.lock().starting.entry(principal.clone()).or_default() += 1;
        Starting { flights: self.clone(), principal: principal.clone() }
    }

    pub(crate) fn is_starting(&self, principal: &Principal) -> bool {
        self.lock().starting.contains_key(principal)
    }

    pub(crate) fn add(&self, flying: InFlightRun) {
        self.lock().flying.insert(flying.run_id.clone(), flying);
    }

    pub(crate) fn remove(&self, run_id: &str) {
        self.lock().flying.remove(run_id);
    }

    pub(crate) fn has(&self, run_id: &str, principal: &Principal) -> bool {
        self.lock().flying.get(run_id).is_some_and(|flying| flying.principal == *principal)
    }

    pub(crate) fn of(&self, principal: &Principal) -> Vec<InFlightRun> {
        self.lock().flying.values().filter(|flying| flying.principal == *principal).cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.lock();
        known.flying.is_empty() && known.starting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{CallHandle, InFlight, InFlightRun};
    use crate::server::Principal;

    #[test]
    fn a_call_can_be_cancelled_before_and_after_it_has_a_run() {
        let ticket = CallHandle::default();
        assert!(!ticket.began("cm_1"));
        assert_eq!(ticket.cancel().as_deref(), Some("cm_1"));
        let early = CallHandle::default();
        assert_eq!(early.cancel(), None);
        assert!(early.began("cm_2"));
        let holding = CallHandle::default();
        holding.began("cm_3");
        holding.hold(true);
        assert_eq!(holding.cancel(), None);
    }

    #[test]
    fn an_in_flight_run_is_visible_to_its_principal_only() {
        let flights = InFlight::default();
        let (ada, local) = (Principal::named("ada").unwrap(), Principal::local());
        let run_id = "cm_1".to_owned();
        flights.add(InFlightRun { run_id, principal: ada.clone(), source: String::new(), started_at: 0 });
        assert!(flights.has("cm_1", &ada) && !flights.has("cm_1", &local));
        assert_eq!((flights.of(&ada).len(), flights.of(&local).len()), (1, 0));
        flights.remove("cm_1");
        assert!(flights.is_empty());
        let (one, two) = (flights.starting(&ada), flights.starting(&ada));
        drop(one);
        assert!(flights.is_starting(&ada) && !flights.is_starting(&local));
        drop(two);
        assert!(flights.is_empty());
    }
}
