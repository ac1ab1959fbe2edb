//! Tools from async closures.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use contract::config::Path;
use contract::schema_shape::{check_input_schema, check_schema};
use contract::scope::Scope;
use contract::tool::{BadToolId, Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, Outcome, ToolResult, ToolSource};
use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};

type ToolFuture = Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send>>;
type Function = Arc<dyn Fn(ToolCall) -> ToolFuture + Send + Sync>;

/// A tool of the program: its definition, and the async function that executes its calls.
///
/// ```
/// use cellmate::{Tool, json};
///
/// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
/// let weather = Tool::new("plugin:weather:forecast", "Returns tomorrow's weather of a city.", schema)
///     .reads_only()
///     .call(async |call| Ok(json!({"city": call.input()["city"], "celsius": 7})));
/// ```
///
/// A function that uses a value of the program clones it for each call:
///
/// ```
/// # use cellmate::{Tool, json};
/// # use std::sync::Arc;
/// # let schema = json!({"type": "object"});
/// let letters = Arc::new(std::sync::atomic::AtomicU32::new(0));
/// let send = Tool::new("plugin:post:send_letter", "Sends a letter on paper.", schema).call(move |_| {
///     let letters = Arc::clone(&letters);
///     async move { Ok(json!(letters.fetch_add(1, std::sync::atomic::Ordering::Relaxed))) }
/// });
/// ```
#[must_use]
#[derive(Clone)]
pub struct Tool {
    id: Result<ToolId, BadToolId>,
    label: Option<String>,
    description: String,
    parameters: Value,
    output: Option<Value>,
    repeat: Repeat,
    pub(crate) asks_first: bool,
    function: Option<Function>,
}

impl Tool {
    /// Starts the definition of a tool. [`call`](Self::call) completes it.
    ///
    /// `id` is `plugin:<owner>:<name>`; cells call it as `tools.<name>(…)`. `schema` is the JSON Schema of its input:
    /// input that does not match it is refused before the tool is called. [`Builder::build`](crate::Builder::build) fails
    /// if it is no schema for an object.
    pub fn new(id: impl AsRef<str>, description: impl Into<String>, schema: Value) -> Self {
        Self {
            id: ToolId::parse(id.as_ref()),
            label: None,
            description: description.into(),
            parameters: schema,
            output: None,
            repeat: Repeat::Never,
            asks_first: false,
            function: None,
        }
    }

    /// Sets the function that executes calls, and calls nothing itself.
    ///
    /// The function returns JSON, or an error whose message the cell and the model read.
    /// If the run is cancelled, its future is dropped. If it panics, the call fails.
    pub fn call<F>(self, function: impl Fn(ToolCall) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        Self { function: Some(Arc::new(move |call| Box::pin(function(call)))), ..self }
    }

    /// Requires that a person approves each call; see [`Cellmate::approve`](crate::Cellmate::approve).
    pub fn ask_first(self) -> Self {
        Self { asks_first: true, ..self }
    }

    /// Declares that the tool only reads. A call that a crash interrupts is repeated.
    ///
    /// Without a declaration such a call is not repeated, and ends with an error that the cell can catch.
    pub fn reads_only(self) -> Self {
        Self { repeat: Repeat::Always, ..self }
    }

    /// Declares that two calls with the same [`ToolCall::key`] have one effect. A call that a crash interrupts is
    /// repeated with the same key.
    pub fn idempotent(self) -> Self {
        Self { repeat: Repeat::WithKey, ..self }
    }

    /// Returns the id; `None` if it is invalid, which `Tools::new` reports.
    pub(crate) fn id(&self) -> Option<&ToolId> {
        self.id.as_ref().ok()
    }

    /// Sets a short title for people.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// Sets the JSON Schema of the result, for programs that list tools. Models are not shown it and results are not checked
    /// against it, so say in the description what the tool returns.
    pub fn output_schema(self, schema: Value) -> Self {
        Self { output: Some(schema), ..self }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("id", &self.id).field("description", &self.description).finish_non_exhaustive()
    }
}

