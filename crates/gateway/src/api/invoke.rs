//! `POST /tools/invoke`: calls one tool without a model, in the form of OpenClaw.
//!
//! Unlike OpenClaw, it asks a person where policy asks. The call then stays parked: the same request, repeated after the
//! decision, continues it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::catalog::Catalog;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use contract::cell::PendingState;
use contract::ids::RunId;
use contract::scope::Scope;
use contract::tool::ToolSpec;
use executor::clock::now_ms;
use executor::{
    CallEnd, DirectCall, DirectRequest, Executor, Outcome, ProgressSink, StateSink, UNKNOWN_OUTCOME, random_name,
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use store::{CommitError, INVOKE_RUN, Store};
use tokio_util::sync::CancellationToken;

use super::Api;
use super::access::Viewer;
use super::agents;
use super::error::ApiError;
use super::limits::{MAX_ID_BYTES, MAX_INVOKES_PER_PRINCIPAL};
use super::request::{Fields, is_id};
use super::schema::Presence::{Optional, Required};
use super::schema::{any, boolean, object, open_object, short_text};
use crate::internal_error::{commit_message, internal_message};

pub(super) const PATH: &str = "/tools/invoke";

/// The names of tools that are never called here, whatever policy says: they run commands, change files, or control the
/// gateway. These are OpenClaw's.
pub(super) const DENIED: [&str; 12] = [
    "exec",
    "spawn",
    "shell",
    "fs_write",
    "fs_delete",
    "fs_move",
    "apply_patch",
    "sessions_spawn",
    "sessions_send",
    "cron",
    "gateway",
    "nodes",
];

/// The session of requests that name none.
const DEFAULT_SESSION_KEY: &str = "main";

/// The most tools that an error names.
const MAX_NAMED: usize = 5;

pub(super) fn request_schema() -> Value {
    let arguments = json!({"type": "object"});
    // Clients of the incumbent may send more.
    open_object(&[
        ("tool", Required, short_text(MAX_ID_BYTES)),
        ("action", Optional, short_text(MAX_ID_BYTES)),
        ("args", Optional, arguments),
        ("sessionKey", Optional, short_text(MAX_ID_BYTES)),
        ("dryRun", Optional, boolean()),
    ])
}

pub(super) fn response_schema() -> Value {
    object(&[("ok", Required, json!({"const": true})), ("result", Required, any())])
}

/// The calls of each principal that are in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Invocations(Arc<Mutex<HashMap<String, usize>>>);

/// A place among the calls that a principal may have in progress. Dropping it frees the place.
#[derive(Debug)]
struct InvokeSlot {
    invocations: Invocations,
    principal: String,
}

impl Invocations {
    fn begin(&self, principal: &str) -> Result<InvokeSlot, ApiError> {
        let mut calls = self.0.lock();
        let own = calls.entry(principal.to_owned()).or_default();
        if *own >= MAX_INVOKES_PER_PRINCIPAL {
            let message =
                format!("{MAX_INVOKES_PER_PRINCIPAL} calls of this principal are in progress; try again later");
            return Err(ApiError::busy(message));
        }
        *own += 1;
        Ok(InvokeSlot { invocations: self.clone(), principal: principal.to_owned() })
    }
}

impl Drop for InvokeSlot {
    fn drop(&mut self) {
        let mut calls = self.invocations.0.lock();
        if let Some(own) = calls.get_mut(&self.principal) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                calls.remove(&self.principal);
            }
        }
    }
}

/// An error with further fields.
struct InvokeError {
    error: ApiError,
    approval_id: Option<String>,
}

impl From<ApiError> for InvokeError {
    fn from(error: ApiError) -> Self {
        Self { error, approval_id: None }
    }
}

