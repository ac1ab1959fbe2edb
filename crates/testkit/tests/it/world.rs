//! A test host with store, workers, tool sources and hooks, and the agent runs prepared in it.

use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Registration, Registry, SurfaceOptions};
use codemode::CodeMode;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::config::pattern::Pattern;
use contract::config::{AgentsConfig, Quotas, Retention};
use contract::frame::Jail;
use contract::ids::RunId;
use contract::scope::Scope;
use executor::run::{Host, LocalTools, PreparedRun, RequestedTools, RunRequest, prepare};
use executor::{Hook, ToolSource};
use serde_json::{Value, json};
use store::{Approval, ApprovalScope, Decision, Keys, Location, Store};

/// Where the cells of a [`World`] run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// In a worker process in the whole jail, as in production.
    Jailed,
    /// On threads of the test, without a jail.
    Attached,
}

impl Workers {
    fn options(self) -> PoolOptions {
        let (launch, jail) = match self {
            Self::Jailed => (Launch::Program(env!("CARGO_BIN_EXE_ledger-host").into()), JailPolicy::Required),
            Self::Attached => (Launch::InProcess(sandbox::serve_attached), JailPolicy::Off),
        };
        // Of three threads, two are for the test's principal: the pool reserves one for other principals.
        PoolOptions { jail, workers: 1, slots: 16, threads: 3, ..PoolOptions::new(launch) }
    }
}

/// The configuration of a [`World`]; every field has a default.
pub(crate) struct Parts {
    pub workers: Workers,
    pub tools: Value,
    pub agents: Value,
    pub sources: Vec<Arc<dyn ToolSource>>,
    pub hooks: Vec<Arc<dyn Hook>>,
    pub ask: Vec<&'static str>,
    pub namespaces: Vec<(&'static str, Registration)>,
    pub store: Option<PathBuf>,
    pub key: u8,
    pub quotas: Quotas,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            workers: Workers::Jailed,
            tools: json!({"codeMode": {"enabled": true, "timeoutMs": 5000, "maxWaitMs": 5000}}),
            agents: Value::Null,
            sources: Vec::new(),
            hooks: Vec::new(),
            ask: Vec::new(),
            namespaces: Vec::new(),
            store: None,
            key: 7,
            quotas: Quotas::DEFAULT,
        }
    }
}

#[derive(Clone)]
pub(crate) struct World {
    pub code_mode: CodeMode,
    pub host: Host,
}

impl Parts {
    pub(crate) async fn open(self) -> World {
        let location = self.store.clone().map_or(Location::Memory, Location::File);
        let store = Store::open(&location, Keys::new(1, [self.key; 32])).await.unwrap();
        let store = store.bounded(Retention::DEFAULT, self.quotas);
        let pool = Pool::start(self.workers.options()).await.unwrap();
        if self.workers == Workers::Jailed {
            assert!(pool.workers().iter().all(|worker| worker.jail == Jail::Full), "{:?}", pool.workers());
        }
        let code_mode = CodeMode::new(pool, store).unwrap();
        World { code_mode, host: self.host() }
    }

    pub(crate) fn host(self) -> Host {
        let mut namespaces = Registry::default();
        for (plugin, registration) in self.namespaces {
            namespaces.register(plugin, registration).unwrap();
        }
        Host {
            config: AgentsConfig::resolve(&self.tools, &self.agents).unwrap(),
            sources: self.sources,
            local: LocalTools {
                hooks: self.hooks,
                namespaces,
                namespace_config: json!({"repository": "o/r"}),
                ..LocalTools::default()
            },
            approval_patterns: self.ask.into_iter().map(|text| Pattern::parse(text).unwrap()).collect(),
            runtime_available: true,
            surface: SurfaceOptions::default(),
        }
    }
}

