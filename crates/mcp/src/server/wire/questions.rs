//! Asking the user through the client: in a result since revision 2026-07-28, by a server request before that.

use std::time::Duration;

use contract::ids::ApprovalId;
use executor::clock::now_ms;
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, InputRequests,
    InputRequiredResult, ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle};
use serde_json::Value;
use store::{Approval, Millis};
use telemetry::LogIgnored;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::request_state::{RequestState, Seal};
use crate::server::elicitation::{Form, FormAnswer, Grouping};
use crate::server::principal::Principal;
use crate::server::service::McpService;

/// The maximum number of forms in one result; the others follow when these are answered.
const MAX_FORMS: usize = 8;

/// The maximum size of a form's schema. A person answers a larger form with `cellmate approvals`.
const MAX_FORM_BYTES: usize = 64 << 10;

/// How long a form stays open at most after its call has ended, even if its approval expires later; how often
/// its approvals are read without a notification of a decision; and how long sending the withdrawal to the client may
/// take.
const MAX_LATE: Duration = Duration::from_secs(15 * 60);
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a form is withdrawn.
const DECIDED: &str = "the approval was decided elsewhere";
const EXPIRED: &str = "the approval has expired";
const TOO_MANY: &str = "too many forms are open";

/// How the user can be asked during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// The result contains the question, and the client repeats the call with the answer.
    Result,
    /// The server sends a request, and the call stays open.
    Request,
    /// This client shows no forms.
    Elsewhere,
}

impl Channel {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let forms = context.client_capabilities().and_then(|has| has.elicitation).is_some_and(|elicitation| {
            // Older revisions have only forms and declare no kind.
            elicitation.form.is_some() || elicitation.url.is_none()
        });
        match (forms, is_modern(context)) {
            (false, _) => Self::Elsewhere,
            (true, true) => Self::Result,
            (true, false) => Self::Request,
        }
    }
}

/// Returns true for revisions since 2026-07-28, which have no sessions and no server-initiated requests.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Returns a result that asks the user, or `None` if the protocol cannot express the question. `left_open` are other
/// approvals that the user was asked about during this call.
pub(super) fn input_required(
    forms: &[Form],
    left_open: Vec<ApprovalId>,
    grouping: Grouping,
    seal: &Seal,
    binding: &[u8],
) -> Option<InputRequiredResult> {
    let run = forms.first()?.approvals().first()?.run_id.clone();
    let forms = forms.get(..MAX_FORMS).unwrap_or(forms);
    let mut requests = InputRequests::new();
    for form in forms {
        let request = InputRequest::Elicitation(ElicitRequest::new(parameters(form)?));
        requests.insert(form.approvals().first()?.approval_id.to_string(), request);
    }
    let forms = forms.iter().map(Form::ids).collect();
    let state = seal.close(&RequestState { run, forms, left_open, grouping }, binding)?;
    Some(InputRequiredResult::new(Some(requests), Some(state)))
}

/// What became of a form that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormOutcome {
    /// The user decided.
    Decided,
    /// A call in it was decided elsewhere, so the form was withdrawn.
    DecidedElsewhere,
    /// The user wants a form for each call.
    OneByOne,
    /// Nothing was decided before the call must end. A later answer still counts while an approval is open.
    Open,
}

/// Shows a form to the client's user, until it is answered, a call in it is decided elsewhere, or the time is over.
pub(super) async fn ask(
    service: &McpService,
    connection: &Connection,
    context: &RequestContext<RoleServer>,
    principal: &Principal,
    until: Instant,
    form: &Form,
) -> FormOutcome {
    let Some(parameters) = parameters(form) else { return FormOutcome::Open };
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(parameters));
    let sent = context.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
    let Ok(mut handle) = sent else { return FormOutcome::Open };
    let elsewhere = service.wait_for_decision(form.approvals(), until);
    tokio::select! {
        answer = &mut handle.rx => {
            let answer = answer.ok().and_then(Result::ok).map(to_json);
            match answer.as_ref().and_then(|answer| form.answer(answer)) {
                Some(FormAnswer::Decide(decision)) => {
                    match service.decide(principal, &form.ids(), &decision).await {
                        true => FormOutcome::Decided,
                        false => FormOutcome::Open,
                    }
                }
                Some(FormAnswer::OneByOne) => FormOutcome::OneByOne,
                None => FormOutcome::Open,
            }
        }
        decided = elsewhere => {
            match connection.late_form() {
                Some(permit) if !decided => {
                    let late = LateForm { handle, principal: principal.clone(), form: form.clone() };
                    tokio::spawn(late.wait_for_answer(service.clone(), connection.ended(), permit));
                }
                _ => withdraw(handle, if decided { DECIDED } else { TOO_MANY }).await,
            }
            if decided { FormOutcome::DecidedElsewhere } else { FormOutcome::Open }
        }
    }
}

/// A form that is still open in the client after its call has ended.
struct LateForm {
    handle: RequestHandle<RoleServer>,
    principal: Principal,
    form: Form,
}

impl LateForm {
    /// Waits for the answer until all calls in the form are decided elsewhere or expire, the session ends, or the
    /// process shuts down.
    async fn wait_for_answer(mut self, service: McpService, ended: CancellationToken, permit: OwnedSemaphorePermit) {
        let form = &self.form;
        let deadline = tokio::time::sleep(time_left(form.approvals(), now_ms()));
        tokio::select! {
            answer = &mut self.handle.rx => {
                let answer = answer.ok().and_then(Result::ok).map(to_json);
                // There is no call left that could ask about each one.
                if let Some(FormAnswer::Decide(decision)) = answer.as_ref().and_then(|answer| form.answer(answer)) {
                    service.decide(&self.principal, &form.ids(), &decision).await;
                }
            }
            () = wait_until_closed(&service, form) => withdraw(self.handle, DECIDED).await,
            () = deadline => withdraw(self.handle, EXPIRED).await,
            () = ended.cancelled() => {}
            () = service.shutdown_started() => {}
        }
        drop(permit);
    }
}

