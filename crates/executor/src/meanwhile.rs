//! Questions that a tool asks while its call is in progress. The source waits for the answer, so such a call does not
//! survive a restart: if this process ends first, the outcome of the call is unknown.

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

/// The total number of questions that one call may ask.
const MAX_QUESTIONS: usize = 16;

/// How often the store is polled for the answer to a question.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

impl Executor {
    /// Waits for the source's result, and asks people the questions that the tool has until then.
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
            let PendingQuestion { ask, reply } = tokio::select! {
                dispatch = &mut answering => return Ok(dispatch),
                Some(asked) = asked.recv() => asked,
            };
            number += 1;
            if number > MAX_QUESTIONS {
                drop(reply.send(None));
                continue;
            }
            let attempt = journal.call(request.call).map_or(0, |row| row.attempt);
            // Numbers above 100, to differ from those of questions that a tool returns instead of a result.
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
            drop(reply.send(said));
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
        let asked = self.new_question_request(now_ms(), id.to_owned(), request, tool, ask);
        journal.entry(recorded(request, tool).asked(&asked));
        let state = journal.call(request.call).map_or(CallState::Dispatched, |row| row.state);
        match journal.park(request.call, state, |_, change| change.approvals.push(asked)).await {
            Ok(()) => {}
            // The quota allows no more open questions, so this one is not asked.
            Err(CommitError::Quota(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        request.states.send(PendingState::Approval);
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            // If the store is unreachable, poll again.
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
