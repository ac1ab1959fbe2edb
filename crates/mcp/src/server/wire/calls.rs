//! Handles one tool call from its request to its response, including questions to the user.

use std::collections::BTreeMap;

use contract::cell::CellResult;
use contract::ids::ApprovalId;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData};
use rmcp::service::RequestContext;
use serde_json::Value;
use store::Approval;
use tokio::time::Instant;

use super::blocks;
use super::connection::Connection;
use super::questions::{self, Channel, FormOutcome, FormRights};
use super::request_state::{self, Seal};
use crate::server::answer::{Answer, age};
use crate::server::approvals::waits_for_people;
use crate::server::calls::Call;
use crate::server::elicitation::{self, Form, FormAnswer, Grouping};
use crate::server::media::MediaBudget;
use crate::server::prepared::PreparedTools;
use crate::server::recovery::WaitTarget;
use crate::server::service::McpService;
use crate::server::tools::Tool;

/// The key in `_meta` of a result.
const TELEMETRY: &str = "cellmate/telemetry";

enum FirstResult {
    Result(Box<CellResult>),
    /// There is no run to wait for.
    Nothing(Answer),
}

/// A tool call, and what its handler needs to answer it.
#[derive(Clone, Copy)]
pub(super) struct ToolCall<'a> {
    pub(super) service: &'a McpService,
    pub(super) seal: &'a Seal,
    pub(super) connection: &'a Connection,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) request: &'a CallToolRequestParams,
    pub(super) prepared: &'a PreparedTools,
    pub(super) tool: &'a Tool,
    pub(super) call: &'a Call,
    pub(super) rights: FormRights,
}

