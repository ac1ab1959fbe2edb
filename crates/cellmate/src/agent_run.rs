//! A run of an agent: what its model sees, and the calls of its model.

use std::sync::Arc;

use catalog::{Surface, VisibleTool};
use codemode::{CodeMode, ToolSearch};
use contract::cell::CellResult;
use contract::error::ErrorCode;
use contract::ids::RunId;
use contract::scope::Scope;
use executor::run::PreparedRun;
use executor::{ProgressSink, ToolUpdate};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::error::{self, Error, ErrorKind, Result};

/// A run of an agent: the tools that its model sees, and the calls that its model makes.
///
/// [`Cellmate::run`](crate::Cellmate::run) prepares it. Its tools do not change; the next agent run sees tools that
/// were added since. Clones are the same agent run.
#[derive(Clone, Debug)]
pub struct AgentRun {
    code_mode: CodeMode,
    prepared: Arc<PreparedRun>,
}

impl AgentRun {
    pub(crate) fn new(code_mode: CodeMode, prepared: PreparedRun) -> Self {
        Self { code_mode, prepared: Arc::new(prepared) }
    }

    /// Sets the function that receives progress updates of tools. It must return quickly.
    #[must_use]
    pub fn on_progress(self, listener: impl Fn(ToolUpdate) + Send + Sync + 'static) -> Self {
        let prepared = Arc::unwrap_or_clone(self.prepared);
        let executor = prepared.executor.with_progress_sink(listener);
        Self { prepared: Arc::new(PreparedRun { executor, ..prepared }), ..self }
    }

    /// Returns the tools that the model may see, and nothing else: in code mode `exec` and `wait`.
    pub fn tools(&self) -> &[VisibleTool] {
        &self.prepared.visible
    }

    /// Checks the names of the tools in a request that is about to be sent to a model: they must be those of
    /// [`tools`](Self::tools), each once.
    pub fn verify(&self, names: &[&str]) -> Result<()> {
        let verified = self.prepared.surface.verify(names);
        verified.map_err(|violation| Error::new(ErrorKind::InvalidTool, violation.to_string()))
    }

    /// Returns the agent and session that the model acts for.
    pub fn scope(&self) -> &Scope {
        self.prepared.executor.scope()
    }

    /// Runs a cell in JavaScript until it ends, yields, waits only for people or clients, or its time is over.
    ///
    /// `call_id` is the id of the model's call; the transcript names it.
    ///
    /// ```
    /// use cellmate::{Cellmate, ErrorCode, Scope, json};
    ///
    /// # cellmate::block_on(async {
    /// let host = Cellmate::builder().limits(json!({"timeoutMs": 200})).workers_in_this_process().build().await?;
    /// let run = host.run(Scope::agent("writer"))?;
    /// assert_eq!(run.exec("1", "return 1 + 1").await.value(), Some(json!(2)));
    ///
    /// // A failure that Cellmate detects has a code; an exception of the cell has only a message.
    /// let endless = run.exec("2", "while (true) {}").await;
    /// assert_eq!(endless.code(), Some(ErrorCode::Timeout));
    /// let thrown = run.exec("3", "throw new Error('no tea')").await;
    /// assert_eq!((thrown.code(), thrown.error().unwrap().contains("no tea")), (None, true));
    /// # host.shut_down().await
    /// # }).unwrap();
    /// ```
    pub async fn exec(&self, call_id: &str, code: &str) -> CellResult {
        self.exec_input(call_id, &json!({"code": code})).await
    }

    /// Resumes a run that is [`CellResult::Waiting`], or returns the result of one that is over.
    ///
    /// The run may have been started by another process that shares the store, in an agent run of the same [`Scope`].
    pub async fn wait(&self, call_id: &str, run_id: &RunId) -> CellResult {
        let PreparedRun { executor, config, .. } = self.prepared.as_ref();
        self.code_mode.wait(executor, &config.code_mode, call_id, run_id).await
    }

    /// Makes a call of the model: `name` is one of [`tools`](Self::tools), and `arguments` is the JSON that the model
    /// wrote: an object, or its text, as OpenAI's APIs return it.
    pub async fn call(&self, name: &str, call_id: &str, arguments: Value) -> Answer {
        let arguments = parsed(arguments);
        let PreparedRun { surface, executor, config, .. } = self.prepared.as_ref();
        let (search, settings) = (ToolSearch::new(self.code_mode.clone()), &config.tool_search);
        match (surface, name) {
            (Surface::CodeMode, "exec") => Answer::Cell(Box::new(self.exec_input(call_id, &arguments).await)),
            (Surface::CodeMode, "wait") => {
                Answer::Cell(Box::new(self.code_mode.wait_json(executor, &config.code_mode, call_id, &arguments).await))
            }
            (Surface::ToolSearchCode, "tool_search_code") => {
                Answer::ToolSearch(search.run_code(executor, settings, call_id, &arguments).await)
            }
            (Surface::ToolSearchTools(_), "tool_search") => {
                Answer::ToolSearch(search.search(executor, settings, call_id, &arguments).await.value)
            }
            (Surface::ToolSearchTools(_), "tool_describe") => {
                Answer::ToolSearch(search.describe(executor, settings, call_id, &arguments).await.value)
            }
            (Surface::ToolSearchTools(_), "tool_call") => {
                Answer::ToolSearch(search.call(executor, settings, call_id, &arguments).await)
            }
            (surface, name) => match surface.direct_tool(name) {
                Some(tool) => self.call_directly(tool.id.as_str(), call_id, arguments).await,
                None => unknown_tool(surface, name),
            },
        }
    }

