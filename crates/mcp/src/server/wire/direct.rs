//! Handles a request for one tool call without a cell, to its response. The client calls a tool that is shown directly,
//! or `tool_call`. The user is asked for approval, and the tool's questions, as often as necessary.

use contract::cell::PendingState;
use contract::ids::ApprovalId;
use executor::clock::now_ms;
use executor::{CallEnd, DirectCall, Outcome, ToolResult, UNKNOWN_OUTCOME, random_name, stopped_message};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorData, InputRequiredResult, MetaObject};
use serde_json::{Value, json};
use store::{Approval, Millis};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use super::blocks;
use super::calls::{ToolCall, with_telemetry};
use super::questions::{self, Channel, FormOutcome};
use super::request_state;
use crate::server::answer::message;
use crate::server::calls::OwnWork;
use crate::server::direct::{Claim, MidCallQuestions, RunningCall};
use crate::server::elicitation::{self, FormAnswer, Grouping};

/// How long a question that a tool asks during its call may stay open. The tool's own time limit is usually shorter.
const MAX_QUESTION_TIME: Duration = Duration::from_secs(15 * 60);

/// How often a call that is parked, but does not wait for a person, is resumed without a notification of its outcome:
/// the task of a tool must be polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How a request for a tool call ends.
pub(super) enum DirectEnd {
    Settled(Outcome),
    /// The call waits; the message says for what, and what to do.
    Waiting(String),
    /// The result contains a question for the user; the client repeats the request with the answer.
    Ask(Box<InputRequiredResult>),
    /// The call could not be made or followed; the message says why.
    Stopped(String),
}

/// The questions that were shown to the user during a request.
#[derive(Default)]
struct ShownQuestions {
    ids: Vec<ApprovalId>,
    /// How further questions are shown.
    grouping: Grouping,
}