impl ToolCall<'_> {
    /// Runs the call to its response, asking the user as often as necessary.
    pub(super) async fn run(self) -> Result<CallToolResponse, ErrorData> {
        match self.tool {
            Tool::Exec | Tool::Wait => self.run_cell().await,
            Tool::SearchCode => Ok(self.search_code().await),
            Tool::Search | Tool::Describe => Ok(self.search().await),
            Tool::Call => self.tool_call().await,
            Tool::Direct(id) => self.run_direct(id).await,
        }
    }

    /// Adds the surface that the client is shown to telemetry.
    pub(super) fn with_surface(&self, mut telemetry: Value) -> Value {
        if let Some(fields) = telemetry.as_object_mut() {
            fields.insert("surface".to_owned(), self.prepared.report.to_json());
        }
        telemetry
    }

    /// Returns the response for an answer of a control.
    pub(super) fn answered(&self, mut answer: Answer) -> CallToolResponse {
        answer.telemetry = self.with_surface(answer.telemetry);
        blocks::keep_known(&mut answer, self.context, self.connection);
        completed(&answer).into()
    }

    /// Runs `exec` or `wait`.
    async fn run_cell(self) -> Result<CallToolResponse, ErrorData> {
        let Self { service, seal, connection, context, request, tool, call, .. } = self;
        let binding = request_state::binding(&call.principal, tool, &call.arguments);
        let mut asked: Vec<ApprovalId> = Vec::new();
        let mut grouping = Grouping::default();
        let mut result = match &request.request_state {
            Some(sealed) => {
                let carried = seal.open(sealed, &binding);
                let carried =
                    carried.ok_or_else(|| ErrorData::invalid_params("requestState is invalid or expired", None))?;
                grouping = carried.grouping;
                asked = carried.left_open;
                for ids in carried.forms {
                    match self.take_answer(&ids, request.input_responses.as_ref()).await {
                        Some(FormAnswer::OneByOne) => grouping = Grouping::OneByOne,
                        Some(FormAnswer::Decide(_)) | None => asked.extend(ids),
                    }
                }
                service.wait(call, &carried.run).await
            }
            None => match self.start().await {
                FirstResult::Result(result) => *result,
                FirstResult::Nothing(answer) => return Ok(self.answered(answer)),
            },
        };
        let (channel, until) = (Channel::of(context), call.until_person());
        let mut made_at = Instant::now();
        loop {
            let open = service.open_approvals(&call.principal, &result).await;
            let Some(run_id) = waits_for_people(&result).cloned().filter(|_| !open.is_empty()) else {
                return Ok(self.response(result, made_at, &open));
            };
            let (known, fresh): (Vec<&Approval>, Vec<&Approval>) = open
                .iter()
                .partition(|one| asked.contains(&one.approval_id) || !questions::can_be_shown(one, self.rights));
            let forms = elicitation::forms(&fresh, grouping);
            call.handle.start_waiting_for_person();
            let decided = match (forms.as_slice(), channel) {
                ([_, ..], Channel::Result) => {
                    let left_open = known.iter().map(|one| one.approval_id.clone()).collect();
                    let question = questions::input_required(&forms, left_open, grouping, seal, &binding);
                    let question = question.ok_or_else(|| ErrorData::internal_error("cannot build the form", None))?;
                    service.undelivered().keep(&call.principal, &mut result);
                    return Ok(question.into());
                }
                ([next, ..], Channel::Request) => {
                    match questions::ask(service, connection, context, &call.principal, until, next).await {
                        FormOutcome::OneByOne => {
                            grouping = Grouping::OneByOne;
                            call.handle.stop_waiting_for_person();
                            continue;
                        }
                        // Calls of the form that are still open are asked about again.
                        FormOutcome::DecidedElsewhere => true,
                        outcome @ (FormOutcome::Decided | FormOutcome::Open) => {
                            asked.extend(next.ids());
                            outcome == FormOutcome::Decided
                        }
                    }
                }
                _ if *tool == Tool::Wait => {
                    call.progress.send(elicitation::waiting(&open));
                    service.wait_for_decision(&open, until).await
                }
                _ => return Ok(self.response(result, made_at, &open)),
            };
            call.handle.stop_waiting_for_person();
            if decided {
                service.undelivered().keep(&call.principal, &mut result);
                result = service.wait(call, &run_id).await;
                made_at = Instant::now();
            } else if until <= Instant::now() || service.is_shutting_down() {
                let open = service.open_approvals(&call.principal, &result).await;
                return Ok(self.response(result, made_at, &open));
            }
        }
    }

    /// Returns the response for a result, together with output of the run that reached no client before. The call may
    /// have waited for a person since the result was made.
    fn response(&self, mut result: CellResult, made_at: Instant, asked: &[Approval]) -> CallToolResponse {
        age(&mut result, made_at.elapsed());
        if let Some(run_id) = self.call.handle.run_id() {
            self.service.undelivered().prepend_to(&self.call.principal, &run_id, &mut result);
        }
        self.answered(Answer::with_media(&result, asked, MediaBudget::of(&self.prepared.config.limits)))
    }

    async fn start(&self) -> FirstResult {
        let Self { service, call, .. } = self;
        match self.tool {
            Tool::Exec => FirstResult::Result(Box::new(service.exec(call).await)),
            _ => match service.wait_target(call).await {
                WaitTarget::Run(run_id) => FirstResult::Result(Box::new(service.wait(call, &run_id).await)),
                WaitTarget::Nothing(answer) => FirstResult::Nothing(answer),
            },
        }
    }

    /// Stores the decision in a client's answer to a form about these approvals, and returns the answer. Answers to
    /// questions that were not asked are ignored.
    pub(super) async fn take_answer(
        &self,
        ids: &[ApprovalId],
        answers: Option<&BTreeMap<String, Value>>,
    ) -> Option<FormAnswer> {
        let answer = answers?.get(ids.first()?.as_str())?;
        let mut approvals = Vec::new();
        for approval_id in ids {
            match self.service.code_mode().store().approval(approval_id).await {
                Ok(approval) => approvals.extend(approval),
                Err(error) => {
                    let approval_id = approval_id.as_str();
                    tracing::warn!(approval_id, %error, "an approval cannot be read, so its answer is not stored");
                }
            }
        }
        if !approvals.iter().all(|approval| self.rights.include(approval)) {
            tracing::info!(
                principal = self.call.principal.name(),
                "ignored an answer of a client that may not approve"
            );
            return None;
        }
        let answer = Form::shown(approvals)?.answer(answer)?;
        if let FormAnswer::Decide(decision) = &answer {
            self.service.decide(&self.call.principal, ids, decision).await;
        }
        Some(answer)
    }
}

