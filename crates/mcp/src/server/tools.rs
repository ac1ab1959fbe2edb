//! The two tools `exec` and `wait` as clients list them. Equal catalogs and limits give equal bytes.

use catalog::VisibleTool;
use contract::config::CodeMode;
use serde_json::{Value, json};

/// The size of a result beyond the cell's own value and output: telemetry, pending calls, approvals.
const AROUND_A_RESULT: u64 = 32 << 10;

/// Added to the description of `wait`: over MCP a `runId` can be lost with the connection.
const WITHOUT_RUN_ID: &str = "\n\nOmit `runId` if a result was lost (timeout, broken connection): if one cell is live \
    or has finished recently, `wait` waits for it; if several, it lists them, newest first, with their `runId`s and \
    the start of their code. Check here before you run a cell again: it may already have taken effect.";

/// Added to both descriptions: an agent that waits for approval should say so instead of trying other ways.
const ABOUT_PEOPLE: &str = "\n\nSome calls need a person's approval. The result of a cell that waits for one has a \
    `message` that says what the person can do: pass it on to your user, then call `wait`.";

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

/// Returns the tool list as protocol JSON.
pub(crate) fn listed(shown: &[VisibleTool], config: &CodeMode, prefix: &ToolPrefix) -> Vec<Value> {
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
    let (title, more) = match tool {
        Tool::Exec => ("Run a cell", ""),
        Tool::Wait => ("Wait for a cell", WITHOUT_RUN_ID),
    };
    let mut parameters = shown.parameters.clone();
    if let (Tool::Wait, Some(fields)) = (tool, parameters.as_object_mut()) {
        fields.shift_remove("required");
    }
    json!({
        "name": prefix.name(tool),
        "title": title,
        "description": format!("{}{}{more}{ABOUT_PEOPLE}", names(prefix), shown.description),
        "inputSchema": parameters,
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

fn names(prefix: &ToolPrefix) -> String {
    if prefix.is_empty() {
        return String::new();
    }
    let (exec, wait) = (prefix.name(Tool::Exec), prefix.name(Tool::Wait));
    format!("(`exec` and `wait` are called `{exec}` and `{wait}` here.)\n\n")
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
        "pendingToolCalls": objects,
        "error": text,
        "code": text,
        "output": objects,
        "telemetry": {"type": "object"},
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