/// Parses `agent/session/run` into a scope with a session key, a sender and a channel.
pub(crate) fn scope(text: &str) -> Scope {
    let mut parts = text.split('/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    let (agent_id, session_id) = (next(), next());
    Scope {
        session_key: Some(format!("agent:{agent_id}:{session_id}")),
        agent_id,
        session_id,
        agent_run_id: next(),
        sender: Some("ada".to_owned()),
        channel: Some("matrix".to_owned()),
        ..Scope::default()
    }
}

pub(crate) fn request(text: &str) -> RunRequest {
    RunRequest { scope: scope(text), tools: RequestedTools::All, ..RunRequest::default() }
}

impl World {
    pub(crate) fn run(&self) -> Run {
        self.run_as("main/session/run")
    }

    pub(crate) fn run_as(&self, scope: &str) -> Run {
        self.prepared(&request(scope))
    }

    pub(crate) fn prepared(&self, request: &RunRequest) -> Run {
        Run { code_mode: self.code_mode.clone(), prepared: prepare(&self.host, request).unwrap() }
    }

    pub(crate) fn store(&self) -> &Store {
        self.code_mode.store()
    }

    pub(crate) async fn pending(&self) -> Vec<Approval> {
        self.store().pending_approvals().await.unwrap()
    }

    /// Approves all pending calls and returns their number.
    pub(crate) async fn approve_all(&self, reach: ApprovalScope) -> usize {
        let pending = self.pending().await;
        for approval in &pending {
            let decision = Decision::Approve { edited_input: None, reach };
            self.code_mode.decide(&approval.approval_id, &decision, "ada").await.unwrap();
        }
        pending.len()
    }

    pub(crate) async fn export(&self, session: &str) -> Vec<Value> {
        let text = self.store().export(session).await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// An agent run, with the interface that the host offers to the model.
#[derive(Clone)]
pub(crate) struct Run {
    pub code_mode: CodeMode,
    pub prepared: PreparedRun,
}

impl Run {
    pub(crate) async fn exec(&self, code: &str) -> Value {
        self.exec_with("exec-1", json!({ "code": code })).await
    }

    pub(crate) async fn exec_with(&self, tool_call_id: &str, input: Value) -> Value {
        let (executor, config) = (&self.prepared.executor, &self.prepared.config.code_mode);
        json!(self.code_mode.exec(executor, config, tool_call_id, &input).await)
    }

    pub(crate) async fn wait(&self, run_id: &str) -> Value {
        self.wait_as("wait-1", run_id).await
    }

    pub(crate) async fn wait_as(&self, tool_call_id: &str, run_id: &str) -> Value {
        let (executor, config) = (&self.prepared.executor, &self.prepared.config.code_mode);
        json!(self.code_mode.wait_json(executor, config, tool_call_id, &json!({ "runId": run_id })).await)
    }

    /// Runs a cell that must suspend, and returns the id of its run and the result.
    pub(crate) async fn suspend(&self, code: &str) -> (RunId, Value) {
        let result = self.exec(code).await;
        assert_eq!(result["status"], "waiting", "{result}");
        (result["runId"].as_str().unwrap().into(), result)
    }

    /// Runs a cell until it has ended, and returns the result.
    pub(crate) async fn finish(&self, code: &str) -> Value {
        let mut result = self.exec(code).await;
        while result["status"] == "waiting" {
            result = self.wait(result["runId"].as_str().unwrap()).await;
        }
        result
    }

    /// Runs a cell that must complete, and returns its value.
    pub(crate) async fn value(&self, code: &str) -> Value {
        let mut result = self.exec(code).await;
        // On a busy machine a long cell can take more time than `exec` waits.
        while result["pendingToolCalls"].as_array().is_some_and(Vec::is_empty) && result["reason"] == "pending_tools" {
            result = self.wait(result["runId"].as_str().unwrap()).await;
        }
        assert_eq!(result["status"], "completed", "{result}");
        result["value"].clone()
    }
}

/// Returns the value of a result that must be completed.
pub(crate) fn value(result: &Value) -> &Value {
    assert_eq!(result["status"], "completed", "{result}");
    &result["value"]
}

/// Returns the error code of a result that must be failed; `none` if it has no code.
pub(crate) fn code(result: &Value) -> &str {
    assert_eq!(result["status"], "failed", "{result}");
    result["code"].as_str().unwrap_or("none")
}
