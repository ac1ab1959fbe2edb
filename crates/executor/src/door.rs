//! The one door: authorize → hooks → approval → journal → dispatch → record.

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

/// How the calls of one run are made.
#[derive(Clone, Debug)]
pub struct Executor {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) hooks: Arc<[Arc<dyn Hook>]>,
    /// Tools that a person is asked about, unless a standing rule allows them.
    pub(crate) ask: Arc<[Pattern]>,
    /// Whoever wants to hear what the tools of the run say on their way.
    pub(crate) listener: Sink<ToolUpdate>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) approval_ms: i64,
    pub(crate) hook_deadline: Duration,
}

/// A call that may be made, once it is written down.
pub(crate) struct Admitted {
    pub(crate) tool: ToolSpec,
    pub(crate) input: Value,
    pub(crate) ask: Option<String>,
    pub(crate) consent: Consent,
}

/// What people have said of a call before it is made.
#[derive(Debug, Default)]
pub(crate) struct Consent {
    /// Approvals that are used up by it.
    pub(crate) approvals: Vec<String>,
    /// Whether they agreed to the tool's definition.
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

    /// Makes a call, or parks it with whoever must have a say first.
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
        self.make(journal, request, admitted).await
    }

    /// Repeats a call that a crash may have kept from being made; only where that does no harm.
    pub async fn again(&self, journal: &Journal, request: &CallRequest) -> CallEnd {
        match self.catalog.get(&request.id) {
            Some(tool) if tool.repeat != Repeat::Never => match self.still_agreed(journal, request, tool).await {
                Ok(agreed) => {
                    let consent = Consent { agreed, ..Consent::default() };
                    let (tool, input) = (tool.clone(), request.input.clone());
                    self.make(journal, request, Admitted { tool, input, ask: None, consent }).await
                }
                Err(Disagreed::Changed) => {
                    let why = "the tool has changed since it was approved; call it again to ask again".to_owned();
                    self.refuse(journal, request, why)
                }
                Err(Disagreed::Store(error)) => error.into(),
            },
            _ => match self.settle_unknown(journal, request).await {
                Ok(outcome) => self.arrived(journal, request, outcome).await,
                Err(error) => error.into(),
            },
        }
    }

    /// Whether a person agreed to the call before it was made first. A repetition is bound to the definition that they
    /// agreed to.
    async fn still_agreed(&self, journal: &Journal, request: &CallRequest, tool: &ToolSpec) -> Result<bool, Disagreed> {
        let store = journal.store();
        let approvals = store.approvals_of_run(journal.run_id()).await.map_err(CommitError::from)?;
        let used = approvals.iter().rev().find(|one| one.call == request.call && one.state == ApprovalState::Used);
        let agreed_to = match used {
            Some(approval) => Some(approval.tool_hash.clone()),
            // Nobody was asked, because of a standing rule for the definition of then.
            None => journal.call(request.call).and_then(|row| row.tool_hash).filter(|_| self.asks_about(tool)),
        };
        match agreed_to {
            Some(hash) if hash != tool.hash().to_string() => Err(Disagreed::Changed),
            agreed_to => Ok(agreed_to.is_some()),
        }
    }

    fn asks_about(&self, tool: &ToolSpec) -> bool {
        self.ask.iter().any(|pattern| catalog::policy::names(pattern, &tool.id))
    }

    /// Nobody may know what became of the call. Whoever does has said so first, or is too late now: what the cell
    /// is told must not be another thing than what they were.
    async fn settle_unknown(&self, journal: &Journal, request: &CallRequest) -> Result<Outcome, CommitError> {
        let store = journal.store();
        match store.settle(journal.run_id(), request.call, &Outcome::Unknown.to_json()).await {
            Ok(_) => return Ok(Outcome::Unknown),
            Err(SettleRefused::NotParked) => {}
            Err(SettleRefused::Store(error)) => return Err(error.into()),
        }
        stored_outcome(journal, request.call).await
    }

    /// An outcome that came from elsewhere, seen by hooks and transcript as any other.
    pub async fn arrived(&self, journal: &Journal, request: &CallRequest, outcome: Outcome) -> CallEnd {
        let event = self.event(journal, request, &request.input);
        CallEnd::Settled(self.record(journal, request, &event, outcome).await)
    }

    /// Here only ids that a cell may write are told.
    pub(crate) fn unknown(&self, id: &str) -> String {
        self.catalog.unknown(View::CodeMode, id, "tools.search(query)")
    }

    async fn admit(&self, journal: &Journal, request: &CallRequest) -> Result<Admitted, String> {
        let tool = self.catalog.get(&request.id).ok_or_else(|| self.unknown(&request.id))?;
        let given = match tool.id.source() {
            // Servers rely on it that clients fill in what their schemas say.
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
            ask.or_else(|| self.asks_about(tool).then(|| "this tool is called only when a person agrees".to_owned()));
        Ok(Admitted { tool: tool.clone(), input, ask, consent: Consent::default() })
    }

    pub(crate) async fn make(&self, journal: &Journal, request: &CallRequest, admitted: Admitted) -> CallEnd {
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
            return Ok(self.refuse(journal, request, format!("`{}` is not there any more", tool.id.as_str())));
        };
        let input_text = input.to_string();
        // With answers it is another request than the one without, which a tool that does each once must see.
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

/// Why a call is not made again.
enum Disagreed {
    /// A person agreed to another definition of the tool.
    Changed,
    Store(CommitError),
}

impl From<CommitError> for Disagreed {
    fn from(error: CommitError) -> Self {
        Self::Store(error)
    }
}

impl CallRequest {
    /// Unique within a session: the parent's, and the call's number under it.
    pub fn tool_call_id(&self) -> String {
        if self.call == 0 { self.parent.clone() } else { format!("{}:{}", self.parent, self.call) }
    }
}

/// The outcome that counts, whoever brought it.
pub(crate) async fn stored_outcome(journal: &Journal, call: u32) -> Result<Outcome, CommitError> {
    let row = journal.store().call(journal.run_id(), call).await?;
    Ok(row.and_then(|row| row.outcome).map_or(Outcome::Unknown, |outcome| Outcome::from_json(&outcome)))
}

/// A source that panics, in a program where panics unwind, has failed this call and no other.
pub(crate) async fn guarded(answering: CallFuture<'_>) -> Dispatch {
    let called = AssertUnwindSafe(answering).catch_unwind().await;
    called.unwrap_or_else(|_| {
        let message = "the tool broke down; look whether it had its effect before calling again";
        Dispatch::Settled(Outcome::Failed(message.to_owned()))
    })
}

/// A tool takes one object, also where its schema forgets to say so; it takes something else only where its
/// schema says that outright. MCP knows nothing but objects.
pub(crate) fn check_arguments(tool: &ToolSpec, input: &Value) -> Result<(), String> {
    let id = tool.id.as_str();
    let names_types = || tool.parameters.get("type").and_then(Value::as_array).is_some();
    if !input.is_object() && (tool.id.source() == Source::Mcp || !names_types()) {
        return Err(format!("`{id}` takes one object; tools.describe(\"{id}\") has its schema"));
    }
    arguments::check(&tool.parameters, input).map_err(|bad| format!("`{id}` cannot be called with this:\n{bad}"))
}

/// The same for every attempt, and for no other call.
fn key(run_id: &str, call: u32, input_hash: &str) -> String {
    InputHash::of(format!("{run_id}\0{call}\0{input_hash}").as_bytes()).to_string()
}
