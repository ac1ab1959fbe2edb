//! `/api/v1/runs`: runs and their stored outputs.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use contract::ids::{OutputHandle, RunId};
use serde_json::{Value, json};
use store::{
    CallRow, ListedRun, OutputKind, OutputPosition, OutputRow, PageKey, RunPageFilter, RunRow, RunState, Store,
};

use super::Api;
use super::access::{Viewer, owner};
use super::error::ApiError;
use super::limits::MAX_SHOWN_CALLS;
use super::request::{Ids, Query, page};
use super::schema::Presence::Required;
use super::schema::{Presence, page as page_of};
use super::schema::{any, integer, list as list_of, nullable_integer, nullable_text, object, one_of, text};

fn state_schema() -> Value {
    one_of(&RunState::ALL.map(RunState::as_str))
}

fn summary_fields() -> Vec<(&'static str, Presence, Value)> {
    vec![
        ("runId", Required, text()),
        ("agentId", Required, text()),
        ("sessionId", Required, text()),
        ("turnId", Required, nullable_text()),
        ("principal", Required, nullable_text()),
        ("state", Required, state_schema()),
        ("createdAt", Required, integer()),
        ("expiresAt", Required, integer()),
    ]
}

pub(super) fn page_schema() -> Value {
    let mut fields = summary_fields();
    fields.push(("updatedAt", Required, integer()));
    fields.push(("title", Required, nullable_text()));
    page_of(object(&fields))
}

pub(super) fn run_schema() -> Value {
    let call = object(&[
        ("call", Required, integer()),
        ("method", Required, text()),
        ("toolId", Required, text()),
        ("state", Required, text()),
        ("since", Required, integer()),
    ]);
    let mut fields = summary_fields();
    fields.extend([
        ("toolCallId", Required, text()),
        ("source", Required, nullable_text()),
        ("language", Required, nullable_text()),
        ("result", Required, any()),
        ("calls", Required, list_of(call)),
        ("callsOmitted", Required, integer()),
        ("approvals", Required, list_of(text())),
    ]);
    object(&fields)
}

pub(super) fn outputs_schema() -> Value {
    page_of(object(&[
        ("handle", Required, text()),
        ("kind", Required, one_of(&OutputKind::ALL.map(OutputKind::as_str))),
        ("mimeType", Required, nullable_text()),
        ("bytes", Required, integer()),
        ("lines", Required, integer()),
        ("call", Required, nullable_integer()),
        ("toolId", Required, nullable_text()),
        ("createdAt", Required, integer()),
    ]))
}

pub(super) async fn list(State(api): State<Api>, viewer: Viewer, query: Query) -> Result<Json<Value>, ApiError> {
    let state = query.text("state");
    let filter = RunPageFilter {
        owner: viewer.only().map(str::to_owned),
        session: query.text("session").map(str::to_owned),
        agent: query.text("agent").map(str::to_owned),
        state: RunState::ALL.into_iter().find(|known| Some(known.as_str()) == state),
    };
    let (after, limit) = (query.after()?, query.number("limit"));
    let rows = api.store().run_page(&filter, after.as_ref(), limit.saturating_add(1)).await?;
    let key = |run: &ListedRun| PageKey { at: run.created_at, id: run.run_id.to_string() };
    Ok(Json(page(rows, limit, key, listed)))
}

fn listed(run: &ListedRun) -> Value {
    json!({
        "runId": run.run_id, "agentId": run.agent_id, "sessionId": run.session_id,
        "turnId": turn_id(&run.agent_run_id), "principal": run.owner, "state": run.state.as_str(),
        "createdAt": run.created_at, "updatedAt": run.updated_at, "expiresAt": run.expires_at,
        "title": codemode::first_source_line(&run.definition_head),
    })
}

/// Returns the turn that an agent run is, if it is one.
fn turn_id(agent_run_id: &str) -> Option<&str> {
    Some(agent_run_id).filter(|id| id.starts_with("turn_"))
}

/// Returns a run and its owner, if the caller may see it.
async fn visible(store: &Store, viewer: &Viewer, id: &str) -> Result<(RunRow, Option<String>), ApiError> {
    let row = store.run(&RunId::new(id)).await?.ok_or_else(ApiError::not_found)?;
    let owner = owner(store, &row.scope).await?;
    if viewer.sees(owner.as_deref()) { Ok((row, owner)) } else { Err(ApiError::not_found()) }
}

