//! The only path of a tool call: authorize → hooks → approval → journal → dispatch → record.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Catalog, View, arguments};
use contract::config::pattern::Pattern;
use contract::scope::Scope;
use contract::tool::{InputHash, Repeat, Source, ToolSpec};
use futures_util::FutureExt;
use serde_json::Value;
use store::{ApprovalState, CommitError, SettleRefused};

use crate::asker::QuestionSender;
use crate::hooks::{Hook, HookVerdict, judge};
use crate::journal::Journal;
use crate::listener::Sink;
use crate::parked::Answers;
use crate::record::recorded;
use crate::request::{CallEnd, CallRequest};
use crate::routes::Routes;
use crate::source::{AuthorizedCall, CallFuture, CallToken, Dispatch, Outcome, ToolUpdate};

/// Makes the tool calls of one run.
#[derive(Clone, Debug)]
pub struct Executor {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) hooks: Arc<[Arc<dyn Hook>]>,
    /// Patterns of the tools that require a person's approval, unless a standing rule allows them.
    pub(crate) ask: Arc<[Pattern]>,
    /// Receives progress updates of the run's tools.
    pub(crate) listener: Sink<ToolUpdate>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) approval_ms: i64,
    pub(crate) hook_deadline: Duration,
}

/// A call that passed policy and hooks. It is dispatched once it is approved, if `ask` is set, and journaled.
pub(crate) struct Admitted {
    pub(crate) tool: ToolSpec,
    pub(crate) input: Value,
    /// Why the call requires approval; `None` if it does not.
    pub(crate) ask: Option<String>,
    pub(crate) consent: Consent,
}

/// Approvals and answers that were collected before a call is dispatched.
#[derive(Debug, Default)]
pub(crate) struct Consent {
    /// Approvals that this call uses up.
    pub(crate) approvals: Vec<String>,
    /// Whether a person approved the tool's current definition.
    pub(crate) agreed: bool,
    pub(crate) answers: Option<Answers>,
}

impl Executor {
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// Makes a call, or parks it until it is approved.
    pub async fn call(&self, journal: &Journal, request: &CallRequest) -> CallEnd {
        let admitted = match self.admit(journal, request).await {
            Ok(admitted) => admitted,
            Err(refused) => return self.refuse(journal, request, refused),
        };
        if let Some(reason) = admitted.ask.clone() {
            match self.is_allowed_for_good(journal, &admitted.tool).await {
                Ok(true) => {}
                Ok(false) => return self.park_for_approval(journal, request, &admitted, reason).await,
                Err(error) => return error.into(),
            }
        }
        self.dispatch(journal, request, admitted).await
    }

    /// Retries a call that was dispatched before a crash, if its tool may be called twice. Otherwise settles the call
    /// as [`Outcome::Unknown`].
    pub async fn again(&self, journal: &Journal, request: &CallRequest) -> CallEnd {
        match self.catalog.get(&request.id) {
            Some(tool) if tool.repeat != Repeat::Never => match self.check_consent(journal, request, tool).await {
                Ok(agreed) => {
                    let consent = Consent { agreed, ..Consent::default() };
                    let (tool, input) = (tool.clone(), request.input.clone());
                    self.dispatch(journal, request, Admitted { tool, input, ask: None, consent }).await
                }
                Err(RetryRefused::Changed) => {
                    let why = "the tool has changed since it was approved; call it again to request a new approval"
                        .to_owned();
                    self.refuse(journal, request, why)
                }
                Err(RetryRefused::Store(error)) => error.into(),
            },
            _ => match self.settle_unknown(journal, request).await {
                Ok(outcome) => self.record_outcome(journal, request, outcome).await,
                Err(error) => error.into(),
            },
        }
    }

    /// Returns whether a person approved the call before its first attempt. Fails if the tool's definition changed
    /// since: a retry is bound to the definition that was approved.
    async fn check_consent(
        &self,
        journal: &Journal,
        request: &CallRequest,
        tool: &ToolSpec,
    ) -> Result<bool, RetryRefused> {
        let store = journal.store();
        let approvals = store.approvals_of_run(journal.run_id()).await.map_err(CommitError::from)?;
        let used = approvals.iter().rev().find(|one| one.call == request.call && one.state == ApprovalState::Used);
        let agreed_to = match used {
            Some(approval) => Some(approval.tool_hash.clone()),
            // No approval was requested: a standing rule allowed the definition at that time.
            None => journal.call(request.call).and_then(|row| row.tool_hash).filter(|_| self.needs_approval(tool)),
        };
        match agreed_to {
            Some(hash) if hash != tool.hash().to_string() => Err(RetryRefused::Changed),
            agreed_to => Ok(agreed_to.is_some()),
        }
    }

    fn needs_approval(&self, tool: &ToolSpec) -> bool {
        self.ask.iter().any(|pattern| catalog::policy::names(pattern, &tool.id))
    }

    /// Settles the call as `Unknown` unless an outcome was already stored; the first one wins. The cell and the party
    /// that settles the call must not see different outcomes.
    async fn settle_unknown(&self, journal: &Journal, request: &CallRequest) -> Result<Outcome, CommitError> {
        let store = journal.store();
        match store.settle(journal.run_id(), request.call, &Outcome::Unknown.to_json()).await {
            Ok(_) => return Ok(Outcome::Unknown),
            Err(SettleRefused::NotParked) => {}
            Err(SettleRefused::Store(error)) => return Err(error.into()),
        }
        stored_outcome(journal, request.call).await
    }

    /// Settles a call with an outcome that came through the store, and passes it to hooks and transcript like any
    /// other.
    pub async fn record_outcome(&self, journal: &Journal, request: &CallRequest, outcome: Outcome) -> CallEnd {
        let event = self.event(journal, request, &request.input);
        CallEnd::Settled(self.record(journal, request, &event, outcome).await)
    }

