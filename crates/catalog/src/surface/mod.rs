//! The tools that the model is shown: decided once per run, and verified in the final payload.

mod choice;
mod direct;
mod size;
mod verify;
mod visible;

use contract::config::{CodeMode, ToolSearch, ToolSearchMode, ToolsConfig};
use contract::error::ErrorCode;
use contract::limits::{MAX_DIRECT_BYTES, MAX_DIRECT_TOOLS};
use contract::tool::ToolSpec;

use crate::prompt::{Channel, ExecHold, McpChannel};
use crate::{Catalog, is_control_tool};

use choice::{CatalogSize, SurfaceKind, decide};
pub use choice::{ChosenBy, EntryPoint, SurfaceChoice, SurfaceOptions};
pub use direct::DirectTools;
pub use size::SurfaceReport;
pub(crate) use size::direct_bytes;
pub use verify::SurfaceViolation;
pub use visible::VisibleTool;

#[derive(Clone, Debug, PartialEq)]
pub enum Surface {
    /// The run has no tools, so there is nothing to hide.
    None,
    /// Every tool directly.
    Direct(DirectTools),
    ToolSearchCode,
    ToolSearchTools(Origin),
    CodeMode,
}

/// A surface, and why it was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenSurface {
    pub surface: Surface,
    pub by: ChosenBy,
}

/// The reason why Tool Search shows three tools instead of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Configured,
    /// `code` is configured, but no runtime is available.
    NoRuntime,
}

/// What a choice depends on besides the configuration and the tools.
#[derive(Clone, Copy, Debug)]
pub struct SurfaceConditions<'a> {
    pub options: &'a SurfaceOptions,
    pub runtime_available: bool,
    /// Whether the policy has an allow list that is explicitly empty, or the request wants no tools.
    pub allows_nothing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurfaceError {
    /// Code mode promises never to show all tools instead.
    #[error("code mode is enabled but its runtime is not available; start a worker or disable `tools.codeMode`")]
    RuntimeUnavailable,
    /// A client and its model could not use so many tools.
    #[error(
        "{tools} tools with {bytes} bytes of definitions are too many to show directly: the limits are \
         {MAX_DIRECT_TOOLS} tools and {MAX_DIRECT_BYTES} bytes. Use code mode or Tool Search (`--surface code` or \
         `--surface search`), or allow fewer tools"
    )]
    TooManyDirectTools { tools: usize, bytes: usize },
}

impl SurfaceError {
    pub fn code(self) -> ErrorCode {
        match self {
            Self::RuntimeUnavailable => ErrorCode::RuntimeUnavailable,
            Self::TooManyDirectTools { .. } => ErrorCode::InvalidConfig,
        }
    }
}

impl Surface {
    /// Chooses the surface for the tools that policy allows.
    pub fn choose(
        config: &ToolsConfig,
        mut tools: Vec<ToolSpec>,
        conditions: &SurfaceConditions<'_>,
    ) -> Result<ChosenSurface, SurfaceError> {
        let SurfaceConditions { options, runtime_available, allows_nothing } = *conditions;
        tools.retain(|tool| !is_control_tool(tool));
        let direct = DirectTools::new(tools, options.prefix_bytes);
        // Only `auto` depends on the size of the definitions, which takes time to count.
        let bytes = if options.wanted == Some(SurfaceChoice::Auto) { size::bytes_of(&direct) } else { 0 };
        let size = CatalogSize { tools: direct.len(), bytes, is_closed: allows_nothing };
        let (kind, by) = decide(config, options, size);
        let surface = match (kind, config.tool_search.mode, runtime_available) {
            (SurfaceKind::None, _, _) => Self::None,
            (SurfaceKind::Direct, _, _) => Self::Direct(direct),
            (SurfaceKind::Code, _, true) => Self::CodeMode,
            (SurfaceKind::Code, _, false) => return Err(SurfaceError::RuntimeUnavailable),
            (SurfaceKind::Search, ToolSearchMode::Code, true) => Self::ToolSearchCode,
            (SurfaceKind::Search, ToolSearchMode::Code, false) => Self::ToolSearchTools(Origin::NoRuntime),
            (SurfaceKind::Search, ToolSearchMode::Tools, _) => Self::ToolSearchTools(Origin::Configured),
        };
        Ok(ChosenSurface { surface, by })
    }

