//! Questions of a tool to a person.
//!
//! A tool may ask while its call is in progress. The source waits for the answer, so such a call does not survive a
//! restart: if this process ends first, the outcome of the call is unknown. Or a tool returns questions instead of a
//! result; they are asked like approvals and answered once, and then the call is dispatched again with the answers.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use contract::cell::PendingState;
use contract::ids::{ApprovalId, CallId, RunId};
use contract::tool::ToolSpec;
use futures_util::FutureExt;
use store::{Approval, ApprovalRequest, ApprovalState, CallState, CommitError, Millis};
use tokio::sync::{mpsc, oneshot};

use super::approval;
use super::context::Call;
use super::transcript::RecordedCall;
use crate::clock::now_ms;
use crate::outcome::Outcome;
use crate::question::{Answer, PendingQuestion, Question};
use crate::source::{Answers, CallFuture, Dispatch, QuestionBatch, Ticket};

/// The total number of questions that one call may ask while it is in progress.
const MAX_QUESTIONS: usize = 16;

/// How often the store is polled for the answer to a question. Any process may store the answer, a `Watch` would take a
/// database connection for each open question, and the notifications of this process are above this crate (`codemode`).
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) const UNREADABLE: &str = "the tool's stored question cannot be read; call the tool again to be asked again";

/// Waits for the source's result, and asks people the questions that the tool has until then.
pub(crate) async fn dispatch_with_questions(
    call: Call<'_>,
    tool: &ToolSpec,
    answering: CallFuture<'_>,
    mut questions: mpsc::Receiver<PendingQuestion>,
) -> Result<Dispatch, CommitError> {
    let Call { journal, request, .. } = call;
    let mut answering = pin!(guarded(answering));
    let mut number = 0;
    loop {
        let PendingQuestion { question, reply } = tokio::select! {
            dispatch = &mut answering => return Ok(dispatch),
            Some(question) = questions.recv() => question,
        };
        number += 1;
        if number > MAX_QUESTIONS {
            send_answer(reply, None);
            continue;
        }
        let attempt = journal.call(request.call).map_or(0, |row| row.attempt);
        // Numbers above 100, to differ from those of questions that a tool returns instead of a result.
        let id = question_id(journal.run_id(), request.call, attempt, 100 + number);
        let answer = tokio::select! {
            dispatch = &mut answering => {
                journal.store().withdraw(&id).await?;
                request.states.send(PendingState::Running);
                return Ok(dispatch);
            }
            answer = Box::pin(ask_now(call, tool, &id, &question)) => answer?,
        };
        request.states.send(PendingState::Running);
        send_answer(reply, answer);
    }
}

fn send_answer(reply: oneshot::Sender<Option<Answer>>, answer: Option<Answer>) {
    if reply.send(answer).is_err() {
        tracing::debug!("the tool no longer waits for the answer to its question");
    }
}

async fn ask_now(
    call: Call<'_>,
    tool: &ToolSpec,
    id: &ApprovalId,
    ask: &Question,
) -> Result<Option<Answer>, CommitError> {
    let Call { journal, request, .. } = call;
    let approval = new_question_request(call, now_ms(), id.clone(), tool, ask);
    journal.entry(RecordedCall::new(request, tool).approval_request_entry(&approval));
    let state = journal.call(request.call).map_or(CallState::Dispatched, |row| row.state);
    match journal.park(request.call, state, |_, change| change.approvals.push(approval)).await {
        Ok(()) => {}
        // The quota allows no more open questions, so this one is not asked.
        Err(CommitError::Quota(exceeded)) => {
            tracing::info!(%exceeded, "the tool's question was not asked");
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    tracing::info!(approval = id.as_str(), "question asked");
    request.states.send(PendingState::Approval);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let approval = match journal.store().approval(id).await {
            Ok(Some(approval)) => approval,
            Ok(None) => continue,
            Err(error) => {
                tracing::debug!(%error, "cannot read the answer to a question; polling again");
                continue;
            }
        };
        if approval.is_open(now_ms()) {
            continue;
        }
        tracing::info!(approval = id.as_str(), state = approval.state.as_str(), "question decided");
        return Ok(match approval.state {
            ApprovalState::Approved => {
                let answer = ask.parse_answer(approval.edited_input.as_ref());
                answer.inspect_err(|why| tracing::debug!(why, "the answer does not match the question")).ok()
            }
            ApprovalState::Denied => Some(Answer::Declined),
            ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => None,
        });
    }
}

/// Parks a call whose tool returned questions until people have answered all of them.
pub(crate) async fn park_for_answers(call: Call<'_>, tool: &ToolSpec, batch: QuestionBatch) -> Result<(), CommitError> {
    let Call { journal, request, .. } = call;
    let attempt = journal.call(request.call).map_or(0, |row| row.attempt);
    let id = |number| question_id(journal.run_id(), request.call, attempt, number);
    // Requests with the same timestamp are answered together.
    let now = now_ms();
    let approval = |(number, ask)| new_question_request(call, now, id(number), tool, ask);
    let approvals: Vec<ApprovalRequest> = batch.questions.iter().enumerate().map(approval).collect();
    approvals.iter().for_each(|one| journal.entry(RecordedCall::new(request, tool).approval_request_entry(one)));
    let questions = approvals.len();
    let parked = journal.park(request.call, CallState::Approval, |row, change| {
        row.ticket = Some(batch.ticket.as_str().to_owned());
        change.approvals.extend(approvals);
    });
    parked.await?;
    tracing::info!(questions, "answers requested");
    Ok(())
}

fn new_question_request(
    call: Call<'_>,
    now: Millis,
    approval_id: ApprovalId,
    tool: &ToolSpec,
    ask: &Question,
) -> ApprovalRequest {
    ApprovalRequest {
        reason: "the tool has a question and needs the answer to continue".to_owned(),
        question: Some(ask.to_json()),
        ..approval::new_request(call, now, approval_id, tool, &call.request.input)
    }
}

/// Collects the answers to all questions that a tool returned. Fails with the reason for the model.
pub(crate) fn answers(ticket: Ticket, decisions: &[Approval]) -> Result<Answers, &'static str> {
    let mut by_key = BTreeMap::new();
    for decision in decisions {
        let ask = decision.question.as_ref().and_then(Question::from_json).ok_or(UNREADABLE)?;
        let answer = match decision.state {
            ApprovalState::Approved => {
                let answer = ask.parse_answer(decision.edited_input.as_ref());
                answer.map_err(
                    |_| "the person's answer does not match the tool's question; call the tool again to be asked again",
                )?
            }
            ApprovalState::Denied => Answer::Declined,
            ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => {
                return Err("the tool's question was not answered in time; call the tool again to be asked again");
            }
        };
        by_key.insert(ask.key, answer);
    }
    Ok(Answers { ticket, by_key })
}

/// Turns a panic of the source into a failure of this call only, in programs where panics unwind.
pub(crate) async fn guarded(answering: CallFuture<'_>) -> Dispatch {
    let called = AssertUnwindSafe(answering).catch_unwind().await;
    called.unwrap_or_else(|_| {
        let message = "the tool panicked and may have taken effect; check before calling it again";
        Dispatch::Settled(Outcome::Failed(message.to_owned()))
    })
}

/// Returns an id that is unique to one question of one attempt at a call.
fn question_id(run_id: &RunId, call: CallId, attempt: i64, number: usize) -> ApprovalId {
    // The number stays readable, because requests of the same time are sorted by id.
    format!("{}_{number}", approval::short_id(&format!("{run_id}\0{call}\0{attempt}"))).into()
}
