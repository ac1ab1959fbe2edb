//! Calls that their source has parked: stores them with their ticket, follows them to their end, and cancels them.

use std::time::Duration;

use contract::cell::PendingState;
use contract::tool::{Repeat, ToolId, ToolSpec};
use store::{CallRow, CallState, CommitError};

use crate::asker::QuestionSender;
use crate::door::{Executor, guarded, stored_outcome};
use crate::journal::Journal;
use crate::listener::ProgressSink;
use crate::parked::{Parked, ParkedCall, Ticket};
use crate::request::{CallEnd, CallRequest};
use crate::source::{CallToken, Dispatch, Outcome};

/// The total number of attempts at a call whose source lost track of it, if its tool may be called again.
const MAX_ATTEMPTS: i64 = 2;

/// How long a source may take to cancel a call.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

impl Executor {
    /// Stores what a parked call is waiting for, so that this or another process can resume it.
    pub(crate) async fn park(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
        parked: Parked,
    ) -> Result<CallEnd, CommitError> {
        fault::point("dispatch.before_park")?;
        let end = match parked {
            Parked::Client => {
                journal.park(request.call, CallState::Parked, |_, _| {}).await?;
                PendingState::Client
            }
            Parked::Task => {
                journal.park(request.call, CallState::Away, |_, _| {}).await?;
                PendingState::Running
            }
            Parked::Followed(ticket) => {
                let text = ticket.as_str().to_owned();
                if let Err(error) = journal.park(request.call, CallState::Away, |row, _| row.ticket = Some(text)).await
                {
                    // The ticket is not stored, so no process could follow the call.
                    self.spawn_cancel(&tool.id, ticket, journal.run_id(), request.call);
                    return Err(error);
                }
                PendingState::Running
            }
            Parked::QuestionBatch(question) => match self.park_for_answers(journal, request, tool, question).await {
                Ok(()) => PendingState::Approval,
                Err(CommitError::Quota(exceeded)) => {
                    self.cancel(journal.run_id(), journal.call(request.call).as_slice());
                    let why = format!("the tool's question cannot be asked: {exceeded}");
                    return Ok(self.record_outcome(journal, request, Outcome::Failed(why)).await);
                }
                Err(error) => return Err(error),
            },
        };
        fault::point("dispatch.after_park")?;
        Ok(CallEnd::Parked(end))
    }

    /// Follows a call that was parked with a ticket until its source reports an end or parks it otherwise.
    ///
    /// `None` if the call has no ticket or its source cannot be asked now; the call then stays parked. If this future
    /// is dropped, the call also stays parked, and the next holder of the run can follow it.
    pub async fn follow(&self, journal: &Journal, request: &CallRequest) -> Option<CallEnd> {
        let row = journal.call(request.call).filter(is_followed)?;
        let id = ToolId::parse(&request.id).ok()?;
        let source = self.routes.to_owner(&id)?;
        let ticket = row.ticket.and_then(Ticket::new)?;
        let (asker, asked) = QuestionSender::of(&request.states);
        let parked = ParkedCall {
            id,
            ticket: ticket.clone(),
            token: CallToken { run: journal.run_id().to_owned(), call: request.call },
            updates: self.updates(journal, request),
            asker,
        };
        let following = match self.catalog.get(&request.id) {
            Some(tool) => self.dispatch_with_questions(journal, request, tool, source.follow(parked), asked).await,
            None => Ok(guarded(source.follow(parked)).await),
        };
        let followed = match following {
            Ok(followed) => followed,
            Err(error) => return Some(error.into()),
        };
        let end = match followed {
            Dispatch::Parked(Parked::Followed(same)) if same == ticket => return None,
            Dispatch::Parked(parked) => {
                let tool = self.catalog.get(&request.id)?;
                self.park(journal, request, tool, parked).await
            }
            Dispatch::Settled(Outcome::Unknown) if row.attempt < MAX_ATTEMPTS && self.may_repeat(&request.id) => {
                Ok(self.retry(journal, request).await)
            }
            Dispatch::Settled(outcome) => self.settle_followed(journal, request, outcome).await,
        };
        Some(end.unwrap_or_else(CallEnd::from))
    }

    /// Settles a followed call. An outcome that was stored before wins. Fails if this process has lost the run.
    async fn settle_followed(
        &self,
        journal: &Journal,
        request: &CallRequest,
        outcome: Outcome,
    ) -> Result<CallEnd, CommitError> {
        let outcome = match journal.settle_away(request.call, &outcome.to_json()).await? {
            true => outcome,
            false => stored_outcome(journal, request.call).await?,
        };
        Ok(self.record_outcome(journal, request, outcome).await)
    }

    /// Asks the sources of these calls to cancel them, in the background. Calls without a ticket are skipped.
    pub fn cancel(&self, run_id: &str, calls: &[CallRow]) {
        let unfinished = |row: &&CallRow| {
            row.outcome.is_none() && matches!(row.state, CallState::Away | CallState::Approval | CallState::Dispatched)
        };
        for row in calls.iter().filter(unfinished) {
            let id = ToolId::parse(row.tool_id.as_deref().unwrap_or(&row.target));
            if let (Ok(id), Some(ticket)) = (id, row.ticket.clone().and_then(Ticket::new)) {
                self.spawn_cancel(&id, ticket, run_id, row.call);
            }
        }
    }

    fn spawn_cancel(&self, id: &ToolId, ticket: Ticket, run_id: &str, call: u32) {
        let Some(source) = self.routes.to_owner(id).cloned() else { return };
        let token = CallToken { run: run_id.to_owned(), call };
        let parked = ParkedCall {
            id: id.clone(),
            ticket,
            token,
            updates: ProgressSink::default(),
            asker: QuestionSender::default(),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(tokio::time::timeout(CANCEL_TIMEOUT, source.cancel(parked)).await) });
        }
    }

    fn may_repeat(&self, id: &str) -> bool {
        self.catalog.get(id).is_some_and(|tool| tool.repeat != Repeat::Never)
    }
}

/// Returns whether the source must be asked for the outcome of this call.
fn is_followed(row: &CallRow) -> bool {
    row.state == CallState::Away && row.ticket.is_some() && row.outcome.is_none()
}
