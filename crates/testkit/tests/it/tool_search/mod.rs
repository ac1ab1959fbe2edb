//! Tool Search end to end: canned tools, cells on threads of this process, a store in memory.

mod answers;
mod regression;
mod time;

use std::sync::Arc;
use std::time::{Duration, Instant};

use codemode::{CodeMode, ToolSearch};
use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use contract::scope::Scope;
use executor::run::{Host, PreparedRun, RunRequest, prepare};
use executor::{CannedTools, ToolSource};
use serde_json::{Value, json};
use store::{Decision, Entry};
use testkit::runner;

const TICKET: &str = "plugin:fake:create_ticket";
const EVENT: &str = "mcp:calendar:create_event";
const DEPLOY: &str = "openclaw:ops:deploy";
const NEVER: &str = "plugin:fake:never";
const SECRET: &str = "plugin:fake:secret";

/// A tool source with a large plugin catalog, an MCP tool, and tools that fail or never answer.
fn source() -> Arc<dyn ToolSource> {
    let mut tools: Vec<Value> = (0..220)
        .map(|number| {
            let properties = json!({
                "target": {"type": "string", "description": "What to work on, by its full name or its number."},
                "mode": {"type": "string", "enum": ["fast", "careful", "dry-run"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 100},
            });
            json!({
                "id": format!("plugin:fake:widget_{number:03}"),
                "description": format!("Turns widget number {number} and reports what became of it, step by step."),
                "parameters": {"type": "object", "properties": properties, "required": ["target"]},
            })
        })
        .collect();
    let title = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    tools.extend([
        json!({"id": TICKET, "description": "Opens a ticket.", "parameters": title, "answers": [{"echo": true}]}),
        json!({"id": EVENT, "description": "Adds to the calendar.", "parameters": title, "answers": [{"echo": true}]}),
        json!({"id": DEPLOY, "description": "Ships it.", "answers": [{"returns": "shipped"}]}),
        json!({"id": NEVER, "description": "Says nothing.", "answers": [{"never": true}]}),
        json!({"id": SECRET, "description": "Opens a ticket that must stay hidden."}),
        json!({"id": "plugin:fake:broken", "description": "Breaks.", "answers": [{"fails": "out of paper"}]}),
    ]);
    Arc::new(CannedTools::parse(&json!({ "tools": tools }).to_string()).unwrap())
}

fn host(tools: Value, sources: Vec<Arc<dyn ToolSource>>) -> Host {
    let config = AgentsConfig::resolve(&tools, &Value::Null).unwrap();
    Host { approval_patterns: vec![Pattern::parse(DEPLOY).unwrap()], ..Host::new(config, sources) }
}

fn run(host: &Host, session: &str) -> PreparedRun {
    let scope = Scope { session_id: session.to_owned(), ..Scope::default() };
    prepare(host, &RunRequest { scope, ..RunRequest::default() }).unwrap()
}

/// A run with Tool Search, and methods that call its control tools.
struct Bench {
    code_mode: CodeMode,
    tool_search: ToolSearch,
    run: PreparedRun,
}

impl Bench {
    async fn new(tool_search: Value) -> Self {
        Self::of(host(json!({"toolSearch": tool_search, "deny": [SECRET]}), vec![source()])).await
    }

    async fn of(host: Host) -> Self {
        let code_mode = runner::in_process().await.unwrap();
        let tool_search = ToolSearch::new(code_mode.clone());
        Self { code_mode, tool_search, run: run(&host, "session") }
    }

    async fn code(&self, code: &str) -> Value {
        let input = json!({ "code": code });
        self.tool_search.run_code(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await
    }

    async fn search(&self, input: Value) -> Value {
        self.tool_search.search(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await.value
    }

    async fn describe(&self, id: &str) -> Value {
        let input = json!({ "id": id });
        self.tool_search.describe(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await.value
    }

    async fn call(&self, id: &str, args: Value) -> Value {
        let input = json!({"id": id, "args": args});
        self.tool_search.call(&self.run.executor, &self.run.config.tool_search, "call-1", &input).await
    }

    /// Returns kind and tool of each entry of the session's transcript.
    async fn transcript(&self, session: &str) -> Vec<String> {
        let entries = self.code_mode.store().transcript(session).await.unwrap();
        let line = |entry: &Entry| {
            let tool = entry.entry.get("toolId").or_else(|| entry.entry.get("toolName"));
            format!("{} {}", entry.kind.as_str(), tool.and_then(Value::as_str).unwrap_or("-"))
        };
        entries.iter().map(line).collect()
    }

    /// Waits for a pending approval and decides it.
    async fn decide_when_asked(&self, decision: Decision) {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let pending = self.code_mode.store().pending_approvals().await.unwrap();
            if let Some(approval) = pending.first() {
                self.code_mode.decide(&approval.approval_id, &decision, "a person").await.unwrap();
                return;
            }
            assert!(Instant::now() < deadline, "no approval was requested within 5 seconds");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn ids(found: &Value) -> Vec<&str> {
    found.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}
