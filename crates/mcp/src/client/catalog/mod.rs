//! Converts a server's tool list to Cellmate's tools, within limits, and adds tools for its resources and prompts.

pub(crate) mod convert;
mod header_arguments;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use contract::json::measure;
use contract::limits::{MAX_LISTED_VALUES, MAX_TOOL_VALUES};
use contract::tool::{Operation, Repeat, ToolId, ToolSpec, is_visible_name};
use serde_json::{Value, json};

use crate::client::spec::{HintTrust, Limits, MAX_SHOWN_NAME_CHARS, MAX_TOOL_NAME_BYTES, shown};

pub(crate) use header_arguments::header_arguments;

/// A tool of the server that is not offered, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutTool {
    pub tool: String,
    pub why: String,
}

/// Collects one server's tools.
#[derive(Debug)]
pub(crate) struct Offer<'a> {
    server: &'a str,
    hints: HintTrust,
    limits: &'a Limits,
    bytes: usize,
    /// The number of JSON values in all listed tools.
    values: usize,
    /// The server's instructions.
    about: Option<Arc<str>>,
    /// Whether the transport can carry arguments in headers.
    in_headers: bool,
    pub(crate) tools: BTreeMap<ToolId, ToolSpec>,
    /// The tools that can only be called as a task.
    pub(crate) as_tasks: BTreeSet<ToolId>,
    pub(crate) left_out: Vec<LeftOutTool>,
}

/// The server's list exceeds a limit. It is rejected as a whole, because the server would choose which part is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListLimitError {
    #[error("it offers more than {0} tools; configure it to offer fewer, or raise the limit on tools")]
    Tools(usize),
    #[error("its tool definitions have more than {0} bytes; configure it to offer fewer tools, or raise the limit")]
    Bytes(usize),
    #[error("its tool definitions have more than {0} JSON values; configure it to offer fewer or simpler tools")]
    Values(usize),
    #[error("its tool list has more than {0} pages; configure it to offer fewer tools or longer pages")]
    Pages(usize),
}

impl<'a> Offer<'a> {
    pub(crate) fn new(server: &'a str, hints: HintTrust, limits: &'a Limits) -> Self {
        Self {
            server,
            hints,
            limits,
            bytes: 0,
            values: 0,
            about: None,
            in_headers: false,
            tools: BTreeMap::new(),
            as_tasks: BTreeSet::new(),
            left_out: Vec::new(),
        }
    }

    /// Sets the server's instructions, which help to find its tools.
    pub(crate) fn with_instructions(self, about: Option<Arc<str>>) -> Self {
        Self { about, ..self }
    }

    /// Accepts only tools whose arguments the transport can carry in headers where the tools ask for it.
    pub(crate) fn for_headers(self) -> Self {
        Self { in_headers: true, ..self }
    }

    /// Adds a tool as `tools/list` returns it, or records why it is left out.
    pub(crate) fn tool(&mut self, listed: &Value) -> Result<(), ListLimitError> {
        if self.tools.len() + self.left_out.len() >= self.limits.tools {
            return Err(ListLimitError::Tools(self.limits.tools));
        }
        let text = listed.to_string();
        let values = measure(text.as_bytes()).values;
        self.bytes += text.len();
        if self.bytes > self.limits.total_bytes {
            return Err(ListLimitError::Bytes(self.limits.total_bytes));
        }
        self.values += values;
        if self.values > MAX_LISTED_VALUES {
            return Err(ListLimitError::Values(MAX_LISTED_VALUES));
        }
        let name = listed.get("name").and_then(Value::as_str).unwrap_or_default();
        let read = match values {
            0..=MAX_TOOL_VALUES => self.read(name, listed),
            _ => Err(format!("its definition has more than {MAX_TOOL_VALUES} JSON values")),
        };
        match read {
            Ok(spec) => {
                let must = listed.pointer("/execution/taskSupport").and_then(Value::as_str) == Some("required");
                if must && !self.tools.contains_key(&spec.id) {
                    self.as_tasks.insert(spec.id.clone());
                }
                self.add(spec);
            }
            Err(why) => self.leave_out(name, why),
        }
        Ok(())
    }

    /// Adds two tools that list and read the server's resources.
    pub(crate) fn resources(&mut self) {
        let list = "Lists the resources that this MCP server has, a page at a time.";
        self.operation("resources_list", Operation::ListResources, list, page_schema());
        let read = "Reads one resource of this MCP server by its URI.";
        let schema = json!({
            "type": "object",
            "properties": {"uri": {"type": "string", "description": "The resource's URI, as resources_list gives it."}},
            "required": ["uri"],
        });
        self.operation("resources_read", Operation::ReadResource, read, schema);
    }

