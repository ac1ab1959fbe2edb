//! A call that its source has parked: written down with its ticket, followed by whoever holds the run, called off.

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

/// How often a call is made in all whose source has forgotten it, where its tool may be called again.
const MAX_ATTEMPTS: i64 = 2;

/// How long whoever works on a call may take to hear that nobody wants it.
const CALL_OFF_WITHIN: Duration = Duration::from_secs(10);

impl Executor {
    /// Writes down with whom a call is. Whoever finds it there later can go on with it.
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
                    // Nobody will ever know of it.
                    self.call_off_later(&tool.id, ticket, journal.run_id(), request.call);
                    return Err(error);
                }
                PendingState::Running
            }
            Parked::QuestionBatch(question) => match self.park_for_answers(journal, request, tool, question).await {
                Ok(()) => PendingState::Approval,
                Err(CommitError::Quota(exceeded)) => {
                    self.cancel(journal.run_id(), journal.call(request.call).as_slice());
                    let why = format!("what it asks cannot be put to anybody: {exceeded}");
                    return Ok(self.arrived(journal, request, Outcome::Failed(why)).await);
                }
                Err(error) => return Err(error),
            },
        };
        fault::point("dispatch.after_park")?;
        Ok(CallEnd::Parked(end))
    }

    /// Sees a call to its end that is away with a ticket. None where it is not, or nobody can be asked about it now:
    /// then it stays as it is. Dropping this leaves it, too, to whoever follows it next.
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
                Ok(self.again(journal, request).await)
            }
            Dispatch::Settled(outcome) => self.concluded(journal, request, outcome).await,
        };
        Some(end.unwrap_or_else(CallEnd::from))
    }

    /// The end of a call that was away. Another's word on it, brought before, counts instead; who has lost the run says
    /// nothing.
    async fn concluded(
        &self,
        journal: &Journal,
        request: &CallRequest,
        outcome: Outcome,
    ) -> Result<CallEnd, CommitError> {
        let outcome = match journal.settle_away(request.call, &outcome.to_json()).await? {
            true => outcome,
            false => stored_outcome(journal, request.call).await?,
        };
        Ok(self.arrived(journal, request, outcome).await)
    }

    /// Tells whoever works on these calls that nobody wants what they bring. Nobody waits for that.
    pub fn cancel(&self, run_id: &str, calls: &[CallRow]) {
        let unfinished = |row: &&CallRow| {
            row.outcome.is_none() && matches!(row.state, CallState::Away | CallState::Approval | CallState::Dispatched)
        };
        for row in calls.iter().filter(unfinished) {
            let id = ToolId::parse(row.tool_id.as_deref().unwrap_or(&row.target));
            if let (Ok(id), Some(ticket)) = (id, row.ticket.clone().and_then(Ticket::new)) {
                self.call_off_later(&id, ticket, run_id, row.call);
            }
        }
    }

    fn call_off_later(&self, id: &ToolId, ticket: Ticket, run_id: &str, call: u32) {
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
            runtime.spawn(async move { drop(tokio::time::timeout(CALL_OFF_WITHIN, source.cancel(parked)).await) });
        }
    }

    fn may_repeat(&self, id: &str) -> bool {
        self.catalog.get(id).is_some_and(|tool| tool.repeat != Repeat::Never)
    }
}

/// Whether somebody must ask how far it is.
fn is_followed(row: &CallRow) -> bool {
    row.state == CallState::Away && row.ticket.is_some() && row.outcome.is_none()
}
