//! Questions that a tool has while its call is under way. Its source waits with it, so such a call does not outlive us:
//! where we end before it does, its outcome is unknown like that of any other.

use std::pin::pin;
use std::time::Duration;

use contract::cell::PendingState;
use contract::tool::ToolSpec;
use store::{ApprovalState, CallState, CommitError};
use tokio::sync::mpsc;

use crate::ask::{Answer, Question};
use crate::asker::PendingQuestion;
use crate::clock::now_ms;
use crate::door::{Executor, guarded};
use crate::journal::Journal;
use crate::question::question_id;
use crate::record::recorded;
use crate::request::CallRequest;
use crate::source::{CallFuture, Dispatch};

/// Questions that one call may have in all.
const MAX_ASKED: usize = 16;

/// How soon a word is heard that somebody gave.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Executor {
    /// Waits for a source's answer, and puts to people what it asks on the way.
    pub(crate) async fn dispatch_with_questions(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
        answering: CallFuture<'_>,
        mut asked: mpsc::Receiver<PendingQuestion>,
    ) -> Result<Dispatch, CommitError> {
        let mut answering = pin!(guarded(answering));
        let mut number = 0;
        loop {
            let PendingQuestion { ask, tell } = tokio::select! {
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
                    request.states.send(PendingState::Running);
                    return Ok(dispatch);
                }
                said = self.ask_now(journal, request, tool, &id, &ask) => said?,
            };
            request.states.send(PendingState::Running);
            drop(tell.send(said));
        }
    }

    async fn ask_now(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
        id: &str,
        ask: &Question,
    ) -> Result<Option<Answer>, CommitError> {
        let asked = self.asked_by_tool(now_ms(), id.to_owned(), request, tool, ask);
        journal.entry(recorded(request, tool).asked(&asked));
        let state = journal.call(request.call).map_or(CallState::Dispatched, |row| row.state);
        match journal.park(request.call, state, |_, change| change.approvals.push(asked)).await {
            Ok(()) => {}
            // There is no room for one more question, so nobody is asked.
            Err(CommitError::Quota(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        request.states.send(PendingState::Approval);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A store that is away is asked again.
            let Ok(Some(said)) = journal.store().approval(id).await else { continue };
            if said.is_open(now_ms()) {
                continue;
            }
            return Ok(match said.state {
                ApprovalState::Approved => ask.filled(said.edited_input.as_ref()).ok(),
                ApprovalState::Denied => Some(Answer::Declined),
                ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => None,
            });
        }
    }
}
