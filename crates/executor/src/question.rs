//! Questions that a tool returns instead of a result. They are asked like approvals and answered once; then the call is
//! dispatched again with the answers.

use std::collections::BTreeMap;

use contract::tool::ToolSpec;
use store::{Approval, ApprovalRequest, ApprovalState, CallState, CommitError, Millis};

use crate::ask::{Answer, Question};
use crate::clock::now_ms;
use crate::door::{Admitted, Consent, Executor};
use crate::journal::Journal;
use crate::parked::{Answers, QuestionBatch, Ticket};
use crate::record::recorded;
use crate::request::{CallEnd, CallRequest};
use crate::source::Outcome;

/// How often one call may return questions. Without a limit, a tool that always asks again would never settle.
const MAX_ROUNDS: i64 = 10;

const UNREADABLE: &str = "the tool's stored question cannot be read; call the tool again to be asked again";

impl Executor {
    pub(crate) async fn park_for_answers(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
        question: QuestionBatch,
    ) -> Result<(), CommitError> {
        let attempt = journal.call(request.call).map_or(0, |row| row.attempt);
        let id = |number| question_id(journal.run_id(), request.call, attempt, number);
        // Requests with the same timestamp are answered together.
        let now = now_ms();
        let asked = |(number, ask)| self.new_question_request(now, id(number), request, tool, ask);
        let asked: Vec<ApprovalRequest> = question.asks.iter().enumerate().map(asked).collect();
        asked.iter().for_each(|one| journal.entry(recorded(request, tool).asked(one)));
        let parked = journal.park(request.call, CallState::Approval, |row, change| {
            row.ticket = Some(question.ticket.as_str().to_owned());
            change.approvals.extend(asked);
        });
        parked.await
    }

    pub(crate) fn new_question_request(
        &self,
        now: Millis,
        approval_id: String,
        request: &CallRequest,
        tool: &ToolSpec,
        ask: &Question,
    ) -> ApprovalRequest {
        ApprovalRequest {
            reason: "the tool has a question and needs the answer to continue".to_owned(),
            question: Some(ask.to_json()),
            ..self.new_approval_request(now, approval_id, request.call, tool, &request.input)
        }
    }

    /// Dispatches a call again, with the answers to all questions of its tool.
    pub(crate) async fn resume_answered(&self, journal: &Journal, request: &CallRequest, said: &[Approval]) -> CallEnd {
        let Some(tool) = self.catalog.get(&request.id) else {
            return self.record_outcome(journal, request, Outcome::Failed(self.unknown(&request.id))).await;
        };
        let row = journal.call(request.call);
        let attempt = row.as_ref().map_or(0, |row| row.attempt);
        let ticket = row.as_ref().and_then(|row| row.ticket.clone()).and_then(Ticket::new);
        let answers = ticket.ok_or(UNREADABLE).and_then(|ticket| answers(ticket, said));
        let hash = tool.hash().to_string();
        let refused = match &answers {
            Err(why) => Some(*why),
            Ok(_) if said.iter().any(|one| one.tool_hash != hash) => {
                Some("the tool has changed since it asked a question; call it again to be asked again")
            }
            Ok(_) if attempt >= MAX_ROUNDS => Some("the tool asked for input ten times, so the call was given up"),
            Ok(_) => None,
        };
        let (None, Ok(answers)) = (refused, answers) else {
            self.cancel(journal.run_id(), row.as_slice());
            return self
                .record_outcome(journal, request, Outcome::Failed(refused.unwrap_or_default().to_owned()))
                .await;
        };
        let approved = said.iter().filter(|one| one.state == ApprovalState::Approved);
        let approvals = approved.map(|one| one.approval_id.clone()).collect();
        let consent = Consent { approvals, approved: true, answers: Some(answers) };
        let admitted = Admitted { tool: tool.clone(), input: request.input.clone(), ask: None, consent };
        self.dispatch(journal, request, admitted).await
    }
}

fn answers(ticket: Ticket, said: &[Approval]) -> Result<Answers, &'static str> {
    let mut by_key = BTreeMap::new();
    for one in said {
        let ask = one.question.as_ref().and_then(Question::from_json).ok_or(UNREADABLE)?;
        let answer = match one.state {
            ApprovalState::Approved => {
                let filled = ask.filled(one.edited_input.as_ref());
                filled.map_err(
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

/// Returns an id that is unique to one question of one attempt at a call.
pub(crate) fn question_id(run_id: &str, call: u32, attempt: i64, number: usize) -> String {
    format!("apr_{}_{call}_{attempt}_{number}", run_id.trim_start_matches("cm_"))
}