    /// Returns whether an entry point with these options may show code mode, so that it needs a runtime to start.
    pub fn may_be_code_mode(config: &ToolsConfig, options: &SurfaceOptions) -> bool {
        let some_tools = CatalogSize { tools: usize::MAX, bytes: usize::MAX, is_closed: false };
        decide(config, options, some_tools).0 == SurfaceKind::Code
    }

    /// Returns the name of the surface, for logs and telemetry.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Direct(_) => "direct",
            Self::ToolSearchCode => "search-code",
            Self::ToolSearchTools(_) => "search-tools",
            Self::CodeMode => "code",
        }
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
            Self::Direct(tools) => tools.iter().map(|(name, _)| name.to_owned()).collect(),
            Self::ToolSearchCode => fixed(&["tool_search_code"]),
            Self::ToolSearchTools(_) => fixed(&["tool_search", "tool_describe", "tool_call"]),
            Self::CodeMode => fixed(&["exec", "wait"]),
        }
    }

    /// Returns the tools as the model sees them, in the order of [`Self::names`]. `catalog` is the run's.
    pub fn visible_tools(&self, config: &ToolsConfig, catalog: &Catalog, hold: ExecHold) -> Vec<VisibleTool> {
        match self {
            Self::None => Vec::new(),
            Self::Direct(tools) => visible::direct(tools),
            Self::ToolSearchCode => tool_search_tools(ToolSearchMode::Code, &config.tool_search, catalog, ""),
            Self::ToolSearchTools(_) => tool_search_tools(ToolSearchMode::Tools, &config.tool_search, catalog, ""),
            Self::CodeMode => code_mode_tools(&config.code_mode, catalog, Channel::Contract(hold)),
        }
    }

    /// Returns the tool that the model called by this name, if tools are shown directly.
    pub fn direct_tool(&self, name: &str) -> Option<&ToolSpec> {
        let Self::Direct(tools) = self else { return None };
        tools.get(name)
    }

    /// Verifies the payload that is about to be sent: it must contain exactly these tools, each once.
    pub fn verify(&self, names: &[&str]) -> Result<(), SurfaceViolation> {
        verify::verify(&self.names(), names)
    }

    /// Verifies one page of a payload that is sent in several: it must contain exactly the `expected` tools from `start`
    /// on, each once.
    pub fn verify_page(&self, start: usize, expected: usize, names: &[&str]) -> Result<(), SurfaceViolation> {
        let page: Vec<String> = self.names().into_iter().skip(start).take(expected).collect();
        verify::verify(&page, names)
    }
}

/// Returns `exec` and `wait` as clients of the MCP server see them. Their names are those of the contract.
pub fn mcp_tools(config: &CodeMode, catalog: &Catalog, channel: McpChannel<'_>) -> Vec<VisibleTool> {
    code_mode_tools(config, catalog, Channel::Mcp(channel))
}

fn code_mode_tools(config: &CodeMode, catalog: &Catalog, channel: Channel<'_>) -> Vec<VisibleTool> {
    vec![visible::exec(config, catalog, channel), visible::wait(config, channel)]
}

/// Returns the tools of Tool Search in the given mode. Their names are those of the contract; the descriptions name them
/// with this prefix.
pub fn tool_search_tools(
    mode: ToolSearchMode,
    config: &ToolSearch,
    catalog: &Catalog,
    prefix: &str,
) -> Vec<VisibleTool> {
    match mode {
        ToolSearchMode::Code => vec![visible::tool_search_code(config, catalog)],
        ToolSearchMode::Tools => visible::tool_search(config, catalog, prefix),
    }
}

#[cfg(test)]
mod tests;