impl From<store::StoreError> for InvokeError {
    fn from(error: store::StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for InvokeError {
    fn into_response(self) -> Response {
        let mut error = self.error.to_json();
        if let (Some(fields), Some(approval_id)) = (error.as_object_mut(), self.approval_id) {
            fields.insert("approvalId".to_owned(), Value::from(approval_id));
        }
        self.error.response(&json!({"ok": false, "error": error}))
    }
}

pub(super) async fn invoke(State(api): State<Api>, viewer: Viewer, headers: HeaderMap, fields: Fields) -> Response {
    match call(&api, &viewer, &headers, &fields).await {
        Ok(result) => axum::Json(json!({"ok": true, "result": result})).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn call(api: &Api, viewer: &Viewer, headers: &HeaderMap, fields: &Fields) -> Result<Value, InvokeError> {
    let _slot = api.invocations.begin(viewer.principal())?;
    let named = header(headers, "x-openclaw-agent-id")?;
    let agent = agents::resolve(&api.gateway.policy().config, named)?;
    let scope = scope(viewer, &agent, headers, fields.text("sessionKey"))?;
    let prepared = agents::prepare(api, scope)?;
    let tool = find(prepared.executor.catalog(), fields.text("tool").unwrap_or_default())?;
    let arguments = arguments(tool, fields)?;
    ::catalog::arguments::check(&tool.parameters, &arguments)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "invalid_arguments", error.to_string()))?;
    let id = tool.id.as_str().to_owned();
    if fields.is_true("dryRun") {
        return Ok(json!({"dryRun": true, "toolId": id}));
    }
    let hold = Duration::from_secs(api.gateway.settings().gateway.hold_seconds);
    let made = make(api.store(), prepared.executor, id, arguments, hold).await?;
    answer(api.store(), made).await
}

/// Returns the value of a header, if it is given and can be used.
fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().ok().map(str::trim).filter(|value| is_id(value));
    value.map(Some).ok_or_else(|| ApiError::invalid(format!("the header `{name}` is empty or too long")))
}

fn scope(viewer: &Viewer, agent: &str, headers: &HeaderMap, key: Option<&str>) -> Result<Scope, ApiError> {
    let key = key.unwrap_or(DEFAULT_SESSION_KEY);
    Ok(Scope {
        agent_id: agent.to_owned(),
        session_id: crate::http::session_id(viewer.principal(), agent, key),
        session_key: Some(key.to_owned()),
        agent_run_id: format!("{INVOKE_RUN}{}", viewer.principal()),
        sender: header(headers, "x-openclaw-account-id")?.map(str::to_owned),
        channel: Some(header(headers, "x-openclaw-message-channel")?.unwrap_or("api").to_owned()),
        ..Scope::default()
    })
}

/// Returns the tool that a request names: by its id, or by its name if only one has it.
fn find<'c>(catalog: &'c Catalog, wanted: &str) -> Result<&'c ToolSpec, ApiError> {
    let may_be_called = |tool: &&ToolSpec| !DENIED.contains(&tool.id.name());
    if let Some(tool) = catalog.get(wanted) {
        return Some(tool).filter(may_be_called).ok_or_else(|| no_tool(wanted));
    }
    let found: Vec<&ToolSpec> =
        catalog.tools().iter().filter(|tool| tool.id.name() == wanted).filter(may_be_called).collect();
    match found.as_slice() {
        [only] => Ok(only),
        [] => Err(no_tool(wanted)),
        several => {
            let ids: Vec<&str> = several.iter().take(MAX_NAMED).map(|tool| tool.id.as_str()).collect();
            let message = format!("several tools have this name; use the id of one, such as {}", ids.join(", "));
            Err(ApiError::new(StatusCode::BAD_REQUEST, "ambiguous_tool", message))
        }
    }
}

/// Returns the error for a tool that does not exist or may not be called, which are alike.
fn no_tool(wanted: &str) -> ApiError {
    let wanted = contract::text::plain(wanted, MAX_ID_BYTES);
    let message = format!("no tool `{wanted}` can be called here; `GET /api/v1/catalog` lists the ids of tools");
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// Other interfaces' names of `args`. A tool that has no required arguments would be called without any.
const NOT_ARGS: [&str; 4] = ["arguments", "input", "parameters", "params"];

/// Returns the arguments of a request, with its `action` if the tool has one.
fn arguments(tool: &ToolSpec, fields: &Fields) -> Result<Value, ApiError> {
    let misnamed = NOT_ARGS.into_iter().find(|name| fields.get(name).is_some());
    if let (Some(name), None) = (misnamed, fields.get("args")) {
        return Err(ApiError::invalid(format!("`{name}` is not read; pass the arguments as `args`")));
    }
    let mut arguments = match fields.get("args") {
        Some(Value::Object(given)) => given.clone(),
        _ => Map::new(),
    };
    let has_action = tool.parameters.get("properties").is_some_and(|properties| properties.get("action").is_some());
    if let Some(action) = fields.text("action").filter(|_| has_action) {
        arguments.entry("action").or_insert_with(|| Value::from(action));
    }
    Ok(Value::Object(arguments))
}

/// Makes a call, or continues the same call that waits for a decision. It is cancelled if the client disconnects.
async fn make(
    store: &Store,
    executor: Executor,
    id: String,
    arguments: Value,
    hold: Duration,
) -> Result<DirectCall, ApiError> {
    let no_randomness = |_| ApiError::unavailable("cannot read system randomness; try again");
    let name = call_name(&id, &arguments);
    let parked = executor.parked_direct_calls(store, &name).await?;
    let stop = CancellationToken::new();
    let (guard, stopped) = (stop.clone().drop_guard(), stop.cancelled_owned());
    let step = match parked.into_iter().next() {
        Some(run_id) => {
            let store = store.clone();
            let sinks = (ProgressSink::default(), StateSink::default());
            tokio::spawn(async move { executor.resume_direct_call_until(&store, &run_id, sinks, stopped).await })
        }
        None => {
            let call_id = format!("invoke_{}", random_name().map_err(no_randomness)?);
            let request = DirectRequest {
                name: Some(name),
                ..DirectRequest::new(&call_id, &id, arguments, ProgressSink::default())
            };
            let run = executor.open_direct_call(store, request).map_err(no_randomness)?;
            tokio::spawn(async move { executor.make_direct_call(run, stopped).await })
        }
    };
    let made = tokio::time::timeout(hold, step).await.map_err(|_| {
        let message = format!("the tool did not answer within {} seconds, so the call was cancelled", hold.as_secs());
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "tool_timeout", message)
    })?;
    drop(guard.disarm());
    made.map_err(|error| {
        let (what_failed, next) = ("the call failed in this server", "see its log");
        let message = internal_message("make a tool call", &error, what_failed, next);
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "tool_error", message)
    })
}

