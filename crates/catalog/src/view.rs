//! Which tools of a catalog a caller can address by id.

use contract::tool::{Source, ToolSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// `tools.*` in cells of code mode: all tools except those of MCP servers, which are only in `MCP`.
    CodeMode,
    /// `openclaw.tools.*` and the structured tools of Tool Search: all tools.
    ToolSearch,
}

impl View {
    pub const ALL: [Self; 2] = [Self::CodeMode, Self::ToolSearch];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::CodeMode => "code_mode",
            Self::ToolSearch => "tool_search",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.as_str() == text)
    }

    pub(crate) fn shows(self, tool: &ToolSpec) -> bool {
        match self {
            Self::CodeMode => tool.id.source() != Source::Mcp,
            Self::ToolSearch => true,
        }
    }
}