pub(super) async fn get(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let (run, owner) = visible(api.store(), &viewer, ids.first()).await?;
    let calls = api.store().calls(&run.run_id).await?;
    let approvals = api.store().approvals_of_run(&run.run_id).await?;
    let definition = contract::json::read(&run.definition).unwrap_or_default();
    let defined = |name: &str| definition.get(name).and_then(Value::as_str);
    let result = run.result.as_deref().and_then(|result| contract::json::read(result).ok());
    let shown: Vec<Value> = calls.iter().take(MAX_SHOWN_CALLS).map(call).collect();
    let approvals: Vec<&str> = approvals.iter().map(|approval| approval.approval_id.as_str()).collect();
    Ok(Json(json!({
        "runId": run.run_id, "agentId": run.scope.agent_id, "sessionId": run.scope.session_id,
        "turnId": turn_id(&run.scope.agent_run_id), "principal": owner, "state": run.state.as_str(),
        "createdAt": run.created_at, "expiresAt": run.expires_at, "toolCallId": run.tool_call_id,
        "source": defined("source"), "language": defined("language"), "result": result,
        "calls": shown, "callsOmitted": calls.len().saturating_sub(MAX_SHOWN_CALLS), "approvals": approvals,
    })))
}

fn call(row: &CallRow) -> Value {
    json!({
        "call": row.call, "method": row.method, "toolId": row.tool_id.as_deref().unwrap_or(&row.target),
        "state": row.state.as_str(), "since": row.since,
    })
}

pub(super) async fn abort(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let (run, _) = visible(api.store(), &viewer, ids.first()).await?;
    let aborted = !run.state.is_over() && api.gateway.code_mode().abort(&run.run_id).await;
    Ok(Json(json!({"aborted": aborted})))
}

pub(super) async fn outputs(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Json<Value>, ApiError> {
    let (run, _) = visible(api.store(), &viewer, ids.first()).await?;
    let rows = api.store().outputs_of_run(&run.run_id).await?;
    let items: Vec<Value> = rows.iter().map(output_row).collect();
    Ok(Json(json!({"items": items, "nextCursor": null})))
}

fn output_row(row: &OutputRow) -> Value {
    json!({
        "handle": row.handle, "kind": row.kind.as_str(), "mimeType": row.mime_type, "bytes": row.bytes,
        "lines": row.lines, "call": row.source.as_ref().map(|(call, _)| call),
        "toolId": row.source.as_ref().map(|(_, tool)| tool), "createdAt": row.created_at,
    })
}

/// Sends an output piece by piece. It comes from tools and cells, so a browser must not interpret it.
pub(super) async fn output(State(api): State<Api>, viewer: Viewer, ids: Ids) -> Result<Response, ApiError> {
    let (run, _) = visible(api.store(), &viewer, ids.first()).await?;
    let handle = OutputHandle::new(ids.second());
    let of_run = handle.parts().is_some_and(|(owner, _)| owner == run.run_id);
    let row = if of_run { api.store().output(&handle).await? } else { None };
    let row = row.ok_or_else(ApiError::not_found)?;
    let (store, bytes) = (api.store().clone(), row.bytes);
    let pieces = futures_util::stream::unfold(0_u64, move |at| {
        let (store, handle) = (store.clone(), row.handle.clone());
        async move {
            if at >= bytes {
                return None;
            }
            let piece = match store.output_piece(&handle, OutputPosition::Byte(at)).await {
                Ok(Some(piece)) if !piece.data.is_empty() => piece,
                Ok(_) => return Some((Err(std::io::Error::other("the output was deleted meanwhile")), u64::MAX)),
                Err(error) => return Some((Err(std::io::Error::other(error)), u64::MAX)),
            };
            let skipped = usize::try_from(at.saturating_sub(piece.start_byte)).unwrap_or(usize::MAX);
            let data: Vec<u8> = piece.data.into_iter().skip(skipped).collect();
            let next = at.saturating_add(data.len() as u64).max(at + 1);
            Some((Ok(Bytes::from(data)), next))
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    let media = row_type(row.kind, row.mime_type.as_deref());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(&media).unwrap_or(OCTETS));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

fn row_type(kind: OutputKind, declared: Option<&str>) -> String {
    let declared = |prefix: &str| declared.filter(|declared| declared.starts_with(prefix)).map(str::to_owned);
    let octets = || "application/octet-stream".to_owned();
    match kind {
        OutputKind::Text => "text/plain; charset=utf-8".to_owned(),
        OutputKind::Json => "application/json".to_owned(),
        OutputKind::Image => declared("image/").unwrap_or_else(octets),
        OutputKind::Audio => declared("audio/").unwrap_or_else(octets),
        OutputKind::Binary => octets(),
    }
}
