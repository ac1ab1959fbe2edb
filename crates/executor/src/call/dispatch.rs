//! Authorizes a call, journals its intent and passes it to its source.

use std::sync::Arc;

use catalog::arguments;
use contract::ids::{ApprovalId, CallId, RunId};
use contract::tool::{ContentHash, Source, ToolSpec};
use serde_json::Value;
use store::CommitError;

use super::context::Call;
use super::elicitation::dispatch_with_questions;
use super::hooks::{HookVerdict, judge};
use super::transcript::RecordedCall;
use super::{CallEnd, approval, parked};
use crate::question::QuestionSender;
use crate::source::{Answers, AuthorizedCall, Dispatch};

/// A call that passed policy and hooks. It is dispatched once it is approved, if `ask` is set, and journaled.
pub(crate) struct AdmittedCall<'a> {
    pub(crate) tool: &'a ToolSpec,
    pub(crate) input: Value,
    /// Why the call requires approval; `None` if it does not.
    pub(crate) ask: Option<String>,
    pub(crate) consent: Consent,
}

/// Approvals and answers that were collected before a call is dispatched.
#[derive(Debug, Default)]
pub(crate) struct Consent {
    /// Approvals that this call uses up.
    pub(crate) approvals: Vec<ApprovalId>,
    /// Whether a person approved the tool's current definition.
    pub(crate) approved: bool,
    pub(crate) answers: Option<Answers>,
}

/// Makes a call, or parks it until it is approved.
pub(crate) async fn start(call: Call<'_>) -> CallEnd {
    let admitted = match admit(call).await {
        Ok(admitted) => admitted,
        Err(refused) => return call.refuse(refused),
    };
    // Futures of what few calls do are on the heap, here and below: otherwise the task of every call would be as large as
    // the largest of them, several kilobytes.
    if let Some(reason) = admitted.ask.clone() {
        match Box::pin(approval::has_standing_approval(call, admitted.tool)).await {
            Ok(true) => {}
            Ok(false) => return Box::pin(approval::park(call, admitted.tool, &admitted.input, reason)).await,
            Err(error) => return error.into(),
        }
    }
    dispatch(call, admitted).await
}

/// Journals an admitted call and passes it to its source.
pub(crate) async fn dispatch(call: Call<'_>, admitted: AdmittedCall<'_>) -> CallEnd {
    intend_and_dispatch(call, admitted).await.unwrap_or_else(CallEnd::from)
}

async fn admit(call: Call<'_>) -> Result<AdmittedCall<'_>, String> {
    let Call { context, request, .. } = call;
    let tool = call.tool().ok_or_else(|| context.unknown(&request.id))?;
    let given = match tool.id.source() {
        // MCP servers rely on clients to fill in the defaults of their schemas.
        Source::Mcp => arguments::with_defaults(&tool.parameters, request.input.clone()),
        Source::Openclaw | Source::Plugin | Source::Client => request.input.clone(),
    };
    check_arguments(tool, &given)?;
    let (input, ask) = if context.hooks.is_empty() {
        (given, None)
    } else {
        let mut event = call.event(&given);
        match judge(&context.hooks, context.hook_deadline, &mut event).await {
            HookVerdict::Blocked(reason) => return Err(reason),
            HookVerdict::Proceed { params, ask, rewriters } => {
                if params != given {
                    check_arguments(tool, &params).map_err(|why| rewriters.explain("this call", why))?;
                }
                (params, ask)
            }
        }
    };
    let ask = ask.or_else(|| context.needs_approval(tool).then(|| "this tool requires a person's approval".to_owned()));
    Ok(AdmittedCall { tool, input, ask, consent: Consent::default() })
}

async fn intend_and_dispatch(call: Call<'_>, admitted: AdmittedCall<'_>) -> Result<CallEnd, CommitError> {
    let Call { context, journal, request } = call;
    let AdmittedCall { tool, input, ask, consent: Consent { approvals, approved, answers } } = admitted;
    let approved_definition = (ask.is_some() || approved).then(|| context.catalog.hash_of(tool));
    let Some(source) = context.routes.source_of(&tool.id) else {
        return Ok(call.refuse(format!("`{}` is no longer available", tool.id.as_str())));
    };
    // Serializing a JSON value does not fail.
    let input_text = serde_json::to_string(&input).unwrap_or_default();
    // A call with answers is a different request than the one without. A tool that executes each key once must see a
    // different key.
    let state = answers.as_ref().map_or("", |answers| answers.ticket.as_str());
    let input_hash = ContentHash::of_parts([input_text.as_str(), state]).to_string();
    fault::point("dispatch.before_journal")?;
    if answers.is_none() {
        journal.entry(RecordedCall::new(request, tool).call_entry(&input));
    }
    let intent = journal.intend(request.call, tool.repeat, approvals, |row| {
        row.ticket = None;
        row.input = Some(input_text).filter(|input| *input != row.payload);
        row.tool_id = Some(tool.id.as_str().to_owned());
        row.tool_hash = Some(context.catalog.hash_of(tool).to_string());
    });
    let intent = intent.await?;
    fault::point("dispatch.after_journal")?;
    let event = call.event(&input);
    let (asker, asked) = QuestionSender::channel(&request.states);
    tracing::info!("call dispatched");
    tracing::debug!(%input, "the input of the call");
    let authorized = AuthorizedCall {
        id: tool.id.clone(),
        input,
        token: call.token(),
        tool_call_id: request.tool_call_id(),
        key: key(call.run_id(), request.call, &input_hash),
        scope: Arc::clone(&context.scope),
        updates: call.updates(),
        approved_definition,
        answers,
        asker,
        _intent: intent,
    };
    fault::point("dispatch.before_send")?;
    let answering = Box::pin(async { source.call(authorized).await });
    let dispatched = dispatch_with_questions(call, tool, answering, asked).await?;
    fault::point("dispatch.after_send")?;
    Ok(match dispatched {
        Dispatch::Settled(outcome) => CallEnd::Settled(call.record(&event, outcome).await),
        Dispatch::Parked(parked) => Box::pin(parked::park(call, tool, parked)).await?,
    })
}

/// Checks the input against the tool's schema.
///
/// A tool takes one object, even if its schema does not say so. It takes another type only if its schema lists types
/// explicitly; MCP tools take only objects.
pub(crate) fn check_arguments(tool: &ToolSpec, input: &Value) -> Result<(), String> {
    let id = tool.id.as_str();
    let names_types = || tool.parameters.get("type").and_then(Value::as_array).is_some();
    if !input.is_object() && (tool.id.source() == Source::Mcp || !names_types()) {
        return Err(format!("`{id}` takes one object; tools.describe(\"{id}\") has its schema"));
    }
    arguments::check(&tool.parameters, input).map_err(|bad| format!("`{id}` cannot be called with this:\n{bad}"))
}

/// Returns the idempotency key: equal for every attempt at a call, different for every other call.
fn key(run_id: &RunId, call: CallId, input_hash: &str) -> String {
    ContentHash::of_parts([run_id.as_str(), "\0", itoa::Buffer::new().format(call.0), "\0", input_hash]).to_string()
}
