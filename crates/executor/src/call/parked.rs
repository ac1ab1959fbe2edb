//! Calls that have not settled when their source returns: stores what they wait for, and cancels them.

use std::pin::Pin;
use std::time::Duration;

use contract::cell::PendingState;
use contract::ids::{CallId, RunId};
use contract::tool::{ToolId, ToolSpec};
use store::{CallRow, CallState, CommitError};
use telemetry::LogIgnored;

use super::CallEnd;
use super::context::{Call, CallContext};
use super::elicitation::park_for_answers;
use crate::outcome::Outcome;
use crate::question::QuestionSender;
use crate::sink::ProgressSink;
use crate::source::{CallToken, ParkedCall, ParkedOn, Ticket};

/// How long a source may take to cancel a call.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// Stores what a parked call is waiting for, so that this or another process can resume it.
pub(crate) async fn park(call: Call<'_>, tool: &ToolSpec, parked: ParkedOn) -> Result<CallEnd, CommitError> {
    let Call { context, journal, request } = call;
    fault::point("dispatch.before_park")?;
    let end = match parked {
        ParkedOn::Client => {
            journal.park(request.call, CallState::Parked, |_, _| {}).await?;
            PendingState::Client
        }
        ParkedOn::Task => {
            journal.park(request.call, CallState::Away, |_, _| {}).await?;
            PendingState::Running
        }
        ParkedOn::Followed(ticket) => {
            let text = ticket.as_str().to_owned();
            if let Err(error) = journal.park(request.call, CallState::Away, |row, _| row.ticket = Some(text)).await {
                // The ticket is not stored, so no process could follow the call.
                spawn(cancellation(context, &tool.id, ticket, journal.run_id(), request.call));
                return Err(error);
            }
            PendingState::Running
        }
        ParkedOn::QuestionBatch(question) => match park_for_answers(call, tool, question).await {
            Ok(()) => PendingState::Approval,
            Err(CommitError::Quota(exceeded)) => {
                cancel(context, journal.run_id(), journal.call(request.call).as_slice());
                let why = format!("the tool's question cannot be asked: {exceeded}");
                return Ok(call.record_outcome(Outcome::Failed(why)).await);
            }
            Err(error) => return Err(error),
        },
    };
    fault::point("dispatch.after_park")?;
    tracing::info!(waits_for = ?end, "call parked");
    Ok(CallEnd::Parked(end))
}

/// Asks the sources of these calls to cancel them, in the background. Calls without a ticket are skipped.
pub(crate) fn cancel(context: &CallContext, run_id: &RunId, calls: &[CallRow]) {
    cancellations(context, run_id, calls).into_iter().for_each(|cancellation| spawn(Some(cancellation)));
}

/// Asks the sources of these calls to cancel them, and waits until they have answered or their time is over.
pub(crate) async fn cancel_and_wait(context: &CallContext, run_id: &RunId, calls: &[CallRow]) {
    let mut running = tokio::task::JoinSet::new();
    for cancellation in cancellations(context, run_id, calls) {
        running.spawn(cancellation);
    }
    running.join_all().await;
}

fn cancellations(context: &CallContext, run_id: &RunId, calls: &[CallRow]) -> Vec<Cancellation> {
    let unfinished = |row: &&CallRow| {
        row.outcome.is_none() && matches!(row.state, CallState::Away | CallState::Approval | CallState::Dispatched)
    };
    let of = |row: &CallRow| {
        let id = ToolId::parse(row.tool_id.as_deref().unwrap_or(&row.target)).ok()?;
        cancellation(context, &id, row.ticket.clone().and_then(Ticket::new)?, run_id, row.call)
    };
    calls.iter().filter(unfinished).filter_map(of).collect()
}

/// Cancels one call at its source, within [`CANCEL_TIMEOUT`].
type Cancellation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a cancellation in the background, if there is one.
fn spawn(cancellation: Option<Cancellation>) {
    if let (Some(cancellation), Ok(runtime)) = (cancellation, tokio::runtime::Handle::try_current()) {
        runtime.spawn(cancellation);
    }
}

fn cancellation(
    context: &CallContext,
    id: &ToolId,
    ticket: Ticket,
    run_id: &RunId,
    call: CallId,
) -> Option<Cancellation> {
    let source = context.routes.source_of_owner(id).cloned()?;
    let token = CallToken { run: run_id.clone(), call };
    let parked = ParkedCall {
        id: id.clone(),
        ticket,
        token,
        updates: ProgressSink::default(),
        asker: QuestionSender::default(),
    };
    Some(Box::pin(async move {
        tokio::time::timeout(CANCEL_TIMEOUT, source.cancel(parked)).await.log_ignored("cancel a parked call");
    }))
}
