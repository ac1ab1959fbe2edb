//! With whom a run's calls are: what others have said to them, in this process or another, and how that is heard.

use std::sync::Arc;
use std::time::Duration;

use contract::cell::PendingState;
use contract::ids::CallId;
use executor::Journal;
use executor::clock::now_ms;
use store::{CallState, StoreError};

use super::Driver;
use super::calls::{TaskDone, TaskResult};
use crate::cell::Event;

/// Twice what a call under way takes to hear what was said to its question.
const HEARD_WITHIN: Duration = Duration::from_millis(500);

impl Driver {
    /// A call under way is with somebody else than before.
    pub(super) fn now_with(&mut self, call: CallId, state: PendingState) -> Event {
        match state {
            PendingState::Approval => self.asking.insert(call),
            _ => self.asking.remove(&call),
        };
        Event::Parked(call, state)
    }

    /// Somebody may have decided about the call without this process hearing of it.
    pub(super) fn look_for_decision(&mut self, call: CallId) {
        let (executor, journal) = (self.run.executor.clone(), Arc::clone(&self.run.journal));
        self.calls.spawn(async move {
            let what = match executor.decisions_for(&journal, call.0).await {
                Ok(Some(_)) => TaskResult::Decided,
                // Where the store is away, it is asked again with the next look.
                Ok(None) | Err(_) => TaskResult::Nothing,
            };
            TaskDone { call, what, took: Duration::ZERO }
        });
    }

    /// A call under way has a question. What has been answered to it in another process reaches it in a moment; before
    /// that it would look as if nobody had spoken.
    pub(super) fn wait_in_a_moment(&mut self) {
        let journal = Arc::clone(&self.run.journal);
        self.calls.spawn(async move {
            let asked = journal.store().approvals_of_run(journal.run_id()).await.unwrap_or_default();
            let now = now_ms();
            let under_way = [CallState::Dispatched, CallState::Away];
            let heard_soon = |call: u32| journal.call(call).is_some_and(|row| under_way.contains(&row.state));
            if asked.iter().any(|one| one.question.is_some() && !one.is_open(now) && heard_soon(one.call)) {
                tokio::time::sleep(HEARD_WITHIN).await;
            }
            TaskDone { call: CallId(0), what: TaskResult::WaitNow, took: Duration::ZERO }
        });
    }

    /// What this process may not have heard of: others use the same store. One look at a time is enough.
    pub(super) fn poll_store(&mut self) {
        if self.looking || !self.run.journal.waits_for_others() {
            return;
        }
        self.looking = true;
        let journal = Arc::clone(&self.run.journal);
        self.calls.spawn(async move {
            let what = match looked(&journal).await {
                Ok((arrived, decided)) => TaskResult::Looked { arrived, decided },
                // The store is away: nothing is known that was not before.
                Err(_) => TaskResult::Looked { arrived: Vec::new(), decided: Vec::new() },
            };
            TaskDone { call: CallId(0), what, took: Duration::ZERO }
        });
    }
}

/// Of the calls that wait for somebody, those that need not any more.
async fn looked(journal: &Journal) -> Result<(Vec<CallId>, Vec<CallId>), StoreError> {
    let (store, run_id) = (journal.store(), journal.run_id());
    let waits = |call: u32, states: &[CallState]| journal.call(call).is_some_and(|row| states.contains(&row.state));
    let calls = store.open_calls(run_id).await?;
    let arrived = calls.iter().filter(|row| row.outcome.is_some());
    let arrived = arrived.filter(|row| waits(row.call, &[CallState::Parked, CallState::Away]));
    let arrived = arrived.map(|row| CallId(row.call)).collect();
    let now = now_ms();
    let approvals = store.approvals_of_run(run_id).await?;
    let decided = approvals.iter().filter(|one| !one.is_open(now) && waits(one.call, &[CallState::Approval]));
    Ok((arrived, decided.map(|one| CallId(one.call)).collect()))
}