    /// Returns the error message for an unknown tool id. It suggests only ids that a cell may use.
    pub(crate) fn unknown(&self, id: &str) -> String {
        self.catalog.unknown_tool_message(View::CodeMode, id, "tools.search(query)")
    }

    async fn admit(&self, journal: &Journal, request: &CallRequest) -> Result<Admitted, String> {
        let tool = self.catalog.get(&request.id).ok_or_else(|| self.unknown(&request.id))?;
        let given = match tool.id.source() {
            // MCP servers rely on clients to fill in the defaults of their schemas.
            Source::Mcp => arguments::with_defaults(&tool.parameters, request.input.clone()),
            Source::Openclaw | Source::Plugin | Source::Client => request.input.clone(),
        };
        check_arguments(tool, &given)?;
        let (input, ask) = if self.hooks.is_empty() {
            (given, None)
        } else {
            let mut event = self.event(journal, request, &given);
            let (input, ask) = match judge(&self.hooks, self.hook_deadline, &mut event).await {
                HookVerdict::Blocked(reason) => return Err(reason),
                HookVerdict::Proceed { params, ask } => (params, ask),
            };
            if input != given {
                check_arguments(tool, &input)?;
            }
            (input, ask)
        };
        let ask =
            ask.or_else(|| self.needs_approval(tool).then(|| "this tool requires a person's approval".to_owned()));
        Ok(Admitted { tool: tool.clone(), input, ask, consent: Consent::default() })
    }

    pub(crate) async fn dispatch(&self, journal: &Journal, request: &CallRequest, admitted: Admitted) -> CallEnd {
        self.intend_and_dispatch(journal, request, admitted).await.unwrap_or_else(CallEnd::from)
    }

    async fn intend_and_dispatch(
        &self,
        journal: &Journal,
        request: &CallRequest,
        admitted: Admitted,
    ) -> Result<CallEnd, CommitError> {
        let Admitted { tool, input, ask, consent: Consent { approvals, agreed, answers } } = admitted;
        let agreed = (ask.is_some() || agreed).then(|| tool.hash());
        let Some(source) = self.routes.to(&tool.id) else {
            return Ok(self.refuse(journal, request, format!("`{}` is no longer available", tool.id.as_str())));
        };
        let input_text = input.to_string();
        // A call with answers is a different request than the one without. A tool that executes each key once must see
        // a different key.
        let state = answers.as_ref().map_or("", |answers| answers.ticket.as_str());
        let input_hash = InputHash::of(format!("{input_text}{state}").as_bytes()).to_string();
        fault::point("dispatch.before_journal")?;
        if answers.is_none() {
            journal.entry(recorded(request, &tool).made(&input));
        }
        let intent = journal.intend(request.call, tool.repeat != Repeat::Never, approvals, |row| {
            row.ticket = None;
            row.input = Some(input_text).filter(|input| *input != row.payload);
            row.tool_id = Some(tool.id.as_str().to_owned());
            row.tool_hash = Some(tool.hash().to_string());
        });
        let intent = intent.await?;
        fault::point("dispatch.after_journal")?;
        let event = self.event(journal, request, &input);
        let (asker, asked) = QuestionSender::of(&request.states);
        let call = AuthorizedCall {
            id: tool.id.clone(),
            input,
            token: CallToken { run: journal.run_id().to_owned(), call: request.call },
            key: key(journal.run_id(), request.call, &input_hash),
            scope: Arc::clone(&self.scope),
            updates: self.updates(journal, request),
            agreed,
            answers,
            asker,
            _intent: intent,
        };
        fault::point("dispatch.before_send")?;
        let answering = Box::pin(async { source.call(call).await });
        let dispatched = self.dispatch_with_questions(journal, request, &tool, answering, asked).await?;
        fault::point("dispatch.after_send")?;
        Ok(match dispatched {
            Dispatch::Settled(outcome) => CallEnd::Settled(self.record(journal, request, &event, outcome).await),
            Dispatch::Parked(parked) => self.park(journal, request, &tool, parked).await?,
        })
    }
}

/// Why a call is not retried.
enum RetryRefused {
    /// The person approved a different definition of the tool.
    Changed,
    Store(CommitError),
}

impl From<CommitError> for RetryRefused {
    fn from(error: CommitError) -> Self {
        Self::Store(error)
    }
}

impl CallRequest {
    /// Returns an id that is unique within a session: the parent's id followed by the call's number.
    pub fn tool_call_id(&self) -> String {
        if self.call == 0 { self.parent.clone() } else { format!("{}:{}", self.parent, self.call) }
    }
}

/// Returns the outcome that the store has for the call.
pub(crate) async fn stored_outcome(journal: &Journal, call: u32) -> Result<Outcome, CommitError> {
    let row = journal.store().call(journal.run_id(), call).await?;
    Ok(row.and_then(|row| row.outcome).map_or(Outcome::Unknown, |outcome| Outcome::from_json(&outcome)))
}

/// Turns a panic of the source into a failure of this call only, in programs where panics unwind.
pub(crate) async fn guarded(answering: CallFuture<'_>) -> Dispatch {
    let called = AssertUnwindSafe(answering).catch_unwind().await;
    called.unwrap_or_else(|_| {
        let message = "the tool panicked and may have taken effect; check before calling it again";
        Dispatch::Settled(Outcome::Failed(message.to_owned()))
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
fn key(run_id: &str, call: u32, input_hash: &str) -> String {
    InputHash::of(format!("{run_id}\0{call}\0{input_hash}").as_bytes()).to_string()
}