    /// Adds two tools that list and get the server's prompts.
    pub(crate) fn prompts(&mut self) {
        let list = "Lists the prompts that this MCP server has, a page at a time.";
        self.operation("prompts_list", Operation::ListPrompts, list, page_schema());
        let get = "Gets one prompt of this MCP server, filled in with arguments.";
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The prompt's name, as prompts_list gives it."},
                "arguments": {
                    "type": "object",
                    "description": "A text for each of the prompt's arguments.",
                    "additionalProperties": {"type": "string"},
                },
            },
            "required": ["name"],
        });
        self.operation("prompts_get", Operation::GetPrompt, get, schema);
    }

    fn operation(&mut self, name: &str, operation: Operation, description: &str, parameters: Value) {
        let Ok(id) = self.id(name) else { return };
        // By protocol these only read, but only a trusted server can be relied on to follow it.
        let declared_repeat = Repeat::Always;
        let repeat = self.believed(declared_repeat);
        self.add(ToolSpec { operation, repeat, declared_repeat, ..ToolSpec::new(id, description, parameters) });
    }

    /// Returns what a server's declaration counts for.
    fn believed(&self, declared: Repeat) -> Repeat {
        match self.hints {
            HintTrust::Trusted => declared,
            HintTrust::Ignored => Repeat::Never,
        }
    }

    /// Adds a tool. The first tool with a name wins: the server's own tools come first, so they hide the operations
    /// that Cellmate adds.
    fn add(&mut self, spec: ToolSpec) {
        if self.tools.contains_key(&spec.id) {
            self.leave_out(spec.id.name(), "another tool of this server has the same name".to_owned());
        } else {
            self.tools.insert(spec.id.clone(), spec);
        }
    }

    fn leave_out(&mut self, name: &str, why: String) {
        self.left_out.push(LeftOutTool { tool: shown(name, MAX_SHOWN_NAME_CHARS), why });
    }

    fn id(&self, name: &str) -> Result<ToolId, String> {
        if name.len() > MAX_TOOL_NAME_BYTES {
            return Err(format!("its name is longer than {MAX_TOOL_NAME_BYTES} bytes"));
        }
        if name.is_empty() {
            return Err("it has no valid name".to_owned());
        }
        if name.contains(':') {
            return Err("its name contains `:`, so it could pass for a tool of another server".to_owned());
        }
        if !is_visible_name(name) {
            return Err("its name has control or invisible characters, or surrounding whitespace".to_owned());
        }
        ToolId::parse(&format!("mcp:{}:{name}", self.server)).map_err(|error| error.to_string())
    }

    fn read(&self, name: &str, listed: &Value) -> Result<ToolSpec, String> {
        let id = self.id(name)?;
        let annotations = listed.get("annotations").unwrap_or(&Value::Null);
        let label = [listed.get("title"), annotations.get("title")].into_iter().flatten().find_map(Value::as_str);
        let description = listed.get("description").and_then(Value::as_str).unwrap_or_default();
        let max = self.limits.description_bytes;
        if description.len().max(label.map_or(0, str::len)) > max {
            return Err(format!("its description is longer than {max} bytes"));
        }
        if let Some(schema) = listed.get("inputSchema").filter(|_| self.in_headers) {
            header_arguments::check(schema)?;
        }
        let output = listed.get("outputSchema").filter(|schema| !schema.is_null());
        let declared_repeat = repeat(annotations);
        Ok(ToolSpec {
            about_owner: self.about.clone(),
            label: label.map(str::to_owned),
            output: output.map(|schema| self.schema("outputSchema", schema)).transpose()?,
            repeat: self.believed(declared_repeat),
            declared_repeat,
            ..ToolSpec::new(
                id,
                description,
                self.schema("inputSchema", listed.get("inputSchema").unwrap_or(&Value::Null))?,
            )
        })
    }

    fn schema(&self, which: &str, schema: &Value) -> Result<Value, String> {
        let max = self.limits.schema_bytes;
        if !schema.is_object() {
            return Err(format!("its {which} is not an object"));
        }
        if json_bytes(schema) > max {
            return Err(format!("its {which} is longer than {max} bytes"));
        }
        Ok(schema.clone())
    }
}

/// Returns whether a server's hints, if it is trusted, allow a call to be repeated after a crash between dispatch and
/// result.
///
/// A read-only tool may be called again. A tool that is merely idempotent may not: repeated after another party's
/// change it would undo that change, as a second `delete` or `set` does. If it is also not destructive, it may. No hint
/// says that a tool supports the idempotency key, so `WithKey` is never returned. A missing hint counts as the cautious
/// value.
fn repeat(annotations: &Value) -> Repeat {
    let hint = |name: &str| annotations.get(name).and_then(Value::as_bool);
    let adds_once = hint("idempotentHint") == Some(true) && hint("destructiveHint") == Some(false);
    match (hint("readOnlyHint"), adds_once) {
        (Some(true), _) => Repeat::Always,
        (_, true) => Repeat::Additive,
        (_, false) => Repeat::Never,
    }
}

fn page_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"cursor": {"type": "string", "description": "The nextCursor of the page before; none for the first."}},
    })
}

fn json_bytes(value: &Value) -> usize {
    value.to_string().len()
}

#[cfg(test)]
mod tests;
