//! The prefix of the tool names `exec` and `wait`, for clients in which `exec` already names another tool.

/// Tool names are `[A-Za-z0-9_.-]`; providers allow 64 characters, and clients add their own prefix before this one.
const MAX_PREFIX_BYTES: usize = 24;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPrefix(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool prefix has at most {MAX_PREFIX_BYTES} letters, digits, `-`, `_` or `.`")]
pub struct BadPrefix;

/// The two tools that the server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Exec,
    Wait,
}

impl ToolPrefix {
    pub fn parse(text: &str) -> Result<Self, BadPrefix> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.len() > MAX_PREFIX_BYTES || !text.chars().all(plain) {
            return Err(BadPrefix);
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn name(&self, tool: Tool) -> String {
        format!("{}{}", self.0, tool.as_str())
    }

    pub(crate) fn tool(&self, name: &str) -> Option<Tool> {
        [Tool::Exec, Tool::Wait].into_iter().find(|tool| name.strip_prefix(self.0.as_str()) == Some(tool.as_str()))
    }
}

impl Tool {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Wait => "wait",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadPrefix, Tool, ToolPrefix};

    #[test]
    fn a_tool_is_found_under_its_prefix_only() {
        let prefix = ToolPrefix::parse("cell_").unwrap();
        assert_eq!(prefix.tool("cell_exec"), Some(Tool::Exec));
        assert_eq!(prefix.tool(&prefix.name(Tool::Wait)), Some(Tool::Wait));
        for name in ["exec", "cell_", "cell_cell_exec", "cell_execs", ""] {
            assert_eq!(prefix.tool(name), None, "{name}");
        }
        assert_eq!(ToolPrefix::default().tool("wait"), Some(Tool::Wait));
        assert_eq!(ToolPrefix::parse("a b"), Err(BadPrefix));
    }
}
