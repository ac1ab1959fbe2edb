//! What a tool wants to know from people: asked as approvals are, answered once, and brought to the tool with the call
//! made again.

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

/// How often one call may come back with a question: a tool that always has another never answers.
const MAX_ROUNDS: i64 = 10;

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
        // What is asked at one time is answered together.
        let now = now_ms();
        let asked = |(number, ask)| self.asked_by_tool(now, id(number), request, tool, ask);
        let asked: Vec<ApprovalRequest> = question.asks.iter().enumerate().map(asked).collect();
        asked.iter().for_each(|one| journal.entry(recorded(request, tool).asked(one)));
        let parked = journal.park(request.call, CallState::Approval, |row, change| {
            row.ticket = Some(question.ticket.as_str().to_owned());
            change.approvals.extend(asked);
        });
        parked.await
    }

    pub(crate) fn asked_by_tool(
        &self,
        now: Millis,
        approval_id: String,
        request: &CallRequest,
        tool: &ToolSpec,
        ask: &Question,
    ) -> ApprovalRequest {
        ApprovalRequest {
            reason: "the tool wants to know something before it goes on".to_owned(),
            question: Some(ask.to_json()),
            ..self.to_be_asked(now, approval_id, request.call, tool, &request.input)
        }
    }

    /// Goes on with a call whose tool asked something, with what people have said to all of it.
    pub(crate) async fn answered(&self, journal: &Journal, request: &CallRequest, said: &[Approval]) -> CallEnd {
        let Some(tool) = self.catalog.get(&request.id) else {
            return self.arrived(journal, request, Outcome::Failed(self.unknown(&request.id))).await;
        };
        let row = journal.call(request.call);
        let attempt = row.as_ref().map_or(0, |row| row.attempt);
        let ticket = row.as_ref().and_then(|row| row.ticket.clone()).and_then(Ticket::new);
        let answers = ticket.ok_or("what it asked cannot be read any more").and_then(|ticket| answers(ticket, said));
        let hash = tool.hash().to_string();
        let refused = match &answers {
            Err(why) => Some(*why),
            Ok(_) if said.iter().any(|one| one.tool_hash != hash) => {
                Some("the tool has changed since it asked; call it again to be asked again")
            }
            Ok(_) if attempt >= MAX_ROUNDS => Some("it asked for the tenth time, so it was given up"),
            Ok(_) => None,
        };
        let (None, Ok(answers)) = (refused, answers) else {
            self.cancel(journal.run_id(), row.as_slice());
            return self.arrived(journal, request, Outcome::Failed(refused.unwrap_or_default().to_owned())).await;
        };
        let approved = said.iter().filter(|one| one.state == ApprovalState::Approved);
        let approvals = approved.map(|one| one.approval_id.clone()).collect();
        let consent = Consent { approvals, agreed: true, answers: Some(answers) };
        let admitted = Admitted { tool: tool.clone(), input: request.input.clone(), ask: None, consent };
        self.make(journal, request, admitted).await
    }
}

fn answers(ticket: Ticket, said: &[Approval]) -> Result<Answers, &'static str> {
    let mut by_key = BTreeMap::new();
    for one in said {
        let ask = one.question.as_ref().and_then(Question::from_json).ok_or("what it asked cannot be read any more")?;
        let answer = match one.state {
            ApprovalState::Approved => {
                let filled = ask.filled(one.edited_input.as_ref());
                filled.map_err(|_| "what a person answered does not fit what it asked")?
            }
            ApprovalState::Denied => Answer::Declined,
            ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => {
                return Err("nobody answered in time what it asked; call it again to be asked again");
            }
        };
        by_key.insert(ask.key, answer);
    }
    Ok(Answers { ticket, by_key })
}

/// One for everything that is ever asked.
pub(crate) fn question_id(run_id: &str, call: u32, attempt: i64, number: usize) -> String {
    format!("apr_{}_{call}_{attempt}_{number}", run_id.trim_start_matches("cm_"))
}
