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
use store::Approval;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::handler::Session;
use super::state::{Carried, Seal};
use crate::server::elicit;
use crate::server::frontend::{Call, Frontend};
use crate::server::principal::Principal;

/// Questions that one result puts to a client at once; the others follow when these are answered.
const MAX_QUESTIONS: usize = 8;

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
    frontend: &Frontend,
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
    async fn answered(mut self, frontend: Frontend, ended: CancellationToken, place: OwnedSemaphorePermit) {
        let approval_id = &self.approval.approval_id;
        let left = u64::try_from(self.approval.expires_at.saturating_sub(now_ms())).unwrap_or(0);
        let deadline = tokio::time::sleep(Duration::from_millis(left).min(MAX_LATE));
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

/// Returns when nothing can be decided about an approval any more.
async fn closed(frontend: &Frontend, approval_id: &str) {
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

/// None for a form of a tool's that the protocol's own words do not fit.
pub(super) fn form(approval: &Approval) -> Option<ElicitRequestParams> {
    let requested_schema: ElicitationSchema = serde_json::from_value(elicit::schema(approval)).ok()?;
    let message = elicit::message(approval);
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}