/// A call of a [`Tool`], which policy allowed and, if that is required, a person approved.
#[derive(Debug)]
pub struct ToolCall {
    call: AuthorizedCall,
}

impl ToolCall {
    /// Returns the input. It matches the tool's schema.
    pub fn input(&self) -> &Value {
        self.call.input()
    }

    /// Deserializes the input into a type of the program. If the function returns the error with `?`, the call fails with
    /// it.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        T::deserialize(self.input()).map_err(|error| ToolError::new(format!("the input cannot be read: {error}")))
    }

    /// Returns the idempotency key: equal for every attempt at this call, and different for every other call.
    pub fn key(&self) -> &str {
        self.call.key()
    }

    /// Returns the agent and session that the call is made for.
    pub fn scope(&self) -> &Scope {
        self.call.scope()
    }

    /// Sends a progress update to the listener of [`AgentRun::on_progress`](crate::AgentRun::on_progress).
    pub fn progress(&self, update: Value) {
        self.call.updates().send(update);
    }
}

/// Why a tool failed. The cell and the model read the message, so it must not contain secrets.
///
/// There is no `From` for other errors, so `?` cannot leak their text by accident: it may contain addresses, paths or
/// credentials. [`new`](Self::new) includes it explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError {
    message: String,
}

impl ToolError {
    /// Creates an error with this message, which the model reads. `.map_err(ToolError::new)` converts another error.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ToolError {}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self { message }
    }
}

/// All tools of the program: the `ToolSource` that executes their calls.
pub(crate) struct Tools {
    specs: Vec<ToolSpec>,
    functions: HashMap<ToolId, Function>,
}

impl Tools {
    /// Checks the definitions of the tools. Fails if one is invalid or incomplete, or if two have one id.
    pub(crate) fn new(tools: Vec<Tool>) -> Result<Self> {
        let bad = |message: String| Error::new(ErrorKind::InvalidTool, message);
        let (mut specs, mut functions) = (Vec::new(), HashMap::new());
        for tool in tools {
            let Tool { id, label, description, parameters, output, repeat, asks_first: _, function } = tool;
            let id = id.map_err(|error| bad(error.to_string()))?;
            let function = function.ok_or_else(|| {
                bad(format!("the tool `{}` has no function; add `.call(async |call| …)`", id.as_str()))
            })?;
            if functions.insert(id.clone(), function).is_some() {
                return Err(bad(format!("two tools have the id `{}`; give one of them another name", id.as_str())));
            }
            let wrong_schema = |error| bad(format!("the tool `{}` has an invalid schema; {error}", id.as_str()));
            check_input_schema(&parameters, &Path::root("schema")).map_err(wrong_schema)?;
            if let Some(output) = &output {
                check_schema(output, &Path::root("output_schema")).map_err(wrong_schema)?;
            }
            let spec = ToolSpec::new(id, description, parameters);
            specs.push(ToolSpec { label, output, repeat, declared_repeat: repeat, ..spec });
        }
        Ok(Self { specs, functions })
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.specs.iter().map(|spec| spec.id.as_str())).finish()
    }
}

impl ToolSource for Tools {
    fn tools(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move {
            let Some(function) = self.functions.get(call.id()) else {
                return failed(format!("this program has no tool `{}`", call.id().as_str()));
            };
            let id = call.id().clone();
            let running = async { function(ToolCall { call }).await };
            match AssertUnwindSafe(running).catch_unwind().await {
                Ok(Ok(value)) => Dispatch::Settled(Outcome::Returned(ToolResult::json(value))),
                Ok(Err(error)) => failed(error.message),
                Err(_) => failed(format!("the tool `{}` panicked; it may have had an effect before", id.as_str())),
            }
        })
    }
}

fn failed(message: String) -> Dispatch {
    Dispatch::Settled(Outcome::Failed(message))
}
