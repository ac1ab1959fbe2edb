//! A host configured like in production: jailed workers, a store on disk, policy, hooks, approvals, an MCP server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catalog::{Registration, Registry, ScopeMaker, ScopeValue, SurfaceOptions};
use codemode::CodeMode;
use codemode::pool::{Launch, Pool, PoolOptions};
use contract::config::pattern::Pattern;
use contract::config::{self, AgentsConfig};
use contract::limits::TIMEOUT_MS;
use contract::scope::Scope;
use executor::run::{Host, LocalTools, RunRequest, prepare};
use executor::{Executor, Hook, HookAnswer, HookFuture, ToolEvent, ToolSource};
use mcp::{Limits, Server, ServerSpec, Transport};
use serde_json::{Map, Value, json};
use store::{Keys, Location, Store};

use super::fixture::{APPROVE, Effects, FORBIDDEN, Fixture, HOOK_BLOCKED};
use super::{Result, effects_file, mcp_server};

/// Two, so that other runs have a worker if a cell crashes its own.
pub(super) const WORKERS: usize = 2;

#[derive(Debug)]
pub(super) struct Lab {
    pub code_mode: CodeMode,
    state: PathBuf,
    server: Arc<Server>,
    namespaces: Registry,
    defaults: Map<String, Value>,
}

/// How often free memory is returned to the system, as `cellmate mcp` does.
const RELEASE_EVERY: Duration = Duration::from_secs(5);

async fn release_memory() {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        // The task ends with the runtime; a cancelled release is harmless.
        drop(tokio::task::spawn_blocking(sandbox::release_free_memory).await);
    }
}

/// A session that is ready to run its cell.
#[derive(Debug)]
pub(super) struct PreparedSession {
    pub session: String,
    pub executor: Executor,
    pub config: config::CodeMode,
    pub effects: Arc<Effects>,
}

impl Lab {
    pub(super) async fn start(state: &Path, defaults: Map<String, Value>) -> Result<Self> {
        let store = Store::open(&Location::File(database(state)), Keys::ephemeral()?).await?;
        let options = PoolOptions { workers: WORKERS, ..PoolOptions::new(Launch::ThisProgram) };
        let code_mode = CodeMode::new(Pool::start(options).await?, store)?;
        tokio::spawn(release_memory());
        let server = Server::connect(fixture_server()?).await?;
        let mut namespaces = Registry::default();
        namespaces.register("issues", issues())?;
        Ok(Self { code_mode, state: state.to_owned(), server, namespaces, defaults })
    }

    /// Prepares a session with separate effect counters and with `overrides` applied to the default configuration, whose
    /// time limit is multiplied by `time_factor`.
    pub(super) fn prepare(
        &self,
        session: &str,
        overrides: &Map<String, Value>,
        time_factor: u32,
    ) -> Result<PreparedSession> {
        let effects = Arc::new(Effects::open(&effects_file(&self.state, session))?);
        let mut code_mode = self.defaults.clone();
        code_mode.extend(overrides.clone());
        if let Some(timeout) = code_mode.get_mut("timeoutMs") {
            *timeout = json!(TIMEOUT_MS.clamp(timeout.as_u64().unwrap_or_default() * u64::from(time_factor)));
        }
        code_mode.insert("enabled".to_owned(), Value::Bool(true));
        let tools = json!({"codeMode": code_mode, "deny": [FORBIDDEN]});
        let host = Host {
            config: AgentsConfig::resolve(&tools, &Value::Null).map_err(|errors| format!("{errors:?}"))?,
            sources: vec![
                Arc::new(Fixture { effects: Arc::clone(&effects) }),
                Arc::clone(&self.server) as Arc<dyn ToolSource>,
            ],
            local: LocalTools {
                hooks: vec![Arc::new(Blocker)],
                namespaces: self.namespaces.clone(),
                ..LocalTools::default()
            },
            approval_patterns: vec![Pattern::parse(APPROVE).map_err(|error| format!("{error:?}"))?],
            runtime_available: true,
            surface: SurfaceOptions::default(),
        };
        let scope = Scope {
            agent_id: "main".to_owned(),
            session_id: session.to_owned(),
            agent_run_id: format!("{session}-run"),
            ..Scope::default()
        };
        let run = prepare(&host, &RunRequest { scope, ..RunRequest::default() })?;
        if let Some(refused) = run.refused_namespaces.first() {
            return Err(format!("a namespace was refused: {refused}").into());
        }
        Ok(PreparedSession {
            session: session.to_owned(),
            executor: run.executor,
            config: run.config.code_mode,
            effects,
        })
    }

    /// Ends the runs that a cell left behind.
    pub(super) async fn end(&self, prepared: &PreparedSession) {
        self.code_mode.end_session(&prepared.session).await;
    }
}

#[derive(Debug)]
struct Blocker;

impl Hook for Blocker {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, std::result::Result<HookAnswer, String>> {
        let block = (event.tool_id.as_deref() == Some(HOOK_BLOCKED)).then(|| "not here".to_owned());
        Box::pin(async { Ok(HookAnswer { block, ..HookAnswer::default() }) })
    }
}

fn issues() -> Registration {
    Registration {
        id: "issues".to_owned(),
        global_name: "Issues".to_owned(),
        description: "Issues of the fixture.".to_owned(),
        prompt: None,
        required_tool_names: vec!["list_issues".to_owned()],
        scope: ScopeMaker::fixed(ScopeValue::object([("list", ScopeValue::tool("list_issues"))])),
    }
}

/// Returns the path of the store's file.
pub(super) fn database(state: &Path) -> PathBuf {
    state.join("store.db")
}

/// Describes the MCP server, which is this program with [`mcp_server::ARGUMENT`].
fn fixture_server() -> std::io::Result<ServerSpec> {
    Ok(ServerSpec {
        name: "fixture".to_owned(),
        transport: Transport::Stdio {
            command: std::env::current_exe()?.display().to_string(),
            args: vec![mcp_server::ARGUMENT.to_owned()],
            env: BTreeMap::new(),
            cwd: None,
        },
        trusted: false,
        limits: Limits::DEFAULT,
    })
}
