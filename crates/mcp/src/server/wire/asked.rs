//! People asked through the client: within a result since 2026-07-28, by a request of ours before that.

use std::sync::Arc;
use std::time::Duration;

use executor::clock::now_ms;
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, InputRequests,
    InputRequiredResult, ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle};
use serde_json::Value;
use store::{Approval, Millis};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::handler::Session;
use super::state::{Carried, Seal};
use crate::server::elicit;
use crate::server::frontend::{Call, McpService};
use crate::server::principal::Principal;

/// Questions that one result puts to a client at once; the others follow when these are answered.
const MAX_QUESTIONS: usize = 8;

/// The schema of one form. A person answers a larger one with `cellmate approvals`.
const MAX_FORM_BYTES: usize = 64 << 10;

/// Forms of one session that stay open after their calls have ended. A further one is taken back with its call.
pub(super) const MAX_LATE_FORMS: usize = 32;

/// How long such a form stays open at most, whatever its approval says; how often its approval is looked up; and how
/// long the client has to hear that it was taken back.
const MAX_LATE: Duration = Duration::from_secs(15 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(2);
const TAKE_BACK: Duration = Duration::from_secs(5);

/// Why a form is taken back.
const DECIDED: &str = "somebody has decided elsewhere";
const EXPIRED: &str = "the time to decide is over";
const TOO_MANY: &str = "too many forms are open";

/// How people can be asked while a call is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// The result asks, and the call is made again with the answer.
    Result,
    /// We ask, and the call stays open.
    Request,
    /// Not through this client.
    Elsewhere,
}

impl Channel {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let forms = context.client_capabilities().and_then(|has| has.elicitation).is_some_and(|elicitation| {
            // Before there were other kinds, no kind meant forms.
            elicitation.form.is_some() || elicitation.url.is_none()
        });
        match (forms, is_modern(context)) {
            (false, _) => Self::Elsewhere,
            (true, true) => Self::Result,
            (true, false) => Self::Request,
        }
    }
}

/// Since 2026-07-28 there is no session, and a server asks nothing of its own accord.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// A result that asks. Nothing where it cannot be put into the protocol's words.
pub(super) fn question(asked: &[&Approval], seal: &Seal, binding: &[u8]) -> Option<InputRequiredResult> {
    let run = asked.first()?.run_id.clone();
    let asked = asked.get(..MAX_QUESTIONS).unwrap_or(asked);
    let mut requests = InputRequests::new();
    for approval in asked {
        let request = InputRequest::Elicitation(ElicitRequest::new(form(approval)?));
        requests.insert(approval.approval_id.clone(), request);
    }
    let asked = asked.iter().map(|approval| approval.approval_id.clone()).collect();
    let state = seal.close(&Carried { run, asked }, binding)?;
    Some(InputRequiredResult::new(Some(requests), Some(state)))
}

/// Puts a form before the client's user. Whether something was decided, here or elsewhere, before the call must end.
/// An answer that comes later still counts, for as long as the approval is open.
pub(super) async fn ask(
    frontend: &McpService,
    session: &Session,
    context: &RequestContext<RoleServer>,
    call: &Call,
    approval: &Approval,
) -> bool {
    let Some(form) = form(approval) else { return false };
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let sent = context.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
    let Ok(mut handle) = sent else { return false };
    let elsewhere = frontend.decided(std::slice::from_ref(approval), call.until);
    tokio::select! {
        answer = &mut handle.rx => {
            let answer = answer.ok().and_then(Result::ok).map(said);
            match answer.as_ref().and_then(|answer| elicit::decision(approval, answer)) {
                Some(decision) => frontend.decide(&call.principal, &approval.approval_id, &decision).await,
                None => false,
            }
        }
        decided = elsewhere => {
            match Arc::clone(&session.late_forms).try_acquire_owned() {
                Ok(place) if !decided => {
                    let form = LateForm { handle, principal: call.principal.clone(), approval: approval.clone() };
                    tokio::spawn(form.answered(frontend.clone(), session.ended(), place));
                }
                _ => take_back(handle, if decided { DECIDED } else { TOO_MANY }).await,
            }
            decided
        }
    }
}

/// A form that is still on a screen after its call has ended.
struct LateForm {
    handle: RequestHandle<RoleServer>,
    principal: Principal,
    approval: Approval,
}

impl LateForm {
    /// Waits for the answer until the approval is decided elsewhere or expires, the session ends, or the process does.
    async fn answered(mut self, frontend: McpService, ended: CancellationToken, place: OwnedSemaphorePermit) {
        let approval_id = &self.approval.approval_id;
        let deadline = tokio::time::sleep(time_left(&self.approval, now_ms()));
        tokio::select! {
            answer = &mut self.handle.rx => {
                let answer = answer.ok().and_then(Result::ok).map(said);
                if let Some(decision) = answer.as_ref().and_then(|answer| elicit::decision(&self.approval, answer)) {
                    frontend.decide(&self.principal, approval_id, &decision).await;
                }
            }
            () = closed(&frontend, approval_id) => take_back(self.handle, DECIDED).await,
            () = deadline => take_back(self.handle, EXPIRED).await,
            () = ended.cancelled() => {}
            () = frontend.left() => {}
        }
        drop(place);
    }
}

/// How long a form stays open for an approval.
fn time_left(approval: &Approval, now: Millis) -> Duration {
    let left = u64::try_from(approval.expires_at.saturating_sub(now)).unwrap_or(0);
    Duration::from_millis(left).min(MAX_LATE)
}

/// Returns when nothing can be decided about an approval any more.
async fn closed(frontend: &McpService, approval_id: &str) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match frontend.code_mode().store().approval(approval_id).await {
            Ok(Some(approval)) if approval.is_open(now_ms()) => {}
            Ok(_) => return,
            // The store may come back; the deadline holds in any case.
            Err(_) => {}
        }
    }
}

/// Tells the client to take a form off the screen. A client that does not read is not waited for.
async fn take_back(handle: RequestHandle<RoleServer>, why: &str) {
    drop(tokio::time::timeout(TAKE_BACK, handle.cancel(Some(why.to_owned()))).await);
}

fn said(answer: ClientResult) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

/// None for a form of a tool's that the protocol's own words do not fit, or that is too large to be shown: a session
/// keeps it for a client that resumes its stream.
pub(super) fn form(approval: &Approval) -> Option<ElicitRequestParams> {
    let schema = elicit::schema(approval);
    if schema.to_string().len() > MAX_FORM_BYTES {
        return None;
    }
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let message = elicit::message(approval);
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use store::{Approval, ApprovalState};

    use super::{MAX_FORM_BYTES, MAX_LATE, form, time_left};

    fn approval(expires_at: i64, question: Option<Value>) -> Approval {
        Approval {
            approval_id: "apr_1".to_owned(),
            run_id: "cm_1".to_owned(),
            call: 1,
            agent_id: String::new(),
            session_id: String::new(),
            tool_id: "mcp:git:push".to_owned(),
            tool_hash: String::new(),
            source_identity: None,
            input: json!({}),
            input_hash: String::new(),
            reason: String::new(),
            state: ApprovalState::Pending,
            requested_at: 0,
            expires_at,
            decided_by: None,
            note: None,
            edited_input: None,
            question,
        }
    }

    #[test]
    fn a_form_stays_open_until_its_approval_expires_or_a_fixed_limit() {
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
