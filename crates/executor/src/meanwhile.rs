//! Questions that a tool has while its call is under way. Its source waits with it, so such a call does not outlive us:
//! where we end before it does, its outcome is unknown like that of any other.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use contract::cell::PendingState;
use contract::tool::ToolSpec;
use store::{ApprovalState, CallState, CommitError};
use tokio::sync::{mpsc, oneshot};

use crate::clock::now_ms;
use crate::door::{CallRequest, Executor, guarded, recorded};
use crate::journal::Journal;
use crate::parked::{Answered, Ask};
use crate::question::question_id;
use crate::source::{Answering, Dispatch};

/// Questions of one call that wait to be asked; they are asked one after the other.
const MAX_WAITING: usize = 8;

/// Questions that one call may have in all.
const MAX_ASKED: usize = 16;

/// How soon a word is heard that somebody gave.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Where a tool puts its questions.
#[derive(Clone, Debug, Default)]
pub struct Asker(Option<mpsc::Sender<Asked>>);

#[derive(Debug)]
pub(crate) struct Asked {
    ask: Ask,
    tell: oneshot::Sender<Option<Answered>>,
}

impl Asker {
    /// One that asks, where anybody is told that its call waits for a person: who is not would wait for nothing.
    pub(crate) fn of(request: &CallRequest) -> (Self, mpsc::Receiver<Asked>) {
        let (asker, asked) = mpsc::channel(MAX_WAITING);
        (Self(request.states.0.is_some().then_some(asker)), asked)
    }

    /// None where nobody answers: they cannot be asked, or had no more time to.
    pub async fn ask(&self, ask: Ask) -> Option<Answered> {
        let (tell, told) = oneshot::channel();
        self.0.as_ref()?.try_send(Asked { ask, tell }).ok()?;
        told.await.ok().flatten()
    }
}

/// Whoever is to know with whom a call is while it is being made.
#[derive(Clone, Default)]
pub struct States(Option<Arc<dyn Fn(PendingState) + Send + Sync>>);

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "States(told)" } else { "States(nobody)" })
    }
}

impl States {
    pub fn to(listener: impl Fn(PendingState) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    fn tell(&self, state: PendingState) {
        if let Some(listener) = &self.0 {
            listener(state);
        }
    }
}

impl Executor {
    /// Waits for a source's answer, and puts to people what it asks on the way.
    pub(crate) async fn answered_meanwhile(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
        answering: Answering<'_>,
        mut asked: mpsc::Receiver<Asked>,
    ) -> Result<Dispatch, CommitError> {
        let mut answering = pin!(guarded(answering));
        let mut number = 0;
        loop {
            let Asked { ask, tell } = tokio::select! {
                dispatch = &mut answering => return Ok(dispatch),
                Some(asked) = asked.recv() => asked,
            };
            number += 1;
            if number > MAX_ASKED {
                drop(tell.send(None));
                continue;
            }
            let attempt = journal.call(request.call).map_or(0, |row| row.attempt);
            // Other numbers than those of questions that come with a result.
            let id = question_id(journal.run_id(), request.call, attempt, 100 + number);
            let said = tokio::select! {
                dispatch = &mut answering => {
                    journal.store().withdraw(&id).await?;
                    request.states.tell(PendingState::Running);
                    return Ok(dispatch);
                }
                said = self.ask_now(journal, request, tool, &id, &ask) => said?,
            };
            request.states.tell(PendingState::Running);
            drop(tell.send(said));
        }
    }

    async fn ask_now(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
        id: &str,
        ask: &Ask,
    ) -> Result<Option<Answered>, CommitError> {
        let asked = self.asked_by_tool(now_ms(), id.to_owned(), request, tool, ask);
        journal.entry(recorded(request, tool).asked(&asked));
        let state = journal.call(request.call).map_or(CallState::Dispatched, |row| row.state);
        match journal.park(request.call, state, |_, change| change.approvals.push(asked)).await {
            Ok(()) => {}
            // There is no room for one more question, so nobody is asked.
            Err(CommitError::Quota(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        request.states.tell(PendingState::Approval);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A store that is away is asked again.
            let Ok(Some(said)) = journal.store().approval(id).await else { continue };
            if said.is_open(now_ms()) {
                continue;
            }
            return Ok(match said.state {
                ApprovalState::Approved => ask.filled(said.edited_input.as_ref()).ok(),
                ApprovalState::Denied => Some(Answered::Declined),
                ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => None,
            });
        }
    }
}
