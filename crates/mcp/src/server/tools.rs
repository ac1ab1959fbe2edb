//! The two tools as clients list them. Equal catalogs and limits give equal bytes.

use catalog::VisibleTool;
use contract::config::CodeMode;
use serde_json::{Value, json};

use super::prefix::{Tool, ToolPrefix};

/// The size of a result beyond the cell's own value and output: telemetry, pending calls, approvals.
const AROUND_A_RESULT: u64 = 32 << 10;

/// Added to the description of `wait`: over MCP a `runId` can be lost with the connection.
const WITHOUT_RUN_ID: &str = "\n\nOmit `runId` if a result was lost (timeout, broken connection): if one cell is live \
    or has finished recently, `wait` waits for it; if several, it lists them, newest first, with their `runId`s and \
    the start of their code. Check here before you run a cell again: it may already have taken effect.";

/// Added to both descriptions: an agent that waits for approval should say so instead of trying other ways.
const ABOUT_PEOPLE: &str = "\n\nSome calls need a person's approval. The result of a cell that waits for one has a \
    `message` that says what the person can do: pass it on to your user, then call `wait`.";

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
