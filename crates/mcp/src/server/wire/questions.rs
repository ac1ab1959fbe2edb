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
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::request_state::{RequestState, Seal};
use crate::server::calls::Call;
use crate::server::elicitation;
use crate::server::principal::Principal;
use crate::server::service::McpService;

/// The maximum number of questions in one result; the others follow when these are answered.
const MAX_QUESTIONS: usize = 8;

/// The maximum size of a form's schema. A person answers a larger form with `cellmate approvals`.
const MAX_FORM_BYTES: usize = 64 << 10;

/// How long a form stays open at most after its call has ended, even if its approval expires later; how often the store
/// is polled for its approval; and how long sending the withdrawal to the client may take.
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

/// Returns a result that asks the user, or `None` if the protocol cannot express the question.
pub(super) fn input_required(asked: &[&Approval], seal: &Seal, binding: &[u8]) -> Option<InputRequiredResult> {
    let run = asked.first()?.run_id.clone();
    let asked = asked.get(..MAX_QUESTIONS).unwrap_or(asked);
    let mut requests = InputRequests::new();
    for approval in asked {
        let request = InputRequest::Elicitation(ElicitRequest::new(form(approval)?));
        requests.insert(approval.approval_id.to_string(), request);
    }
    let asked = asked.iter().map(|approval| approval.approval_id.clone()).collect();
    let state = seal.close(&RequestState { run, asked }, binding)?;
    Some(InputRequiredResult::new(Some(requests), Some(state)))
}

/// Shows a form to the client's user. Returns true if the approval was decided, here or elsewhere, before the call must
/// end. A later answer still counts while the approval is open.
pub(super) async fn ask(
    service: &McpService,
    connection: &Connection,
    context: &RequestContext<RoleServer>,
    call: &Call,
    approval: &Approval,
) -> bool {
    let Some(form) = form(approval) else { return false };
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let sent = context.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
    let Ok(mut handle) = sent else { return false };
    let elsewhere = service.wait_for_decision(std::slice::from_ref(approval), call.until);
    tokio::select! {
        answer = &mut handle.rx => {
            let answer = answer.ok().and_then(Result::ok).map(to_json);
            match answer.as_ref().and_then(|answer| elicitation::decision(approval, answer)) {
                Some(decision) => service.decide(&call.principal, &approval.approval_id, &decision).await,
                None => false,
            }
        }
        decided = elsewhere => {
            match connection.late_form() {
                Some(permit) if !decided => {
                    let form = LateForm { handle, principal: call.principal.clone(), approval: approval.clone() };
                    tokio::spawn(form.wait_for_answer(service.clone(), connection.ended(), permit));
                }
                _ => withdraw(handle, if decided { DECIDED } else { TOO_MANY }).await,
            }
            decided
        }
    }
}

/// A form that is still open in the client after its call has ended.
struct LateForm {
    handle: RequestHandle<RoleServer>,
    principal: Principal,
    approval: Approval,
}

impl LateForm {
    /// Waits for the answer until the approval is decided elsewhere or expires, the session ends, or the process shuts
    /// down.
    async fn wait_for_answer(mut self, service: McpService, ended: CancellationToken, permit: OwnedSemaphorePermit) {
        let approval = &self.approval;
        let approval_id = &approval.approval_id;
        let deadline = tokio::time::sleep(time_left(approval, now_ms()));
        tokio::select! {
            answer = &mut self.handle.rx => {
                let answer = answer.ok().and_then(Result::ok).map(to_json);
                if let Some(decision) = answer.as_ref().and_then(|answer| elicitation::decision(approval, answer)) {
                    service.decide(&self.principal, approval_id, &decision).await;
                }
            }
            () = wait_until_closed(&service, approval_id) => withdraw(self.handle, DECIDED).await,
            () = deadline => withdraw(self.handle, EXPIRED).await,
            () = ended.cancelled() => {}
            () = service.shutdown_started() => {}
        }
        drop(permit);
    }
}

/// Returns how long the form of an approval stays open.
fn time_left(approval: &Approval, now: Millis) -> Duration {
    let left = u64::try_from(approval.expires_at.saturating_sub(now)).unwrap_or(0);
    Duration::from_millis(left).min(MAX_LATE)
}

/// Waits until an approval is no longer open.
async fn wait_until_closed(service: &McpService, approval_id: &ApprovalId) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        match service.code_mode().store().approval(approval_id).await {
            Ok(Some(approval)) if approval.is_open(now_ms()) => {}
            Ok(_) => return,
            // The store may recover; the deadline applies in any case.
            Err(error) => tracing::debug!(approval_id = approval_id.as_str(), %error, "an approval cannot be read"),
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

/// Returns the form of an approval, or `None` if a tool's form does not fit the protocol's schema or is too large. The
/// size is limited because a session keeps the form for a client that resumes its stream.
pub(super) fn form(approval: &Approval) -> Option<ElicitRequestParams> {
    let schema = elicitation::schema(approval);
    if schema.to_string().len() > MAX_FORM_BYTES {
        return None;
    }
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let message = elicitation::message(approval);
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use store::Approval;

    use super::{MAX_FORM_BYTES, MAX_LATE, form, time_left};

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
            assert_eq!(time_left(&approval(expires_at, None), 1_000), left, "{expires_at}");
        }
    }

    #[test]
    fn a_form_that_is_too_large_is_not_shown() {
        let asks = |bytes: usize| {
            let city = json!({"type": "string", "title": "x".repeat(bytes)});
            let form = json!({"type": "object", "properties": {"city": city}});
            approval(1, Some(json!({"key": "k", "message": "Where?", "form": form})))
        };
        assert!(form(&asks(10)).is_some());
        assert!(form(&asks(MAX_FORM_BYTES)).is_none());
    }
}
