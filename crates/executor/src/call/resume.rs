//! Resumes calls: after a crash, after a person's decision, or while a task that the tool started is running.

use contract::cell::PendingState;
use contract::tool::{ContentHash, Repeat, ToolId, ToolSpec};
use store::{Approval, ApprovalState, CallRow, CallState, CommitError, SettleError};

use super::CallEnd;
use super::approval::decisions_for;
use super::context::Call;
use super::dispatch::{AdmittedCall, Consent, check_arguments, dispatch};
use super::elicitation::{UNREADABLE, answers, dispatch_with_questions, guarded};
use super::parked::{cancel, park};
use crate::outcome::Outcome;
use crate::question::QuestionSender;
use crate::source::{Dispatch, ParkedCall, ParkedOn, Ticket};

/// The maximum number of dispatches of one call whose tool returns questions instead of a result. Without a limit, a
/// tool that always asks again would never settle.
const MAX_ROUNDS: i64 = 10;

/// The maximum number of dispatches of one call whose source does not know its outcome, if the tool may be called
/// again.
const MAX_ATTEMPTS: i64 = 2;

/// Resumes a direct call (one that no cell made) from its stored row. It stays parked if it still waits for a decision
/// or an outcome.
pub(crate) async fn advance(call: Call<'_>, row: &CallRow) -> CallEnd {
    match (&row.outcome, row.state) {
        (Some(outcome), _) => call.record_outcome(Outcome::from_json(outcome)).await,
        (None, CallState::Approval) => match decisions_for(call.journal, call.number()).await {
            Ok(Some(decided)) => resume_decided(call, &decided).await,
            Ok(None) => CallEnd::Parked(PendingState::Approval),
            Err(error) => CallEnd::Stopped(error.into()),
        },
        (None, CallState::Dispatched) => retry(call).await,
        (None, CallState::Away) => follow(call).await.unwrap_or(CallEnd::Parked(PendingState::Running)),
        (None, _) => CallEnd::Parked(PendingState::Client),
    }
}

/// Dispatches a call again whose first dispatch was interrupted by a crash, if its tool may be called twice. Otherwise
/// settles the call as [`Outcome::Unknown`].
pub(crate) async fn retry(call: Call<'_>) -> CallEnd {
    match call.tool() {
        Some(tool) if tool.repeat != Repeat::Never => match check_consent(call, tool).await {
            Ok(approved) => {
                let consent = Consent { approved, ..Consent::default() };
                let input = call.request.input.clone();
                dispatch(call, AdmittedCall { tool, input, ask: None, consent }).await
            }
            Err(RetryRefused::Changed) => call.refuse(
                "the tool has changed since it was approved; call it again to request a new approval".to_owned(),
            ),
            Err(RetryRefused::Store(error)) => error.into(),
        },
        _ => match settle_unknown(call).await {
            Ok(outcome) => call.record_outcome(outcome).await,
            Err(error) => error.into(),
        },
    }
}

/// Why a call is not retried.
enum RetryRefused {
    /// The tool's definition is not the one that was approved.
    Changed,
    Store(CommitError),
}

impl From<CommitError> for RetryRefused {
    fn from(error: CommitError) -> Self {
        Self::Store(error)
    }
}

/// Returns whether the call was approved before its first dispatch. Fails if the tool's definition has changed since:
/// an approval is valid only for the definition that was approved.
async fn check_consent(call: Call<'_>, tool: &ToolSpec) -> Result<bool, RetryRefused> {
    let approvals = call.store().approvals_of_run(call.run_id()).await.map_err(CommitError::from)?;
    let used =
        approvals.iter().rev().find(|approval| approval.call == call.number() && approval.state == ApprovalState::Used);
    let approved_hash = match used {
        Some(approval) => Some(approval.tool_hash.clone()),
        // The tool needs approval but none was requested, so a standing approval covered the definition of that time.
        None => {
            let row = call.journal.call(call.number());
            row.and_then(|row| row.tool_hash).filter(|_| call.context.needs_approval(tool))
        }
    };
    match approved_hash {
        Some(hash) if hash != call.context.catalog.hash_of(tool).to_string() => Err(RetryRefused::Changed),
        approved_hash => Ok(approved_hash.is_some()),
    }
}

/// Settles the call as `Unknown` and returns that, or returns the outcome that was stored before. The first stored
/// outcome wins, so that the cell and another process that settles the call see the same one.
async fn settle_unknown(call: Call<'_>) -> Result<Outcome, CommitError> {
    match call.store().settle(call.run_id(), call.number(), &Outcome::Unknown.to_json()).await {
        Ok(_) => return Ok(Outcome::Unknown),
        Err(SettleError::NotWaiting) => {}
        Err(SettleError::Store(error)) => return Err(error.into()),
    }
    call.stored_outcome().await
}

/// Resumes a call after people have decided: they approved or denied the call, or answered its tool's questions.
pub(crate) async fn resume_decided(call: Call<'_>, decided: &[Approval]) -> CallEnd {
    for approval in decided {
        tracing::info!(approval = approval.approval_id.as_str(), state = approval.state.as_str(), "approval decided");
    }
    match decided {
        [approval] if approval.question.is_none() => resume_approved(call, approval).await,
        _ => resume_answered(call, decided).await,
    }
}

