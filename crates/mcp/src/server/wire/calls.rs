//! Handles one tool call from its request to its response, including questions to the user.

use std::collections::BTreeMap;

use contract::cell::CellResult;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData};
use rmcp::service::RequestContext;
use serde_json::Value;
use store::Approval;
use tokio::time::Instant;

use super::asked::{self, Channel};
use super::handler::Handler;
use super::state;
use crate::server::answer::Answer;
use crate::server::elicit;
use crate::server::frontend::Call;
use crate::server::hold::waits_for_people;
use crate::server::lost::WaitTarget;
use crate::server::prefix::Tool;

enum FirstResult {
    Result(Box<CellResult>),
    Listed(Value),
}

impl Handler {
    /// Runs a call to its response, asking the user as often as necessary.
    pub(super) async fn run_call(
        &self,
        tool: Tool,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        call: &Call,
    ) -> Result<CallToolResponse, ErrorData> {
        let binding = state::binding(&call.principal, tool, &call.arguments);
        let mut asked: Vec<String> = Vec::new();
        let mut result = match &request.request_state {
            Some(sealed) => {
                let carried = self.seal.open(sealed, &binding);
                let carried =
                    carried.ok_or_else(|| ErrorData::invalid_params("requestState is invalid or expired", None))?;
                self.take_answers(call, &carried.asked, request.input_responses.as_ref()).await;
                asked = carried.asked;
                self.frontend.wait(call, &carried.run).await
            }
            None => match self.start(tool, call).await {
                FirstResult::Result(result) => *result,
                FirstResult::Listed(list) => return Ok(complete(&Answer::listed(list))),
            },
        };
        let channel = Channel::of(context);
        loop {
            let open = self.frontend.open_approvals(&call.principal, &result).await;
            let Some(run_id) = waits_for_people(&result).map(str::to_owned).filter(|_| !open.is_empty()) else {
                return Ok(self.response(call, result, &open));
            };
            let fresh = open.iter().filter(|one| !asked.contains(&one.approval_id) && asked::form(one).is_some());
            let fresh: Vec<&Approval> = fresh.collect();
            call.handle.hold(true);
            let decided = match (fresh.as_slice(), channel) {
                ([_, ..], Channel::Result) => {
                    let question = asked::input_required(&fresh, &self.seal, &binding);
                    let question = question.ok_or_else(|| ErrorData::internal_error("cannot build the form", None))?;
                    self.frontend.undelivered().keep(&call.principal, &mut result);
                    return Ok(question.into());
                }
                ([next, ..], Channel::Request) => {
                    asked.push(next.approval_id.clone());
                    asked::ask(&self.frontend, &self.session, context, call, next).await
                }
                _ if tool == Tool::Wait => {
                    call.progress.send(elicit::waiting(&open));
                    self.frontend.wait_for_decision(&open, call.until).await
                }
                _ => return Ok(self.response(call, result, &open)),
            };
            call.handle.hold(false);
            if decided {
                self.frontend.undelivered().keep(&call.principal, &mut result);
                result = self.frontend.wait(call, &run_id).await;
            } else if call.until <= Instant::now() || self.frontend.is_leaving() {
                let open = self.frontend.open_approvals(&call.principal, &result).await;
                return Ok(self.response(call, result, &open));
            }
        }
    }

    /// Returns the response for a result, together with output of the run that reached no client before.
    fn response(&self, call: &Call, mut result: CellResult, asked: &[Approval]) -> CallToolResponse {
        if let Some(run_id) = call.handle.run_id() {
            self.frontend.undelivered().prepend_to(&call.principal, &run_id, &mut result);
        }
        complete(&Answer::of(&result, asked))
    }

    async fn start(&self, tool: Tool, call: &Call) -> FirstResult {
        match tool {
            Tool::Exec => FirstResult::Result(Box::new(self.frontend.exec(call).await)),
            Tool::Wait => match self.frontend.wait_target(call).await {
                WaitTarget::Run(run_id) => FirstResult::Result(Box::new(self.frontend.wait(call, &run_id).await)),
                WaitTarget::Failed(result) => FirstResult::Result(result),
                WaitTarget::Listed(list) => FirstResult::Listed(list),
            },
        }
    }

    /// Stores the decisions in a client's answers. Answers to questions that were not asked are ignored.
    async fn take_answers(&self, call: &Call, asked: &[String], answers: Option<&BTreeMap<String, Value>>) {
        for approval_id in asked {
            let Some(answer) = answers.and_then(|answers| answers.get(approval_id)) else { continue };
            let Ok(Some(approval)) = self.frontend.code_mode().store().approval(approval_id).await else { continue };
            if let Some(decision) = elicit::decision(&approval, answer) {
                self.frontend.decide(&call.principal, approval_id, &decision).await;
            }
        }
    }
}

fn complete(answer: &Answer) -> CallToolResponse {
    completed(answer).into()
}

pub(super) fn completed(answer: &Answer) -> CallToolResult {
    let text = vec![ContentBlock::text(answer.value.to_string())];
    let mut result = if answer.is_error { CallToolResult::error(text) } else { CallToolResult::success(text) };
    result.structured_content = Some(answer.value.clone());
    result
}
