//! Control calls and the runs that they started. A call's state is kept so that the call can be cancelled, and so that
//! `wait` finds a run that is not in the store yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contract::ids::RunId;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use store::Millis;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SUSPEND_TIME;
use super::client_key::ClientKey;
use super::principal::Principal;
use super::progress::Progress;

/// How often `wait` checks whether a run's first turn is over.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A control call, and the time by which it must be answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) principal: Principal,
    pub(crate) client: ClientKey,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) progress: Progress,
    pub(crate) handle: Arc<CallHandle>,
    pub(crate) until: Instant,
}

impl Call {
    /// Returns how long the call waits for a person: as long as a turn waits for calls.
    pub(crate) fn until_person(&self) -> Instant {
        until_person(self.until)
    }
}

fn until_person(until: Instant) -> Instant {
    until.checked_sub(SUSPEND_TIME).unwrap_or(until)
}

/// The state of one control call, from its request to its response.
#[derive(Debug, Default)]
pub(crate) struct CallHandle {
    state: Mutex<CallState>,
}

#[derive(Debug, Default)]
struct CallState {
    run_id: Option<RunId>,
    /// The call waits only for a person, so there is no turn to cancel.
    waits_for_person: bool,
    cancelled: bool,
    /// What ends with the call, if it is no turn of a run that can be resumed.
    own: Option<OwnWork>,
}

/// Work that belongs to one call alone, because nothing can resume it later.
#[derive(Clone, Debug)]
pub(crate) enum OwnWork {
    /// A tool call in progress.
    Running(CancellationToken),
    /// A run that only this call waits for: a parked tool call, or a cell of Tool Search.
    Run(RunId),
}

impl CallHandle {
    /// Records the call's run. Returns true if the call was cancelled before; the run must then be aborted.
    pub(crate) fn attach_run(&self, run_id: &RunId) -> bool {
        let mut state = self.lock();
        state.run_id = Some(run_id.clone());
        state.cancelled
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.lock().run_id.clone()
    }

    /// Marks the call as waiting only for a person: a cancellation then ends no turn.
    pub(crate) fn start_waiting_for_person(&self) {
        self.lock().waits_for_person = true;
    }

    /// Marks the call as running a turn again.
    pub(crate) fn stop_waiting_for_person(&self) {
        self.lock().waits_for_person = false;
    }

    /// Records what must end if the call is cancelled. Returns true if it already was.
    pub(crate) fn set_own_work(&self, own: OwnWork) -> bool {
        let mut state = self.lock();
        state.own = Some(own);
        state.cancelled
    }

    /// Returns the work of a cancelled call that nothing can resume.
    pub(crate) fn take_own_work(&self) -> Option<OwnWork> {
        let mut state = self.lock();
        state.cancelled = true;
        state.own.take()
    }

    /// Marks the call as cancelled. Returns the run whose turn must end with the call, if there is one.
    pub(crate) fn cancel(&self) -> Option<RunId> {
        let mut state = self.lock();
        state.cancelled = true;
        state.run_id.clone().filter(|_| !state.waits_for_person)
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.state.lock()
    }
}

/// A run in its first turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlightRun {
    pub(crate) run_id: RunId,
    pub(crate) principal: Principal,
    pub(crate) client: ClientKey,
    pub(crate) source: String,
    pub(crate) started_at: Millis,
}

/// The runs that are in their first turn in this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    runs: HashMap<RunId, InFlightRun>,
    /// The number of `exec` calls that have no run yet.
    starting: HashMap<(Principal, ClientKey), usize>,
}

/// An `exec` call that has no run yet. It is dropped when the call has a run or has failed.
#[derive(Debug)]
pub(crate) struct StartingCall {
    in_flight: InFlight,
    caller: (Principal, ClientKey),
}

impl Drop for StartingCall {
    fn drop(&mut self) {
        let mut known = self.in_flight.lock();
        match known.starting.get_mut(&self.caller) {
            Some(more) if *more > 1 => *more -= 1,
            Some(_) | None => drop(known.starting.remove(&self.caller)),
        }
    }
}

impl InFlight {
    pub(crate) fn starting(&self, principal: &Principal, client: &ClientKey) -> StartingCall {
        let caller = (principal.clone(), client.clone());
        *self.lock().starting.entry(caller.clone()).or_default() += 1;
        StartingCall { in_flight: self.clone(), caller }
    }

    pub(crate) fn is_starting(&self, principal: &Principal, client: &ClientKey) -> bool {
        self.lock().starting.contains_key(&(principal.clone(), client.clone()))
    }

    pub(crate) fn add(&self, run: InFlightRun) {
        self.lock().runs.insert(run.run_id.clone(), run);
    }

    pub(crate) fn remove(&self, run_id: &RunId) {
        self.lock().runs.remove(run_id);
    }

    pub(crate) fn has(&self, run_id: &RunId, principal: &Principal) -> bool {
        self.lock().runs.get(run_id).is_some_and(|run| run.principal == *principal)
    }

    /// Returns the runs that a client of the principal has started.
    pub(crate) fn of(&self, principal: &Principal, client: &ClientKey) -> Vec<InFlightRun> {
        let is_own = |run: &&InFlightRun| run.principal == *principal && run.client == *client;
        self.lock().runs.values().filter(is_own).cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.lock();
        known.runs.is_empty() && known.starting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{CallHandle, InFlight, InFlightRun, until_person};
    use crate::server::client_key::ClientKey;
    use crate::server::{CALL_AT_MOST, Principal, TURN_AT_MOST_MS};

    #[test]
    fn a_call_waits_for_a_person_as_long_as_for_a_tool() {
        let now = Instant::now();
        assert_eq!(until_person(now + CALL_AT_MOST) - now, Duration::from_millis(TURN_AT_MOST_MS));
    }

    #[test]
    fn a_call_can_be_cancelled_before_and_after_it_has_a_run() {
        let handle = CallHandle::default();
        assert!(!handle.attach_run(&"cm_1".into()));
        assert_eq!(handle.cancel().as_deref(), Some("cm_1"));
        let early = CallHandle::default();
        assert_eq!(early.cancel(), None);
        assert!(early.attach_run(&"cm_2".into()));
        let waiting = CallHandle::default();
        waiting.attach_run(&"cm_3".into());
        waiting.start_waiting_for_person();
        assert_eq!(waiting.cancel(), None);
    }

    #[test]
    fn a_run_in_flight_is_visible_to_its_principal_only_and_listed_for_its_client_only() {
        let in_flight = InFlight::default();
        let (ada, local) = (Principal::named("ada").unwrap(), Principal::local());
        let (one, two) = (ClientKey::new("one", None), ClientKey::new("two", None));
        let (run_id, client) = ("cm_1".into(), one.clone());
        in_flight.add(InFlightRun { run_id, principal: ada.clone(), client, source: String::new(), started_at: 0 });
        assert!(in_flight.has(&"cm_1".into(), &ada) && !in_flight.has(&"cm_1".into(), &local));
        assert_eq!((in_flight.of(&ada, &one).len(), in_flight.of(&local, &one).len()), (1, 0));
        assert!(in_flight.of(&ada, &two).is_empty());
        in_flight.remove(&"cm_1".into());
        assert!(in_flight.is_empty());
        let (first, second) = (in_flight.starting(&ada, &one), in_flight.starting(&ada, &one));
        drop(first);
        assert!(in_flight.is_starting(&ada, &one) && !in_flight.is_starting(&local, &one));
        assert!(!in_flight.is_starting(&ada, &two));
        drop(second);
        assert!(in_flight.is_empty());
    }
}