/// Returns how long a form stays open: until the last of its approvals expires.
fn time_left(approvals: &[Approval], now: Millis) -> Duration {
    let expires_at = approvals.iter().map(|approval| approval.expires_at).max().unwrap_or(now);
    let left = u64::try_from(expires_at.saturating_sub(now)).unwrap_or(0);
    Duration::from_millis(left).min(MAX_LATE)
}

/// Waits until none of a form's approvals is open.
async fn wait_until_closed(service: &McpService, form: &Form) {
    let Some(run_id) = form.approvals().first().map(|approval| approval.run_id.clone()) else { return };
    let ids = form.ids();
    let mut changes = service.code_mode().run_changes();
    loop {
        changes.wait(&run_id, POLL_INTERVAL).await;
        let now = now_ms();
        match service.code_mode().store().approvals_of_run(&run_id).await {
            Ok(found) if found.iter().any(|approval| approval.is_open(now) && ids.contains(&approval.approval_id)) => {}
            Ok(_) => return,
            // The store may recover; the deadline applies in any case.
            Err(error) => tracing::debug!(run_id = run_id.as_str(), %error, "the approvals of a run cannot be read"),
        }
    }
}

/// Asks the client to close a form. It does not wait long for a client that does not read.
async fn withdraw(handle: RequestHandle<RoleServer>, why: &str) {
    match tokio::time::timeout(WITHDRAW_TIMEOUT, handle.cancel(Some(why.to_owned()))).await {
        Ok(sent) => sent.log_expected("withdraw a form"),
        Err(_) => tracing::debug!("a client did not receive the withdrawal of a form in time"),
    }
}

fn to_json(answer: ClientResult) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

/// What the client's user may do with forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FormRights {
    /// Approve calls, and answer questions of tools.
    Approve,
    /// Answer questions of tools only, because the client's token may not approve.
    AnswerQuestions,
}

impl FormRights {
    /// Returns whether a form about this approval may be shown and answered.
    pub(super) fn include(self, approval: &Approval) -> bool {
        self == Self::Approve || approval.question.is_some()
    }
}

/// Whether the client can show a form for this approval, and its user may answer it.
pub(super) fn can_be_shown(approval: &Approval, rights: FormRights) -> bool {
    rights.include(approval) && Form::shown(vec![approval.clone()]).as_ref().and_then(parameters).is_some()
}

/// Returns the parameters of the request that shows a form, or `None` if a tool's form does not fit the protocol's
/// schema or is too large. The size is limited because a session keeps the form for a client that resumes its stream.
fn parameters(form: &Form) -> Option<ElicitRequestParams> {
    let schema = form.schema();
    if schema.to_string().len() > MAX_FORM_BYTES {
        return None;
    }
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let message = form.message();
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use store::Approval;

    use super::{Form, FormRights, MAX_FORM_BYTES, MAX_LATE, can_be_shown, parameters, time_left};

    fn approval(expires_at: i64, question: Option<Value>) -> Approval {
        let (tool_id, input) = ("mcp:git:push".to_owned(), json!({}));
        Approval { tool_id, input, expires_at, question, ..Approval::default() }
    }

    #[test]
    fn a_form_stays_open_until_its_approval_expires_and_never_for_long() {
        for (expires_at, left) in [
            (61_000, Duration::from_secs(60)),
            (1_000, Duration::ZERO),
            (0, Duration::ZERO),
            (i64::MIN, Duration::ZERO),
            (i64::MAX, MAX_LATE),
        ] {
            let earlier = approval(i64::MIN, None);
            assert_eq!(time_left(&[earlier, approval(expires_at, None)], 1_000), left, "{expires_at}");
        }
    }

    #[test]
    fn a_user_who_may_not_approve_is_shown_questions_of_tools_only() {
        let question = json!({"message": "Which one?", "requestedSchema": {"type": "object", "properties": {}}});
        for (asked, rights, expected) in [
            (None, FormRights::Approve, true),
            (None, FormRights::AnswerQuestions, false),
            (Some(question), FormRights::AnswerQuestions, true),
        ] {
            assert_eq!(rights.include(&approval(1, asked)), expected);
        }
    }

    #[test]
    fn a_form_that_is_too_large_is_not_shown() {
        let asks = |bytes: usize| {
            let city = json!({"type": "string", "title": "x".repeat(bytes)});
            let form = json!({"type": "object", "properties": {"city": city}});
            approval(1, Some(json!({"key": "k", "message": "Where?", "form": form})))
        };
        assert!(can_be_shown(&asks(10), FormRights::Approve));
        assert!(!can_be_shown(&asks(MAX_FORM_BYTES), FormRights::Approve));
    }

    #[test]
    fn the_default_decision_is_part_of_the_request() {
        let form = Form::shown(vec![approval(1, None), approval(2, None)]).unwrap();
        let sent = serde_json::to_value(parameters(&form).unwrap()).unwrap();
        let decision = &sent["requestedSchema"]["properties"]["decision"];
        assert_eq!((&decision["type"], &decision["default"]), (&json!("string"), &json!("approve once")), "{sent}");
        assert_eq!(decision["enum"].as_array().map(Vec::len), Some(4), "{sent}");
    }
}
