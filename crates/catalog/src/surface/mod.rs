//! The tools that the model is shown: decided once per run, and verified in the final payload.

mod direct;
mod size;
mod verify;
mod visible;

use contract::config::{CodeMode, ToolSearch, ToolSearchMode, ToolsConfig};
use contract::error::ErrorCode;
use contract::tool::ToolSpec;

use crate::prompt::{Channel, McpChannel};
use crate::{Catalog, is_control_tool};

pub(crate) use size::direct_bytes;
pub use verify::SurfaceViolation;
pub use visible::VisibleTool;

#[derive(Clone, Debug, PartialEq)]
pub enum Surface {
    /// The run has no tools, so there is nothing to hide.
    None,
    /// Every tool directly.
    Direct(Vec<ToolSpec>),
    ToolSearchCode,
    ToolSearchTools(Origin),
    CodeMode,
}

/// The reason why Tool Search shows three tools instead of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Configured,
    /// `code` is configured, but no runtime is available.
    NoRuntime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurfaceError {
    /// Code mode promises never to show all tools instead.
    #[error("code mode is enabled but its runtime is not available; start a worker or disable `tools.codeMode`")]
    RuntimeUnavailable,
}

impl SurfaceError {
    pub fn code(self) -> ErrorCode {
        match self {
            Self::RuntimeUnavailable => ErrorCode::RuntimeUnavailable,
        }
    }
}

impl Surface {
    /// Chooses the surface for the tools that policy allows.
    pub fn choose(
        config: &ToolsConfig,
        mut tools: Vec<ToolSpec>,
        runtime_available: bool,
    ) -> Result<Self, SurfaceError> {
        tools.retain(|tool| !is_control_tool(tool));
        if tools.is_empty() {
            return Ok(Self::None);
        }
        if config.code_mode.enabled {
            return if runtime_available { Ok(Self::CodeMode) } else { Err(SurfaceError::RuntimeUnavailable) };
        }
        if !config.tool_search.enabled {
            return Ok(Self::Direct(direct::sorted(tools)));
        }
        Ok(match (config.tool_search.mode, runtime_available) {
            (ToolSearchMode::Code, true) => Self::ToolSearchCode,
            (ToolSearchMode::Code, false) => Self::ToolSearchTools(Origin::NoRuntime),
            (ToolSearchMode::Tools, _) => Self::ToolSearchTools(Origin::Configured),
        })
    }

    /// Returns a note for the operator, if the surface differs from the configured one.
    pub fn note(&self) -> Option<&'static str> {
        match self {
            Self::ToolSearchTools(Origin::NoRuntime) => Some(
                "tools.toolSearch.mode is `code`, but no runtime is available; the run has tool_search, \
                 tool_describe and tool_call instead",
            ),
            Self::None
            | Self::Direct(_)
            | Self::ToolSearchCode
            | Self::ToolSearchTools(Origin::Configured)
            | Self::CodeMode => None,
        }
    }

    /// Returns the names that the model sees, each once.
    pub fn names(&self) -> Vec<String> {
        let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Self::None => Vec::new(),
            Self::Direct(tools) => direct::names(tools),
            Self::ToolSearchCode => fixed(&["tool_search_code"]),
            Self::ToolSearchTools(_) => fixed(&["tool_search", "tool_describe", "tool_call"]),
            Self::CodeMode => fixed(&["exec", "wait"]),
        }
    }

    /// Returns the tools as the model sees them, in the order of [`Self::names`]. `catalog` is the run's.
    pub fn visible_tools(&self, config: &ToolsConfig, catalog: &Catalog) -> Vec<VisibleTool> {
        match self {
            Self::None => Vec::new(),
            Self::Direct(tools) => visible::direct(tools, self.names()),
            Self::ToolSearchCode => tool_search_tools(ToolSearchMode::Code, &config.tool_search, catalog),
            Self::ToolSearchTools(_) => tool_search_tools(ToolSearchMode::Tools, &config.tool_search, catalog),
            Self::CodeMode => code_mode_tools(&config.code_mode, catalog, Channel::Contract),
        }
    }

    /// Returns the tool that the model called by this name, if tools are shown directly.
    pub fn direct_tool(&self, name: &str) -> Option<&ToolSpec> {
        let Self::Direct(tools) = self else { return None };
        let position = direct::names(tools).iter().position(|shown| shown == name)?;
        tools.get(position)
    }

    /// Verifies the payload that is about to be sent: it must contain exactly these tools, each once.
    pub fn verify(&self, names: &[&str]) -> Result<(), SurfaceViolation> {
        verify::verify(&self.names(), names)
    }
}

/// Returns `exec` and `wait` as clients of the MCP server see them. Their names are those of the contract.
pub fn mcp_tools(config: &CodeMode, catalog: &Catalog, channel: McpChannel<'_>) -> Vec<VisibleTool> {
    code_mode_tools(config, catalog, Channel::Mcp(channel))
}

fn code_mode_tools(config: &CodeMode, catalog: &Catalog, channel: Channel<'_>) -> Vec<VisibleTool> {
    vec![visible::exec(config, catalog, channel), visible::wait(config, channel)]
}

/// Returns the tools of Tool Search in the given mode.
pub fn tool_search_tools(mode: ToolSearchMode, config: &ToolSearch, catalog: &Catalog) -> Vec<VisibleTool> {
    match mode {
        ToolSearchMode::Code => vec![visible::tool_search_code(config, catalog)],
        ToolSearchMode::Tools => visible::tool_search(config, catalog),
    }
}

#[cfg(test)]
mod tests;
