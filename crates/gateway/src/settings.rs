//! The settings that a gateway is started with.

use catalog::SurfaceChoice;
use contract::config::GatewayConfig;
use mcp::server::CallPolicy;

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
