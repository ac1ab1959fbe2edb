//! People asked through the client: within a result since 2026-07-28, by a request of ours before that.

use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, InputRequests,
    InputRequiredResult, ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle};
use serde_json::Value;
use store::Approval;

use super::state::{Carried, Seal};
use crate::server::elicit;
use crate::server::frontend::{Call, Frontend};
use crate::server::principal::Principal;

/// Questions that one result puts to a client at once; the others follow when these are answered.
const MAX_QUESTIONS: usize = 8;

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
/// An answer that comes later still counts.
pub(super) async fn ask(
    frontend: &Frontend,
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
            if decided {
                drop(handle.cancel(Some("somebody has decided elsewhere".to_owned())).await);
            } else {
                keep_listening(frontend.clone(), handle, call.principal.clone(), approval.clone());
            }
            decided
        }
    }
}

/// The form may stay on a screen for longer than a call may stay open.
fn keep_listening(frontend: Frontend, handle: RequestHandle<RoleServer>, principal: Principal, approval: Approval) {
    tokio::spawn(async move {
        tokio::select! {
            answer = handle.await_response() => {
                let answer = answer.ok().map(said);
                if let Some(decision) = answer.as_ref().and_then(|answer| elicit::decision(&approval, answer)) {
                    frontend.decide(&principal, &approval.approval_id, &decision).await;
                }
            }
            () = frontend.left() => {}
        }
    });
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
