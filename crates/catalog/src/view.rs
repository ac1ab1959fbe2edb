//! Which tools of a catalog can be named by id, and by whom.

use contract::tool::{Source, ToolSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// `tools.*` in cells of code mode: MCP tools are in `MCP`, and only there.
    CodeMode,
    /// `openclaw.tools.*` and the structured tools of Tool Search: all there are.
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