pub(super) fn completed(answer: &Answer) -> CallToolResult {
    let mut content = vec![ContentBlock::text(answer.value.to_string())];
    content.extend(answer.media.iter().map(blocks::of_media));
    content.extend(answer.links.iter().map(blocks::of_link));
    let is_text = content.len() == 1;
    let mut result = if answer.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    // Structured content must be an object in the older revisions of the protocol. Clients that show it to the model show
    // none of the blocks.
    result.structured_content = is_text.then(|| answer.value.clone()).filter(Value::is_object);
    with_telemetry(result, answer.telemetry.clone())
}

/// Adds telemetry to a result's metadata, which models do not see.
pub(super) fn with_telemetry(mut result: CallToolResult, telemetry: Value) -> CallToolResult {
    let mut meta = result.meta.take().unwrap_or_default();
    meta.insert(TELEMETRY.to_owned(), telemetry);
    result.meta = Some(meta);
    result
}

#[cfg(test)]
mod tests {
    use contract::cell::{CellResult, Media, OutputItem, Preview, Telemetry};
    use contract::ids::OutputHandle;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::completed;
    use crate::server::answer::Answer;

    fn sent(output: Vec<OutputItem>, takes_links: bool) -> Value {
        let value = RawValue::from_string("1".to_owned()).unwrap();
        let mut answer = Answer::of(&CellResult::Completed { value, output, telemetry: Telemetry::default() }, &[]);
        if !takes_links {
            answer.links.clear();
        }
        let mut sent = serde_json::to_value(completed(&answer)).unwrap();
        assert!(sent["_meta"]["cellmate/telemetry"].is_object());
        // The block is the JSON, whatever follows.
        let text: Value = serde_json::from_str(sent["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!((&text["status"], &text["value"]), (&json!("completed"), &json!(1)));
        sent["text"] = text;
        sent
    }

    #[test]
    fn a_result_with_blocks_has_no_structured_content_and_no_base64_in_its_text() {
        let handle = OutputHandle::of(&"cm_1".into(), "l1n0");
        let data: Vec<u8> = (0..=255).collect();
        let media =
            |kind: &str| Media { mime_type: kind.to_owned(), data: data.clone().into(), handle: Some(handle.clone()) };
        let output = vec![OutputItem::Image(media("image/png")), OutputItem::Audio(media("audio/wav"))];
        let both = sent(output, true);
        assert_eq!(both.get("structuredContent"), None);
        let base64 = both["content"][1]["data"].as_str().unwrap();
        assert!(base64.starts_with("AAECAwQF") && base64.len() == 344, "{base64}");
        assert_eq!(both["content"][1], json!({"type": "image", "data": base64, "mimeType": "image/png"}));
        assert_eq!(both["content"][2], json!({"type": "audio", "data": base64, "mimeType": "audio/wav"}));
        assert_eq!(both["content"].as_array().unwrap().len(), 3);
        assert!(!both["text"].to_string().contains("AAEC"), "{}", both["text"]);
    }

    #[test]
    fn a_stored_output_is_linked_only_for_clients_that_take_links() {
        let preview = Preview {
            handle: OutputHandle::of(&"cm_1".into(), "l1n0"),
            of: "text".to_owned(),
            bytes: 70_000,
            shape: None,
            first: "a".to_owned(),
            last: "z".to_owned(),
        };
        let linked = sent(vec![OutputItem::Stored(preview.clone())], true);
        let uri = "cellmate://out/out_cm_1_l1n0";
        let link = json!({"type": "resource_link", "uri": uri, "name": "out_cm_1_l1n0", "mimeType": "text/plain", "size": 70_000});
        assert_eq!((&linked["content"][1], linked.get("structuredContent")), (&link, None));
        let plain = sent(vec![OutputItem::Stored(preview)], false);
        assert_eq!((plain["content"].as_array().unwrap().len(), &plain["structuredContent"]), (1, &plain["text"]));
        assert_eq!(plain["text"]["output"][0]["handle"], "out_cm_1_l1n0");
    }
}