async fn resume_approved(call: Call<'_>, approval: &Approval) -> CallEnd {
    let Call { context, request, .. } = call;
    let Some(tool) = call.tool() else { return call.refuse(context.unknown(&request.id)) };
    let input_hash = ContentHash::of(request.input.to_string().as_bytes());
    let is_unchanged = approval.tool_hash == context.catalog.hash_of(tool).to_string()
        && approval.input_hash == input_hash.to_string();
    let refusal = match approval.state {
        ApprovalState::Approved if is_unchanged => None,
        ApprovalState::Approved => {
            Some("the tool has changed since it was approved; call it again to request a new approval".to_owned())
        }
        ApprovalState::Denied => Some(denial_message(approval)),
        ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => {
            Some("this call was not approved in time; call the tool again to request a new approval".to_owned())
        }
    };
    if let Some(message) = refusal {
        return call.refuse(message);
    }
    let input = approval.edited_input.clone().unwrap_or_else(|| request.input.clone());
    if let Err(message) = check_arguments(tool, &input) {
        return call.refuse(message);
    }
    if let Err(error) = fault::point("approval.before_dispatch") {
        return CallEnd::Stopped(error.into());
    }
    let consent = Consent { approvals: vec![approval.approval_id.clone()], approved: true, answers: None };
    dispatch(call, AdmittedCall { tool, input, ask: None, consent }).await
}

fn denial_message(approval: &Approval) -> String {
    match approval.note.as_deref().filter(|note| !note.is_empty()) {
        Some(note) => format!("a person denied this call: {note}"),
        None => "a person denied this call".to_owned(),
    }
}

/// Dispatches a call again, with the answers to the questions that its tool returned.
async fn resume_answered(call: Call<'_>, decided: &[Approval]) -> CallEnd {
    let Call { context, journal, request } = call;
    let Some(tool) = call.tool() else {
        return call.record_outcome(Outcome::Failed(context.unknown(&request.id))).await;
    };
    let row = journal.call(request.call);
    let attempt = row.as_ref().map_or(0, |row| row.attempt);
    let ticket = row.as_ref().and_then(|row| row.ticket.clone()).and_then(Ticket::new);
    let answers = ticket.ok_or(UNREADABLE).and_then(|ticket| answers(ticket, decided));
    let hash = context.catalog.hash_of(tool).to_string();
    let refusal = match &answers {
        Err(why) => Some(*why),
        Ok(_) if decided.iter().any(|one| one.tool_hash != hash) => {
            Some("the tool has changed since it asked a question; call it again to be asked again")
        }
        Ok(_) if attempt >= MAX_ROUNDS => {
            Some("the tool asked for input ten times without returning a result, so the call was cancelled")
        }
        Ok(_) => None,
    };
    let (None, Ok(answers)) = (refusal, answers) else {
        cancel(context, journal.run_id(), row.as_slice());
        return call.record_outcome(Outcome::Failed(refusal.unwrap_or_default().to_owned())).await;
    };
    let approved = decided.iter().filter(|one| one.state == ApprovalState::Approved);
    let approvals = approved.map(|one| one.approval_id.clone()).collect();
    // The answers were given for this definition of the tool, so the call is bound to it like an approved one.
    let consent = Consent { approvals, approved: true, answers: Some(answers) };
    let admitted = AdmittedCall { tool, input: request.input.clone(), ask: None, consent };
    dispatch(call, admitted).await
}

/// Follows a call that was parked with a ticket, until it settles or waits for something else. Returns `None` if the
/// call stays as it is: it has no ticket, its source is not available, or the source returns the same ticket again.
pub(crate) async fn follow(call: Call<'_>) -> Option<CallEnd> {
    let Call { context, journal, request } = call;
    let row = journal.call(request.call).filter(is_followed)?;
    let id = ToolId::parse(&request.id).ok()?;
    let source = context.routes.source_of_owner(&id)?;
    let ticket = row.ticket.and_then(Ticket::new)?;
    let (asker, asked) = QuestionSender::channel(&request.states);
    let parked = ParkedCall { id, ticket: ticket.clone(), token: call.token(), updates: call.updates(), asker };
    let following = match call.tool() {
        Some(tool) => dispatch_with_questions(call, tool, source.follow(parked), asked).await,
        None => Ok(guarded(source.follow(parked)).await),
    };
    let followed = match following {
        Ok(followed) => followed,
        Err(error) => return Some(error.into()),
    };
    let end = match followed {
        Dispatch::Parked(ParkedOn::Followed(same)) if same == ticket => return None,
        Dispatch::Parked(parked) => {
            let tool = call.tool()?;
            park(call, tool, parked).await
        }
        Dispatch::Settled(Outcome::Unknown) if row.attempt < MAX_ATTEMPTS && context.may_repeat(&request.id) => {
            Ok(retry(call).await)
        }
        Dispatch::Settled(outcome) => settle_followed(call, outcome).await,
    };
    Some(end.unwrap_or_else(CallEnd::from))
}

/// Settles a followed call. If an outcome was stored before, returns that one. Fails if another process has taken over
/// the run.
async fn settle_followed(call: Call<'_>, outcome: Outcome) -> Result<CallEnd, CommitError> {
    let outcome = call.store_large_texts(outcome).await;
    let outcome = match call.journal.settle_away(call.number(), &outcome.to_json()).await? {
        true => outcome,
        false => call.stored_outcome().await?,
    };
    Ok(call.record_outcome(outcome).await)
}

/// Returns whether this process must ask the source for the outcome of the call.
fn is_followed(row: &CallRow) -> bool {
    row.state == CallState::Away && row.ticket.is_some() && row.outcome.is_none()
}
