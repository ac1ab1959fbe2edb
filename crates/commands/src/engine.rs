//! What runs cells and tool calls, put together in one way for every command: the configured servers, the policy, the
//! approvals and the store.

use std::sync::Arc;
use std::time::Duration;

use catalog::SurfaceOptions;
use client_config::{LoadedConfig, TOOL_LISTS};
use codemode::CodeMode;
use codemode::pool::Pool;
use contract::config;
use contract::scope::Scope;
use executor::run::{Host, LocalTools, PrepareError, PreparedRun, RunRequest, prepare};
use executor::{Executor, ToolSource};
use mcp::server::ApprovalHook;
use store::Store;

use crate::approvals::UntrustedServers;
use crate::approver::Approver;
use crate::local_tools::Local;
use crate::policy::CallPolicy;
use crate::render;
use crate::state::State;
use crate::turns::Turns;
use crate::upstream::Servers;

/// How long a run waits for plugins to create the scopes of their namespaces.
pub(crate) const MAX_NAMESPACE_WAIT: Duration = Duration::from_secs(5);

/// The runs of this process, with the configured servers. No server is started on creation.
pub(crate) struct Engine {
    pub(crate) code_mode: CodeMode,
    pub(crate) servers: Servers,
    /// Core tools and plugins.
    pub(crate) local: Local,
    /// Explains to users why calls ask for approval.
    pub(crate) untrusted: UntrustedServers,
}

impl Engine {
    /// Runs cells in the pool and keeps their runs in the store. A server's process that has no calls for `idle_stop`
    /// is stopped.
    pub(crate) fn new(
        pool: Pool,
        store: Store,
        loaded: &LoadedConfig,
        local: Local,
        state: &State,
        idle_stop: Option<Duration>,
    ) -> Result<Self, getrandom::Error> {
        let servers = Servers::new(loaded, state.path(TOOL_LISTS), idle_stop);
        let untrusted = UntrustedServers::of(&loaded.servers);
        Ok(Self { code_mode: CodeMode::new(pool, store)?, servers, local, untrusted })
    }

    /// Returns what makes the tool calls of a run in this scope. Servers whose tools are not known yet are started, and
    /// those that cannot be are reported. Those that the source of the cell names are waited for longer.
    pub(crate) async fn executor(
        &self,
        policy: &CallPolicy,
        scope: Scope,
        cell: Option<&str>,
    ) -> Result<Executor, PrepareError> {
        self.servers.wait_for_lists(cell).await;
        self.local.tools.make_ready(&scope, MAX_NAMESPACE_WAIT).await;
        self.executor_with_known_tools(policy, scope)
    }

    /// Returns what makes the tool calls of a run in this scope, with the tools that are known without starting a
    /// server.
    pub(crate) fn executor_with_known_tools(
        &self,
        policy: &CallPolicy,
        scope: Scope,
    ) -> Result<Executor, PrepareError> {
        Ok(prepare_run(policy, self.local.tools.clone(), self.servers.sources(), scope)?.0.executor)
    }

    /// Returns what runs the turns of one cell for a command.
    pub(crate) fn turns<'a>(
        &'a self,
        executor: &'a Executor,
        config: &'a config::CodeMode,
        command: &'static str,
    ) -> Turns<'a> {
        let (code_mode, untrusted) = (&self.code_mode, &self.untrusted);
        Turns { code_mode, executor, config, command, approver: Approver::present(), untrusted }
    }

    /// Releases the runs of this process, so that another one can resume them at once, and stops servers and plugins.
    pub(crate) async fn shut_down(&self) {
        if let Err(error) = self.code_mode.shut_down().await {
            render::note(&format!(
                "cellmate: cannot release the run, so its lease expires in a few seconds instead: {error}"
            ));
        }
        self.servers.finish_downloads().await;
        tokio::join!(self.servers.stop(), self.local.plugins.stop());
    }
}

/// Prepares a run with the local tools and the tools of these servers, as policy allows them. Its calls ask for approval as the policy
/// says; the returned hook knows which ones.
pub(crate) fn prepare_run(
    policy: &CallPolicy,
    local: LocalTools,
    sources: Vec<Arc<dyn ToolSource>>,
    scope: Scope,
) -> Result<(PreparedRun, ApprovalHook), PrepareError> {
    prepare_run_for(policy, local, sources, scope, SurfaceOptions::default())
}

/// Prepares a run whose tools are shown with these options.
pub(crate) fn prepare_run_for(
    policy: &CallPolicy,
    local: LocalTools,
    sources: Vec<Arc<dyn ToolSource>>,
    scope: Scope,
    surface: SurfaceOptions,
) -> Result<(PreparedRun, ApprovalHook), PrepareError> {
    // Plugins' hooks may change the input, so they run before a person is asked about it.
    let mut hooks = local.hooks.clone();
    let host = Host { local, surface, ..Host::new(policy.config.clone(), sources) };
    let scope = Scope { sandboxed: scope.sandboxed || policy.sandboxed, ..scope };
    let provider = policy.provider.clone();
    let run = prepare(&host, &RunRequest { scope, provider, ..RunRequest::default() })?;
    let asked = policy.asking.hook_for(&policy.pass, run.executor.catalog().tools());
    hooks.push(Arc::new(asked.clone()));
    // No model is shown the tools of this run.
    let executor = run.executor.with_hooks(hooks).with_visible_tools([]);
    Ok((PreparedRun { executor, ..run }, asked))
}

/// Returns the scope of the runs that a user starts on the command line for an agent. They share the agent's policy and
/// standing approvals, but its MCP clients do not see them.
pub(crate) fn command_line_scope(agent: &str) -> Scope {
    Scope { agent_id: agent.to_owned(), session_id: format!("cli:{agent}"), ..Scope::default() }
}

/// Returns the code mode settings of an agent. A command that runs cells does so even if the agent's clients may not.
pub(crate) fn code_mode_config(policy: &CallPolicy, agent: &str) -> config::CodeMode {
    config::CodeMode { enabled: true, ..policy.config.tools(agent).code_mode.clone() }
}