    /// Continues a call that is [`Answer::Waiting`], after it was approved, denied or settled. Until then the answer
    /// stays `Waiting`.
    pub async fn resume(&self, run_id: &RunId) -> Answer {
        let executor = &self.prepared.executor;
        let resumed = executor.resume_direct_call(self.code_mode.store(), run_id, ProgressSink::default()).await;
        Answer::of_direct_call(resumed)
    }

    /// Returns the run that a call of the model started, if it has begun: for a program that was restarted before it
    /// had the result.
    pub async fn run_of_call(&self, call_id: &str) -> Result<Option<RunId>> {
        let found = self.code_mode.store().run_of_tool_call(self.scope(), call_id).await;
        found.map_err(|error| error::store(&error))
    }

    /// Creates a run from the first `steps` steps of a recorded run of this scope, and returns its id.
    ///
    /// A step is what a cell does between two replies: the first one ends with the first calls that the cell waits for.
    /// [`wait`](Self::wait) resumes the new run. It replays those steps, whose calls keep their recorded outcomes, and
    /// runs the rest with the tools, policy and approvals of this host: to try a changed tool, or what a cell does with
    /// other replies. The code stays that of the recorded run; other code is another [`exec`](Self::exec).
    ///
    /// A call of those steps that was in progress is made again only if its tool allows that. One that waited for an
    /// approval needs a new one. `call_id` is recorded as the call that started the new run.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use cellmate::{Cellmate, Scope, Tool, json};
    ///
    /// # cellmate::block_on(async {
    /// static DAY: AtomicU64 = AtomicU64::new(1);
    /// let day = Tool::new("plugin:clock:day", "Returns the day.", json!({"type": "object"}))
    ///     .call(async |_| Ok(json!(DAY.fetch_add(1, Ordering::Relaxed))));
    /// let host = Cellmate::builder().tool(day).workers_in_this_process().build().await?;
    /// let run = host.run(Scope::agent("diary"))?;
    /// let result = run.exec("1", "const a = await tools.day({}); return [a, await tools.day({})]").await;
    /// assert_eq!(result.value(), Some(json!([1, 2])));
    ///
    /// // The first step made the first call, which keeps its outcome. Only the second call is made again.
    /// DAY.store(9, Ordering::Relaxed);
    /// let original = run.run_of_call("1").await?.unwrap();
    /// let forked = run.fork("2", &original, 1).await?;
    /// assert_eq!(run.wait("3", &forked).await.value(), Some(json!([1, 9])));
    /// # host.shut_down().await
    /// # }).unwrap();
    /// ```
    pub async fn fork(&self, call_id: &str, run_id: &RunId, steps: usize) -> Result<RunId> {
        let PreparedRun { config, .. } = self.prepared.as_ref();
        let forked = self.code_mode.fork(self.scope(), &config.code_mode, call_id, run_id, steps).await;
        forked.map_err(|error| error::fork(&error))
    }

    /// Returns the newest runs of this scope that [`wait`](Self::wait) can resume.
    pub async fn unfinished(&self, limit: u32) -> Result<Vec<RunId>> {
        let live = self.code_mode.live(self.scope(), limit).await.map_err(|error| error::store(&error))?;
        Ok(live.into_iter().map(|run| run.run_id).collect())
    }

    /// Cancels a run of this scope, with the calls that it waits for. Returns whether there was a run to cancel.
    pub async fn cancel(&self, run_id: &RunId) -> Result<bool> {
        let known = self.code_mode.has_run(self.scope(), run_id).await.map_err(|error| error::store(&error))?;
        Ok(known && self.code_mode.abort_with(&self.prepared.executor, run_id).await)
    }

    async fn exec_input(&self, call_id: &str, input: &Value) -> CellResult {
        let PreparedRun { executor, config, .. } = self.prepared.as_ref();
        self.code_mode.exec(executor, &config.code_mode, call_id, input).await
    }

    async fn call_directly(&self, id: &str, call_id: &str, input: Value) -> Answer {
        let (executor, store) = (&self.prepared.executor, self.code_mode.store());
        match executor.call_directly(store, call_id, id, input, ProgressSink::default()).await {
            Ok(call) => Answer::of_direct_call(call),
            Err(error) => {
                tracing::warn!(%error, "cannot read system randomness");
                let error = "cannot read system randomness, so the call was not made; try again later".to_owned();
                Answer::Failed { code: ErrorCode::RuntimeUnavailable, error }
            }
        }
    }
}

/// The most names that the answer to an unknown tool lists.
const MAX_NAMED_TOOLS: usize = 16;

/// Returns the object that the text of a model's arguments contains. Other values are returned as they are, and refused
/// where they are read.
fn parsed(arguments: Value) -> Value {
    let object = |text: &str| contract::json::read(text).ok().filter(Value::is_object);
    arguments.as_str().and_then(object).unwrap_or(arguments)
}

fn unknown_tool(surface: &Surface, name: &str) -> Answer {
    let known: Vec<String> = surface.names().into_iter().take(MAX_NAMED_TOOLS).collect();
    let name: String = name.chars().take(100).flat_map(char::escape_default).collect();
    let error = match known.as_slice() {
        [] => format!("there is no tool `{name}`: this run has no tools"),
        known => format!("there is no tool `{name}`; call one of {}", known.join(", ")),
    };
    Answer::Failed { code: ErrorCode::InvalidInput, error }
}
