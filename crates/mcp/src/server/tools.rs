//! The two tools `exec` and `wait` as clients list them. Equal catalogs and limits give equal bytes.

use catalog::prompt::McpChannel;
use catalog::{Catalog, VisibleTool};
use contract::config::CodeMode;
use serde_json::{Value, json};

/// The size of a result beyond the cell's own value and output: pending calls, approvals.
const AROUND_A_RESULT: u64 = 32 << 10;

/// Tool names are `[A-Za-z0-9_.-]`; providers allow 64 characters, and clients add their own prefix before this one.
const MAX_PREFIX_BYTES: usize = 24;

/// The prefix of the tool names `exec` and `wait`, for clients in which `exec` already names another tool.
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

/// Returns the tool list as protocol JSON. An `exec` waits `hold_ms` for pending calls.
pub(crate) fn listed(catalog: &Catalog, config: &CodeMode, hold_ms: u64, prefix: &ToolPrefix) -> Vec<Value> {
    let (exec, wait) = (prefix.name(Tool::Exec), prefix.name(Tool::Wait));
    let shown = catalog::mcp_tools(config, catalog, McpChannel { exec: &exec, wait: &wait, hold_ms });
    let find = |tool: Tool| shown.iter().find(|shown| shown.name == tool.as_str());
    let mut tools = Vec::new();
    for tool in [Tool::Exec, Tool::Wait] {
        if let Some(shown) = find(tool) {
            tools.push(one(tool, shown, config, prefix));
        }
    }
    tools
}

fn one(tool: Tool, shown: &VisibleTool, config: &CodeMode, prefix: &ToolPrefix) -> Value {
    let title = match tool {
        Tool::Exec => "Run a cell",
        Tool::Wait => "Wait for a cell",
    };
    json!({
        "name": prefix.name(tool),
        "title": title,
        "description": shown.description,
        "inputSchema": shown.parameters,
        "outputSchema": output(tool),
        // The effects depend on the tools that a cell calls; these hints describe the worst case.
        "annotations": {
            "title": title,
            "readOnlyHint": false,
            "destructiveHint": true,
            "idempotentHint": false,
            "openWorldHint": true,
        },
        // Claude Code hides tools behind its tool search unless `alwaysLoad` is set, and cuts long results.
        "_meta": {
            "anthropic/alwaysLoad": true,
            "anthropic/maxResultSizeChars": config.limits.output_bytes.saturating_add(AROUND_A_RESULT),
        },
    })
}

/// Returns one flat schema for all results, because not every client that generates types from it supports unions.
fn output(tool: Tool) -> Value {
    let mut statuses = vec!["completed", "waiting", "failed"];
    let text = json!({"type": "string"});
    let objects = json!({"type": "array", "items": {"type": "object"}});
    let mut properties = json!({
        "status": {"type": "string"},
        "value": {"description": "The value that a completed cell returned."},
        "runId": text,
        "reason": text,
        "yieldReason": text,
        "pendingToolCalls": objects,
        "error": text,
        "code": text,
        "output": objects,
        "message": text,
        "approvals": objects,
    });
    if tool == Tool::Wait {
        statuses.push("listed");
        if let Some(fields) = properties.as_object_mut() {
            fields.insert("runs".to_owned(), objects);
        }
    }
    if let Some(status) = properties.pointer_mut("/status").and_then(Value::as_object_mut) {
        status.insert("enum".to_owned(), json!(statuses));
    }
    json!({"type": "object", "properties": properties, "required": ["status"]})
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
