//! Control calls and the runs that they started. A call's state is kept so that the call can be cancelled, and so that
//! `wait` finds a run that is not in the store yet.

use std::collections::HashMap;
use std::sync::Arc;

use contract::ids::RunId;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use store::Millis;
use telemetry::LogIgnored;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SUSPEND_TIME;
use super::client_key::ClientKey;
use super::principal::Principal;
use super::progress::Progress;

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

/// The runs that are in their first turn in this process. Changes wake the calls that wait for such a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightRuns(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    runs: HashMap<RunId, InFlightRun>,
    /// The number of `exec` calls that have no run yet.
    starting: HashMap<(Principal, ClientKey), usize>,
}

/// An `exec` call that has no run yet. It is dropped when the call has a run or has failed.
#[derive(Debug)]
pub(crate) struct StartingCall {
    in_flight: InFlightRuns,
    caller: (Principal, ClientKey),
}

impl Drop for StartingCall {
    fn drop(&mut self) {
        self.in_flight.0.send_modify(|state| match state.starting.get_mut(&self.caller) {
            Some(more) if *more > 1 => *more -= 1,
            Some(_) | None => drop(state.starting.remove(&self.caller)),
        });
    }
}

impl InFlightRuns {
    pub(crate) fn starting(&self, principal: &Principal, client: &ClientKey) -> StartingCall {
        let caller = (principal.clone(), client.clone());
        self.0.send_modify(|state| *state.starting.entry(caller.clone()).or_default() += 1);
        StartingCall { in_flight: self.clone(), caller }
    }

    /// Waits until every `exec` call of this caller has a run or has failed.
    pub(crate) async fn wait_for_start(&self, principal: &Principal, client: &ClientKey) {
        let caller = (principal.clone(), client.clone());
        self.wait_until(|state| !state.starting.contains_key(&caller)).await;
    }

    /// Waits until a run is not in its first turn.
    pub(crate) async fn wait_for_first_turn(&self, run_id: &RunId, principal: &Principal) {
        self.wait_until(|state| !state.has(run_id, principal)).await;
    }

    async fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        let waited = self.0.subscribe().wait_for(|state| condition(state)).await.map(drop);
        // The sender is dropped only after `self`.
        waited.log_ignored("wait for a run in its first turn");
    }

    pub(crate) fn add(&self, run: InFlightRun) {
        self.0.send_modify(|state| drop(state.runs.insert(run.run_id.clone(), run)));
    }

    pub(crate) fn remove(&self, run_id: &RunId) {
        self.0.send_modify(|state| drop(state.runs.remove(run_id)));
    }

    pub(crate) fn has(&self, run_id: &RunId, principal: &Principal) -> bool {
        self.0.borrow().has(run_id, principal)
    }

    /// Returns the runs that a client of the principal has started.
    pub(crate) fn of(&self, principal: &Principal, client: &ClientKey) -> Vec<InFlightRun> {
        let is_own = |run: &&InFlightRun| run.principal == *principal && run.client == *client;
        self.0.borrow().runs.values().filter(is_own).cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.0.borrow();
        known.runs.is_empty() && known.starting.is_empty()
    }
}

impl State {
    fn has(&self, run_id: &RunId, principal: &Principal) -> bool {
        self.runs.get(run_id).is_some_and(|run| run.principal == *principal)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::ids::RunId;
    use tokio::time::Instant;

    use super::{CallHandle, InFlightRun, InFlightRuns, until_person};
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
        let in_flight = InFlightRuns::default();
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
        assert!(!in_flight.is_empty());
        drop(second);
        assert!(in_flight.is_empty());
    }

    #[tokio::test]
    async fn waiting_for_a_start_or_a_first_turn_ends_with_it() {
        let in_flight = InFlightRuns::default();
        let (ada, local) = (Principal::named("ada").unwrap(), Principal::local());
        let (one, two) = (ClientKey::new("one", None), ClientKey::new("two", None));
        let starting = in_flight.starting(&ada, &one);
        // These have nothing to wait for.
        in_flight.wait_for_start(&local, &one).await;
        in_flight.wait_for_start(&ada, &two).await;
        let run_id: RunId = "cm_1".into();
        let (principal, client) = (ada.clone(), one.clone());
        let run = InFlightRun { run_id: run_id.clone(), principal, client, source: String::new(), started_at: 0 };
        let turn = async {
            tokio::task::yield_now().await;
            in_flight.add(run);
            drop(starting);
        };
        tokio::join!(in_flight.wait_for_start(&ada, &one), turn);
        in_flight.wait_for_first_turn(&run_id, &local).await;
        let end = async {
            tokio::task::yield_now().await;
            in_flight.remove(&run_id);
        };
        tokio::join!(in_flight.wait_for_first_turn(&run_id, &ada), end);
    }
}