/// Returns the name under which a parked call is found again. Equal requests give equal names.
fn call_name(id: &str, arguments: &Value) -> String {
    let mut hash = Sha256::new();
    for part in [id, arguments.to_string().as_str()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

async fn answer(store: &Store, made: DirectCall) -> Result<Value, InvokeError> {
    let tool_error = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "tool_error", message);
    match made.end {
        CallEnd::Settled(Outcome::Returned(returned)) => {
            let mut result = json!({"content": returned.content});
            if let (Some(fields), Some(details)) = (result.as_object_mut(), returned.details) {
                fields.insert("details".to_owned(), details);
            }
            Ok(result)
        }
        CallEnd::Settled(Outcome::Failed(message)) => Err(tool_error(message).into()),
        CallEnd::Settled(Outcome::Dropped(dropped)) => Err(tool_error(dropped.message).into()),
        CallEnd::Settled(Outcome::Unknown) => {
            let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "unknown_outcome", UNKNOWN_OUTCOME);
            Err(error.into())
        }
        CallEnd::Parked(PendingState::Approval) => Err(approval_required(store, &made.run_id).await?),
        CallEnd::Parked(_) => Err(tool_error("the tool waits for something that cannot be given here".into()).into()),
        CallEnd::Stopped(CommitError::Fenced) => {
            Err(ApiError::busy("another request continues the same call; try again").into())
        }
        CallEnd::Stopped(error) => {
            let what_failed = "the call cannot be recorded, so it was not made or its outcome is not known";
            let next = "check whether it took effect before you repeat it";
            Err(ApiError::unavailable(commit_message("record a tool call", &error, what_failed, next)).into())
        }
    }
}

/// Returns the error for a call that a person must decide about.
async fn approval_required(store: &Store, run_id: &RunId) -> Result<InvokeError, store::StoreError> {
    let now = now_ms();
    let asked = store.approvals_of_run(run_id).await?.into_iter().find(|approval| approval.is_open(now));
    let message = "a person must approve this call; send the same request again when it is approved";
    let error = ApiError::new(StatusCode::FORBIDDEN, "approval_required", message);
    Ok(InvokeError { error, approval_id: asked.map(|approval| approval.approval_id.to_string()) })
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde_json::json;

    use super::{Invocations, call_name};
    use crate::api::limits::MAX_INVOKES_PER_PRINCIPAL;

    #[test]
    fn a_principal_with_too_many_calls_is_told_to_retry_and_others_are_not() {
        let invocations = Invocations::default();
        let begun: Vec<_> = (0..MAX_INVOKES_PER_PRINCIPAL).map(|_| invocations.begin("ada").unwrap()).collect();
        let refused = invocations.begin("ada").unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.response(&json!({})).headers().contains_key("retry-after"));
        assert!(invocations.begin("bob").is_ok());
        drop(begun);
        assert!(invocations.begin("ada").is_ok());
        assert!(invocations.0.lock().is_empty());
    }

    #[test]
    fn a_parked_call_is_found_by_its_tool_and_arguments() {
        let name = call_name("a", &json!({"b": "c"}));
        assert_eq!(name, call_name("a", &json!({"b": "c"})));
        for (id, arguments) in [("a", json!({"b": "d"})), ("b", json!({"b": "c"})), ("a", json!({}))] {
            assert_ne!(name, call_name(id, &arguments));
        }
    }
}
