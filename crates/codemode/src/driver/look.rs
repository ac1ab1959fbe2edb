//! Picks up outcomes and decisions that other processes stored, and state changes of calls in progress.

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

/// Twice the interval at which a call in progress polls for the answer to its question.
const ANSWER_DELAY: Duration = Duration::from_millis(500);

impl Driver {
    /// Handles a state change of a call in progress.
    pub(super) fn on_call_state(&mut self, call: CallId, state: PendingState) -> Event {
        match state {
            PendingState::Approval => self.asking.insert(call),
            _ => self.asking.remove(&call),
        };
        Event::Parked(call, state)
    }

    /// Checks the store for a decision about the call, which this process may have missed.
    pub(super) fn look_for_decision(&mut self, call: CallId) {
        let (executor, journal) = (self.run.executor.clone(), Arc::clone(&self.run.journal));
        self.calls.spawn(async move {
            let what = match executor.decisions_for(&journal, call.0).await {
                Ok(Some(_)) => TaskResult::Decided,
                // If the store is unreachable, the next poll asks again.
                Ok(None) | Err(_) => TaskResult::Nothing,
            };
            TaskDone { call, what, elapsed: Duration::ZERO }
        });
    }

    /// Delays a `wait` while a call in progress has a question that was just answered in another process. The call
    /// receives the answer after a short delay; before that, the question would still look unanswered.
    pub(super) fn wait_after_answers(&mut self) {
        let journal = Arc::clone(&self.run.journal);
        self.calls.spawn(async move {
            let asked = journal.store().approvals_of_run(journal.run_id()).await.unwrap_or_default();
            let now = now_ms();
            let under_way = [CallState::Dispatched, CallState::Away];
            let in_progress = |call: u32| journal.call(call).is_some_and(|row| under_way.contains(&row.state));
            if asked.iter().any(|one| one.question.is_some() && !one.is_open(now) && in_progress(one.call)) {
                tokio::time::sleep(ANSWER_DELAY).await;
            }
            TaskDone { call: CallId(0), what: TaskResult::WaitNow, elapsed: Duration::ZERO }
        });
    }

    /// Polls the store for outcomes and decisions from other processes. Only one poll runs at a time.
    pub(super) fn poll_store(&mut self) {
        if self.polling || !self.run.journal.waits_for_others() {
            return;
        }
        self.polling = true;
        let journal = Arc::clone(&self.run.journal);
        self.calls.spawn(async move {
            let what = match settled_and_decided(&journal).await {
                Ok((arrived, decided)) => TaskResult::Polled { arrived, decided },
                // The store is unreachable, so there is nothing new.
                Err(_) => TaskResult::Polled { arrived: Vec::new(), decided: Vec::new() },
            };
            TaskDone { call: CallId(0), what, elapsed: Duration::ZERO }
        });
    }
}

/// Returns the waiting calls that have an outcome in the store, and those that have a decision.
async fn settled_and_decided(journal: &Journal) -> Result<(Vec<CallId>, Vec<CallId>), StoreError> {
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
