//! Requests of clients to a node, and its answers.

use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use codemode::{CodeMode, ExecInput};
use contract::config;
use contract::config::pattern::Pattern;
use contract::ids::{ApprovalId, CallId, RunId};
use contract::limits::Limits;
use contract::scope::Scope;
use executor::{CallToken, Executor, Outcome, Routes, ToolResult, ToolSource};
use serde_json::{Value, json};
use store::{Decision, SettleResult};

use super::gateway_node::GatewayNode;
use super::programs::Kind;
use super::tools::Tools;

#[derive(Clone, Debug)]
pub(super) enum Request {
    Exec {
        agent_run: String,
        code: String,
    },
    Wait {
        agent_run: String,
        run: RunId,
    },
    Settle {
        run: RunId,
        call: CallId,
        value: Value,
    },
    Decide {
        approval: ApprovalId,
        decision: Decision,
    },
    Abort {
        agent_run: String,
        run: RunId,
    },
    /// An HTTP request to the node's gateway.
    Http(HttpRequest),
    Leave,
}

#[derive(Clone, Debug)]
pub(super) struct HttpRequest {
    pub path: String,
    pub body: Value,
    /// How often the client has sent the request before.
    pub retries: usize,
    /// The time after which the client closes its connection.
    pub patience: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The result of an `exec` or `wait`.
    Cell(Value),
    /// Whether the outcome was accepted.
    Settled(bool),
    /// Whether the decision was accepted.
    Decided(bool),
    Aborted(bool),
    /// The response of a gateway; `None` if the client has closed its connection before it.
    Http(Option<(u16, Value)>),
    Left,
}

/// Short, so that a history does not spend most of its time in requests.
pub(super) const EXEC_MS: u64 = 2000;
pub(super) const WAIT_MS: u64 = 500;

#[derive(Debug)]
pub(super) struct Server {
    code_mode: CodeMode,
    tools: Arc<dyn ToolSource>,
    config: config::CodeMode,
    gateway: Option<GatewayNode>,
}

impl Server {
    /// Creates the server of a node. It has a gateway if the address of a model is given.
    pub(super) fn new(code_mode: CodeMode, tools: Tools, model: Option<&str>) -> Self {
        let limits = Limits { timeout_ms: EXEC_MS, max_wait_ms: WAIT_MS, ..Limits::DEFAULT };
        let tools: Arc<dyn ToolSource> = Arc::new(tools);
        let gateway = model.map(|url| GatewayNode::start(code_mode.clone(), Arc::clone(&tools), url));
        Self { code_mode, tools, config: config::CodeMode::enabled(limits), gateway }
    }

    pub(super) async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Exec { agent_run, code } => {
                let input = ExecInput::javascript(code);
                let result = self.code_mode.exec(&self.executor(&agent_run), &self.config, "exec-1", input).await;
                Answer::Cell(without_timing(json!(result)))
            }
            Request::Wait { agent_run, run } => {
                let result = self.code_mode.wait(&self.executor(&agent_run), &self.config, "wait-1", &run).await;
                Answer::Cell(without_timing(json!(result)))
            }
            Request::Settle { run, call, value } => {
                let outcome = Outcome::Returned(ToolResult::json(value));
                let settled = self.code_mode.settle(&CallToken { run, call }, &outcome).await;
                Answer::Settled(matches!(settled, Ok(SettleResult::WillDeliver)))
            }
            Request::Decide { approval, decision } => {
                Answer::Decided(self.code_mode.decide(&approval, &decision, "a person").await.is_ok())
            }
            Request::Abort { agent_run, run } => {
                Answer::Aborted(self.code_mode.abort_with(&self.executor(&agent_run), &run).await)
            }
            Request::Http(request) => match &self.gateway {
                Some(gateway) => Answer::Http(gateway.answer(request).await),
                None => Answer::Http(None),
            },
            Request::Leave => {
                if let Some(gateway) = &self.gateway {
                    gateway.shut_down().await;
                }
                drop(self.code_mode.shut_down().await);
                Answer::Left
            }
        }
    }

    fn executor(&self, agent_run: &str) -> Executor {
        let (routes, tools) = Routes::collect(&[Arc::clone(&self.tools)]);
        let ask = Pattern::parse(&Kind::Ask.tool()).unwrap();
        Executor::new(Arc::new(Catalog::new(tools).unwrap()), routes, scope(agent_run))
            .with_approval_patterns(vec![ask])
    }
}

/// Returns the scope of a cell. All cells belong to one session, so that they share its values; each is an agent run of
/// its own.
pub(super) fn scope(agent_run: &str) -> Scope {
    Scope {
        agent_id: "main".to_owned(),
        session_id: "session".to_owned(),
        agent_run_id: agent_run.to_owned(),
        ..Scope::default()
    }
}

/// Keeps only the fields that do not depend on timing, without the random ids of internal errors.
fn without_timing(mut result: Value) -> Value {
    let fields = result.as_object_mut().unwrap();
    if let Some(Value::String(error)) = fields.get_mut("error")
        && let Some((before, after)) = error.split_once("(incident ")
        && let Some((_, after)) = after.split_once(')')
    {
        *error = format!("{before}(incident){after}");
    }
    fields.retain(|name, _| ["status", "code", "error", "value", "runId", "effects"].contains(&name.as_str()));
    result
}