impl ToolCall<'_> {
    /// Calls a tool that is shown directly, and returns the response.
    pub(super) async fn run_direct(&self, id: &str) -> Result<CallToolResponse, ErrorData> {
        let began = Instant::now();
        let end = match random_name() {
            Ok(tool_call_id) => {
                self.call_directly(&tool_call_id, id, Value::Object(self.call.arguments.clone())).await?
            }
            Err(_) => DirectEnd::Stopped("cannot read system randomness; try again later".to_owned()),
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(response(end, self.with_surface(json!({"toolId": id, "durationMs": duration_ms}))))
    }

    /// Makes a tool call, or continues the same call that was parked before.
    /// `tool_call_id` is the id of the control call that a new call belongs to, or its own.
    pub(super) async fn call_directly(
        &self,
        tool_call_id: &str,
        id: &str,
        arguments: Value,
    ) -> Result<DirectEnd, ErrorData> {
        let Self { service, call, .. } = self;
        let binding = request_state::binding(&call.principal, self.tool, &call.arguments);
        let channel = Channel::of(self.context);
        let mid_call = if channel == Channel::Request { MidCallQuestions::Asked } else { MidCallQuestions::Declined };
        let mut shown = ShownQuestions::default();
        let started = match &self.request.request_state {
            Some(sealed) => {
                let state = self.seal.open(sealed, &binding);
                let state =
                    state.ok_or_else(|| ErrorData::invalid_params("requestState is invalid or expired", None))?;
                shown = ShownQuestions { ids: state.left_open, grouping: state.grouping };
                for ids in state.forms {
                    match self.take_answer(&ids, self.request.input_responses.as_ref()).await {
                        Some(FormAnswer::OneByOne) => shown.grouping = Grouping::OneByOne,
                        Some(FormAnswer::Decide(_)) | None => shown.ids.extend(ids),
                    }
                }
                match service.claim(&state.run) {
                    Some(claim) => service.resume_directly(call, claim, mid_call).await,
                    None => Err("another request is working on this call; repeat it later".to_owned()),
                }
            }
            None => service.call_directly(call, tool_call_id, (id, arguments), mid_call).await,
        };
        let mut running = match started {
            Ok(running) => running,
            Err(message) => return Ok(DirectEnd::Stopped(message)),
        };
        loop {
            let (claim, done) = match self.finish_step(running, channel, &mut shown).await {
                Ok(done) => done,
                Err(message) => return Ok(DirectEnd::Stopped(message)),
            };
            let state = match done.end {
                CallEnd::Settled(outcome) => return Ok(DirectEnd::Settled(outcome)),
                CallEnd::Stopped(error) => return Ok(DirectEnd::Stopped(stopped_message(&done.run_id, &error))),
                CallEnd::Parked(state) => state,
            };
            match self.wait_for_decision(&claim, state, channel, &mut shown, &binding).await? {
                AfterParking::Continue => match service.resume_directly(call, claim, mid_call).await {
                    Ok(resumed) => running = resumed,
                    Err(message) => return Ok(DirectEnd::Stopped(message)),
                },
                AfterParking::End(end) => return Ok(end),
            }
        }
    }

    /// Waits until the call is settled or parked, and shows the questions that the tool asks until then.
    async fn finish_step(
        &self,
        running: RunningCall,
        channel: Channel,
        shown: &mut ShownQuestions,
    ) -> Result<(Claim, DirectCall), String> {
        let Self { service, connection, context, call, .. } = *self;
        let RunningCall { claim, mut step, mut states, stop } = running;
        if call.handle.set_own_work(OwnWork::Running(stop.clone())) {
            stop.cancel();
        }
        loop {
            tokio::select! {
                done = &mut step => {
                    let done = done.map_err(|_| "the call was interrupted; its outcome is unknown".to_owned())?;
                    return Ok((claim, done));
                }
                () = service.shutdown_started() => {
                    return Err("cellmate is shutting down, and the tool has not answered yet; its outcome is unknown, so \
                                check whether the call took effect before you repeat it".to_owned());
                }
                true = wait_for_question(&mut states), if channel == Channel::Request => {}
            }
            let open = service.open_approvals_of(&call.principal, claim.run_id()).await;
            let not_shown: Vec<&Approval> = open
                .iter()
                .filter(|approval| {
                    !shown.ids.contains(&approval.approval_id) && questions::can_be_shown(approval, self.rights)
                })
                .collect();
            let forms = elicitation::forms(&not_shown, Grouping::OneByOne);
            let Some(form) = forms.first() else {
                // The open question was shown before, or cannot be shown here; its answer comes from elsewhere, if at
                // all. Polled, because the question may also be missing because the store could not be read.
                tokio::select! {
                    changed = states.changed() => if changed.is_err() { tokio::time::sleep(POLL_INTERVAL).await },
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    done = &mut step => {
                        let done = done.map_err(|_| "the call was interrupted; its outcome is unknown".to_owned())?;
                        return Ok((claim, done));
                    }
                }
                continue;
            };
            shown.ids.extend(form.ids());
            tokio::select! {
                _ = questions::ask(service, connection, context, &call.principal, Instant::now() + MAX_QUESTION_TIME, form) => {}
                done = &mut step => {
                    let done = done.map_err(|_| "the call was interrupted; its outcome is unknown".to_owned())?;
                    return Ok((claim, done));
                }
            }
        }
    }

    /// Asks the user about a parked call, and waits until the call can be continued or the request must end.
    async fn wait_for_decision(
        &self,
        claim: &Claim,
        state: PendingState,
        channel: Channel,
        shown: &mut ShownQuestions,
        binding: &[u8],
    ) -> Result<AfterParking, ErrorData> {
        let Self { service, connection, context, call, .. } = *self;
        let run_id = claim.run_id();
        let mut changes = service.code_mode().run_changes();
        if call.handle.set_own_work(OwnWork::Run(run_id.clone())) {
            service.cancel(call).await;
        }
        loop {
            let is_over = call.until <= Instant::now() || service.is_shutting_down();
            let open = service.open_approvals_of(&call.principal, run_id).await;
            if open.is_empty() {
                // The approval was decided in the meantime, or the call waits for something else.
                if is_over {
                    return Ok(AfterParking::End(DirectEnd::Waiting(self.still_in_progress())));
                }
                if state != PendingState::Approval {
                    changes.wait(run_id, POLL_INTERVAL).await;
                }
                return Ok(AfterParking::Continue);
            }
            let (left_open, not_shown): (Vec<&Approval>, Vec<&Approval>) = open.iter().partition(|approval| {
                shown.ids.contains(&approval.approval_id) || !questions::can_be_shown(approval, self.rights)
            });
            let forms = elicitation::forms(&not_shown, shown.grouping);
            let decided = match (forms.as_slice(), channel) {
                ([_, ..], Channel::Result) => {
                    let left_open = left_open.iter().map(|approval| approval.approval_id.clone()).collect();
                    let question = questions::input_required(&forms, left_open, shown.grouping, self.seal, binding);
                    let question = question.ok_or_else(|| ErrorData::internal_error("cannot build the form", None))?;
                    return Ok(AfterParking::End(DirectEnd::Ask(Box::new(question))));
                }
                ([next, ..], Channel::Request) => {
                    let outcome = questions::ask(service, connection, context, &call.principal, call.until, next).await;
                    match outcome {
                        FormOutcome::OneByOne => {
                            shown.grouping = Grouping::OneByOne;
                            continue;
                        }
                        FormOutcome::DecidedElsewhere => true,
                        FormOutcome::Decided | FormOutcome::Open => {
                            shown.ids.extend(next.ids());
                            outcome == FormOutcome::Decided
                        }
                    }
                }
                _ => {
                    call.progress.send(elicitation::waiting(&open));
                    service.wait_for_decision(&open, call.until).await
                }
            };
            if decided {
                return Ok(AfterParking::Continue);
            }
            if call.until <= Instant::now() || service.is_shutting_down() {
                let open = service.open_approvals_of(&call.principal, run_id).await;
                return Ok(match open.as_slice() {
                    [] => AfterParking::Continue,
                    open => AfterParking::End(DirectEnd::Waiting(self.waiting(open))),
                });
            }
        }
    }

    /// Returns the message for the model if no person has decided yet.
    fn waiting(&self, open: &[Approval]) -> String {
        let then = format!("call `{}` again with the same arguments", self.request.name);
        format!(
            "The tool was not called yet. {} The call is then made, once. If nobody decides within {}, it is dropped, and \
             calling again asks again.",
            message(open, &then),
            time_left(open, now_ms())
        )
    }

    fn still_in_progress(&self) -> String {
        format!(
            "The tool has not answered yet, and its work continues. Call `{}` again with the same arguments to get the \
             result; that does not start it twice.",
            self.request.name
        )
    }
}

