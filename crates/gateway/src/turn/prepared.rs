//! What a turn needs besides its record: the agent's model, the tools that the model sees, and what makes its calls.

use std::sync::Arc;
use std::time::Duration;

use catalog::policy::Provider as PolicyProvider;
use catalog::{ChosenBy, ExecHold, Surface, SurfaceChoice, SurfaceOptions};
use contract::config::{self, ToolsConfig};
use contract::scope::Scope;
use executor::run::{Host, PrepareError, RunRequest, prepare};
use executor::{Executor, Hook, ToolSource};
use mcp::server::OfferedSources;
use serde_json::value::to_raw_value;
use wire::conversation::ModelTool;

use super::record::TurnRequest;
use crate::client_tools::{ClientTools, ClientToolsError, DEFAULT_APP};
use crate::services::Settings;

/// How long an `exec` waits for the calls of its cell, as its description says.
pub(super) const EXEC_HOLD: ExecHold = ExecHold::MaxWait;

/// Why a turn cannot be started or continued.
#[derive(Debug, thiserror::Error)]
pub enum PreparationError {
    #[error(transparent)]
    Tools(#[from] ClientToolsError),
    #[error(transparent)]
    Run(#[from] PrepareError),
    #[error("the configuration cannot be used: {0}")]
    InvalidConfig(Arc<str>),
    #[error("the definition of tool `{0}` cannot be written: {1}")]
    Definition(String, serde_json::Error),
}

/// The tools of a turn and what makes their calls.
#[derive(Debug)]
pub struct PreparedTurn {
    pub surface: Surface,
    /// The tools as the model receives them. The same tools always give the same bytes.
    pub tools: Vec<ModelTool>,
    pub executor: Executor,
    pub config: ToolsConfig,
}

impl PreparedTurn {
    /// Prepares the tools that are offered now, with those of the client, as policy allows them.
    pub fn new(
        settings: &Settings,
        offered: &OfferedSources,
        scope: Scope,
        request: &TurnRequest,
        provider: PolicyProvider,
    ) -> Result<Self, PreparationError> {
        if let Some(why) = &offered.invalid {
            return Err(PreparationError::InvalidConfig(Arc::clone(why)));
        }
        let policy = offered.policy.as_deref().unwrap_or(&settings.policy);
        let client_tools: Vec<Arc<dyn ToolSource>> = if request.tools.is_empty() {
            Vec::new()
        } else {
            vec![Arc::new(ClientTools::new(DEFAULT_APP, &request.tools)?)]
        };
        let scope = Scope { sandboxed: scope.sandboxed || settings.sandboxed, ..scope };
        let mut run_request = RunRequest { scope, provider, client_tools, ..RunRequest::default() };
        let mut host = Host {
            local: offered.local.clone(),
            runtime_available: settings.runtime_available,
            surface: SurfaceOptions { wanted: settings.surface, exec_hold: EXEC_HOLD, ..SurfaceOptions::default() },
            ..Host::new(policy.config.clone(), offered.sources.clone())
        };
        let mut run = prepare(&host, &run_request)?;
        if run.chosen_by == ChosenBy::Default {
            // Without a setting, a large catalog is not shown to the model as it is.
            host.surface.wanted = Some(SurfaceChoice::Auto);
            run = prepare(&host, &run_request)?;
        }
        if run.surface == Surface::ToolSearchCode && !request.tools.is_empty() {
            // The contract ends such a program after a time, and there is no `wait` for it.
            let tools = ClientTools::new(DEFAULT_APP, &request.tools)?.unreachable();
            run_request.client_tools = vec![Arc::new(tools)];
            run = prepare(&host, &run_request)?;
        }
        let approvals = policy.approval_policy.hook_for(&policy.exempt, run.executor.catalog().tools());
        // Plugins' hooks may change the input, so they run before a person is asked about it.
        let mut hooks: Vec<Arc<dyn Hook>> = offered.local.hooks.clone();
        hooks.push(Arc::new(approvals));
        let tool = |shown: catalog::VisibleTool| {
            let parameters = to_raw_value(&shown.parameters);
            let parameters = parameters.map_err(|error| PreparationError::Definition(shown.name.clone(), error))?;
            Ok::<_, PreparationError>(ModelTool { name: shown.name, description: shown.description, parameters })
        };
        let tools = run.visible.into_iter().map(tool).collect::<Result<_, _>>()?;
        let wait = Duration::from_millis(settings.gateway.client_tool_wait_ms);
        let executor = run.executor.with_hooks(hooks).with_client_wait(wait);
        Ok(Self { surface: run.surface, tools, executor, config: run.config })
    }

    /// Returns the settings of cells in this turn.
    pub fn code_mode(&self) -> &config::CodeMode {
        &self.config.code_mode
    }
}
