//! `/api/v1/approvals`: calls that wait for a person's decision.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use contract::ids::ApprovalId;
use contract::scope::Scope;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{Approval, ApprovalScope, ApprovalState, Decision, DecisionError, PageKey};

use super::Api;
use super::access::{Viewer, owner};
use super::error::ApiError;
use super::limits::{MAX_CHANGED_ROWS, MAX_NOTE_CHARS};
use super::request::{Fields, Ids, Query, page};
use super::schema::Presence::{Optional, Required};
use super::schema::{
    any, integer, list as list_of, nullable_integer, nullable_text, object, one_of, page as page_of, short_text, text,
};

pub(super) fn approval_schema() -> Value {
    object(&[
        ("approvalId", Required, text()),
        ("runId", Required, text()),
        ("call", Required, integer()),
        ("agentId", Required, text()),
        ("sessionId", Required, text()),
        ("principal", Required, nullable_text()),
        ("toolId", Required, text()),
        ("input", Required, any()),
        ("reason", Required, text()),
        ("state", Required, one_of(&ApprovalState::ALL.map(ApprovalState::as_str))),
        ("requestedAt", Required, integer()),
        ("expiresAt", Required, integer()),
        ("decidedAt", Required, nullable_integer()),
        ("decidedBy", Required, nullable_text()),
        ("note", Required, nullable_text()),
        ("editedInput", Required, any()),
        ("question", Optional, any()),
    ])
}

pub(super) fn page_schema() -> Value {
    page_of(approval_schema())
}

pub(super) fn decision_schema() -> Value {
    object(&[
        ("decision", Required, one_of(&["approve", "deny"])),
        ("scope", Optional, one_of(&["once", "session", "always"])),
        ("note", Optional, short_text(MAX_NOTE_CHARS)),
        ("editedInput", Optional, any()),
    ])
}

pub(super) fn decided_schema() -> Value {
    object(&[("approval", Required, approval_schema()), ("covered", Required, list_of(text()))])
}

fn shown(approval: &Approval, principal: Option<&str>) -> Value {
    let mut shown = json!(approval);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("principal".to_owned(), json!(principal));
    }
    shown
}

pub(super) async fn list(State(api): State<Api>, viewer: Viewer, query: Query) -> Result<Json<Value>, ApiError> {
    let (after, limit) = (query.after()?, query.number("limit"));
    let rows = api.store().pending_approval_rows(MAX_CHANGED_ROWS).await?;
    let owners: HashMap<String, Option<String>> = rows.into_iter().map(|row| (row.id, row.owner)).collect();
    let owner = |approval: &Approval| owners.get(approval.approval_id.as_str()).and_then(Option::as_deref);
    let now = now_ms();
    let mut approvals = api.store().pending_approvals().await?;
    let key = |approval: &Approval| (approval.requested_at, approval.approval_id.to_string());
    approvals.retain(|approval| approval.is_open(now) && viewer.sees(owner(approval)));
    approvals.retain(|approval| after.as_ref().is_none_or(|after| key(approval) > (after.at, after.id.clone())));
    approvals.sort_by_key(key);
    let place = |approval: &Approval| PageKey { at: approval.requested_at, id: approval.approval_id.to_string() };
    Ok(Json(page(approvals, limit, place, |approval| shown(approval, owner(approval)))))
}

/// Returns an approval and the principal of its run, if the caller may see it.
async fn visible(api: &Api, viewer: &Viewer, id: &str) -> Result<(Approval, Option<String>), ApiError> {
    let approval = api.store().approval(&ApprovalId::new(id)).await?.ok_or_else(ApiError::not_found)?;
    let run = api.store().run(&approval.run_id).await?;
    let scope =
        run.map_or_else(|| Scope { session_id: approval.session_id.clone(), ..Scope::default() }, |run| run.scope);
    let owner = owner(api.store(), &scope).await?;
    if viewer.sees(owner.as_deref()) { Ok((approval, owner)) } else { Err(ApiError::not_found()) }
}

pub(super) async fn get(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let (approval, owner) = visible(&api, &viewer, ids.first()).await?;
    Ok(Json(shown(&approval, owner.as_deref())))
}

pub(super) async fn decide(
    State(api): State<Api>,
    viewer: Viewer,
    ids: Ids,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let (approval, owner) = visible(&api, &viewer, ids.first()).await?;
    let decision = decision(&fields)?;
    let decided = api.gateway.code_mode().decide(&approval.approval_id, &decision, viewer.principal()).await;
    let decided = decided.map_err(|error| {
        let refused = |kind, error: &DecisionError| ApiError::new(StatusCode::BAD_REQUEST, kind, error.to_string());
        match error {
            DecisionError::NotPending => refused("not_pending", &error),
            DecisionError::Unfit(_) => refused("invalid_request", &error),
            DecisionError::TooManyRules => refused("too_many_rules", &error),
            DecisionError::Store(error) => error.into(),
        }
    })?;
    tracing::info!(
        approval = approval.approval_id.as_str(),
        by = viewer.principal(),
        token = viewer.caller.token,
        state = decided.approval.state.as_str(),
        "an approval was decided over the API"
    );
    let covered: Vec<&str> = decided.covered.iter().map(|one| one.approval_id.as_str()).collect();
    Ok(Json(json!({"approval": shown(&decided.approval, owner.as_deref()), "covered": covered})))
}

/// Reads a decision from a request.
fn decision(fields: &Fields) -> Result<Decision, ApiError> {
    let edited_input = fields.get("editedInput").cloned();
    // Not every store takes the character 0 in a text.
    if fields.text("note").is_some_and(|note| note.contains('\0')) {
        return Err(ApiError::invalid("`note` must not contain the character U+0000"));
    }
    if fields.text("decision") == Some("approve") {
        if fields.text("note").is_some() {
            return Err(ApiError::invalid("`note` belongs to a denial"));
        }
        let reach = match fields.text("scope") {
            Some("session") => ApprovalScope::Session,
            Some("always") => ApprovalScope::Agent,
            _ => ApprovalScope::Once,
        };
        return Ok(Decision::Approve { edited_input, reach });
    }
    if fields.text("scope").is_some() || edited_input.is_some() {
        return Err(ApiError::invalid("`scope` and `editedInput` belong to an approval"));
    }
    Ok(Decision::Deny { note: fields.text("note").unwrap_or_default().to_owned() })
}