/// Returns how long a person has to decide about the first of these approvals that expires, in whole minutes.
fn time_left(open: &[Approval], now: Millis) -> String {
    let left = open.iter().map(|approval| approval.expires_at.saturating_sub(now)).min().unwrap_or(0);
    match left.max(1).unsigned_abs().div_ceil(60_000) {
        1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Waits until the tool asks a question. Returns false if the call has ended, so that it cannot ask any more.
async fn wait_for_question(states: &mut watch::Receiver<PendingState>) -> bool {
    states.wait_for(|state| *state == PendingState::Approval).await.is_ok()
}

/// What follows after a call was parked.
enum AfterParking {
    /// A decision or an outcome was stored, with which the call continues.
    Continue,
    End(DirectEnd),
}

/// Returns the response for a tool that is shown directly: the tool's own result, unchanged.
///
/// For a call that was not made it is an error result, because clients check other results against the tool's output
/// schema.
fn response(end: DirectEnd, telemetry: Value) -> CallToolResponse {
    let failed = |text: String| CallToolResult::error(vec![ContentBlock::text(text)]);
    let result = match end {
        DirectEnd::Ask(question) => return (*question).into(),
        DirectEnd::Settled(Outcome::Returned(returned)) => to_protocol(returned),
        DirectEnd::Settled(Outcome::Failed(message)) => failed(message),
        DirectEnd::Settled(Outcome::Dropped(dropped)) => failed(dropped.message),
        DirectEnd::Settled(Outcome::Unknown) => failed(UNKNOWN_OUTCOME.to_owned()),
        DirectEnd::Waiting(message) | DirectEnd::Stopped(message) => failed(message),
    };
    with_telemetry(result, telemetry).into()
}

/// Converts a tool's result to the protocol's format. The result of an MCP tool already has that format and is passed
/// on unchanged.
fn to_protocol(returned: ToolResult) -> CallToolResult {
    let ToolResult { mut content, mut details, .. } = returned;
    blocks::show_stored_texts(&mut content);
    if let Some(content) = details.as_mut().and_then(|details| details.get_mut("content")).and_then(Value::as_array_mut)
    {
        blocks::show_stored_texts(content);
    }
    let is_result = |details: &Value| {
        details.get("content").is_some_and(Value::is_array) || details.get("structuredContent").is_some()
    };
    let Some(details) = details else { return result_from_blocks(content, None) };
    if !is_result(&details) {
        return result_from_blocks(content, Some(details));
    }
    let mut passed: CallToolResult = match serde_json::from_value(details.clone()) {
        Ok(passed) => passed,
        // The result contains a block of a kind that `rmcp` does not know.
        Err(_) => {
            let is_error = details.get("isError") == Some(&Value::Bool(true));
            let text = vec![ContentBlock::text(details.to_string())];
            return if is_error { CallToolResult::error(text) } else { CallToolResult::success(text) };
        }
    };
    // Servers of older revisions of the protocol do not send `resultType`, and clients of the newest revision need it.
    passed.result_type = CallToolResult::default().result_type;
    passed.meta = passed.meta.take().map(without_reserved_keys).filter(|meta| !meta.is_empty());
    passed
}

/// Returns a server's metadata without the keys that are reserved for the protocol and for Cellmate: a client would
/// take them for ours.
fn without_reserved_keys(meta: MetaObject) -> MetaObject {
    let mut kept = MetaObject::new();
    for (key, value) in meta.iter() {
        let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
        let is_reserved =
            prefix == "cellmate" || prefix.split('.').any(|part| matches!(part, "modelcontextprotocol" | "mcp"));
        if !is_reserved {
            kept.insert(key.clone(), value.clone());
        }
    }
    kept
}

/// Returns the result of a tool that is not an MCP tool, or of another operation of an MCP server, such as reading a
/// resource.
fn result_from_blocks(content: Vec<Value>, details: Option<Value>) -> CallToolResult {
    let known: Option<Vec<ContentBlock>> =
        content.into_iter().map(|block| serde_json::from_value(block).ok()).collect();
    let content = match (known, &details) {
        (Some(blocks), _) if !blocks.is_empty() => blocks,
        (_, Some(details)) => vec![ContentBlock::text(details.to_string())],
        (_, None) => Vec::new(),
    };
    let mut result = CallToolResult::success(content);
    // Structured content must be an object in the older revisions of the protocol.
    result.structured_content = details.filter(Value::is_object);
    result
}

#[cfg(test)]
mod tests {
    use executor::ToolResult;
    use serde_json::{Value, json};
    use store::Approval;

    use super::{time_left, to_protocol};

    #[test]
    fn a_waiting_call_names_the_time_until_its_first_approval_expires() {
        let expiring = |expires_at: i64| Approval { expires_at, ..Approval::default() };
        for (expires_at, expected) in [
            (900_000, "15 minutes"),
            (840_001, "15 minutes"),
            (86_400_000, "1440 minutes"),
            (1_000, "a minute"),
            (-5, "a minute"),
        ] {
            assert_eq!(time_left(&[expiring(i64::MAX), expiring(expires_at)], 0), expected);
        }
    }

    fn sent(returned: ToolResult) -> Value {
        let mut sent = serde_json::to_value(to_protocol(returned)).unwrap();
        // Only clients of the newest revision of the protocol receive this key.
        sent.as_object_mut().unwrap().remove("resultType");
        sent
    }

    #[test]
    fn an_mcp_result_is_passed_on_whole() {
        let result = json!({
            "content": [
                {"type": "text", "text": "a", "annotations": {"audience": ["user"]}},
                {"type": "image", "data": "AA==", "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "b", "mimeType": "text/plain"}},
            ],
            "structuredContent": {"n": [1, null]},
            "isError": true,
            "_meta": {"example.org/x": 1, "cellmate/telemetry": "forged", "io.modelcontextprotocol/related-task": {}},
        });
        let mut expected = result.clone();
        expected["_meta"] = json!({"example.org/x": 1});
        let content = result["content"].as_array().unwrap().clone();
        assert_eq!(sent(ToolResult { content, details: Some(result), ..ToolResult::default() }), expected);
    }

    #[test]
    fn a_result_with_a_stored_text_keeps_its_other_blocks() {
        let result = json!({"content": [
            {"type": "text", "handle": "out_tc_1_c1n0", "bytes": 70_000_000, "first": "abc"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ]});
        let shown = sent(ToolResult { details: Some(result.clone()), ..ToolResult::default() });
        assert!(shown["content"][0]["text"].as_str().unwrap().contains("cellmate://out/out_tc_1_c1n0"), "{shown}");
        assert_eq!(shown["content"][1], result["content"][1]);
    }

    #[test]
    fn other_results_become_blocks_and_structured_content() {
        let unknown = json!({"content": [{"type": "hologram", "x": 1}], "isError": true});
        let shown = sent(ToolResult::json(unknown.clone()));
        assert_eq!((&shown["content"][0]["text"], &shown["isError"]), (&json!(unknown.to_string()), &json!(true)));
        assert_eq!(sent(ToolResult::text("a"))["content"], json!([{"type": "text", "text": "a"}]));
        let listed = sent(ToolResult::json(json!({"resources": []})));
        assert_eq!(listed["structuredContent"], json!({"resources": []}));
        assert_eq!(listed["content"][0]["text"], "{\"resources\":[]}");
        let plain = sent(ToolResult::json(json!([1])));
        assert_eq!((plain.get("structuredContent"), &plain["content"][0]["text"]), (None, &json!("[1]")));
    }
}
