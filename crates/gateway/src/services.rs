//! The services and settings that every turn of a process shares: the runs, the tools that are offered, and the models.

use std::sync::Arc;

use catalog::SurfaceChoice;
use codemode::CodeMode;
use contract::config::GatewayConfig;
use executor::clock::now_ms;
use mcp::server::{CallPolicy, OfferedSources};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::provider::Providers;

/// The settings of a gateway. The tool sources that it is offered may replace the policy later.
#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: CallPolicy,
    pub gateway: GatewayConfig,
    /// The surface that the operator asks for, instead of the configured one.
    pub surface: Option<SurfaceChoice>,
    /// Whether the agents' own tools run in a sandbox, for which policy has separate lists.
    pub sandboxed: bool,
    /// Whether this process can run cells.
    pub runtime_available: bool,
}

/// The services that turns use.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) code_mode: CodeMode,
    pub(crate) settings: Settings,
    pub(crate) offered: watch::Receiver<OfferedSources>,
    pub(crate) providers: Providers,
    pub(crate) shutdown: CancellationToken,
    /// Admits ended turns whose calls are continued when people have decided.
    pub(crate) followed: Semaphore,
}

impl Services {
    /// Returns the policy for new steps of turns, which may have changed since the start.
    pub(crate) fn policy(&self) -> Arc<CallPolicy> {
        let offered = self.offered.borrow();
        offered.policy.clone().unwrap_or_else(|| Arc::new(self.settings.policy.clone()))
    }

    /// Returns the time until which a client may send the result of a call that it is asked for now.
    pub(crate) fn client_deadline(&self) -> store::Millis {
        let seconds = i64::try_from(self.settings.gateway.client_tool_ttl_seconds).unwrap_or(i64::MAX);
        now_ms().saturating_add(seconds.saturating_mul(1_000))
    }
}
