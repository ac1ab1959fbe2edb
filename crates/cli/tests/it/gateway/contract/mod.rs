//! The contract's own end-to-end plans, against the real binary: the sixteen steps of code mode, the regression of Tool
//! Search, the debug variables, and the transcripts of turns.

mod cleanup;
mod debug;
mod plugin;
mod steps;
mod surfaces;
mod transcripts;

use serde_json::{Value, json};
use testkit::model::{RUN_ID, RecordedRequest, Reply};

use super::running::{Setup, when_last};
use super::wires::Wire;
use crate::mcp::place::{fake, reads};

/// What a provider speaks, with the agent that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Chat,
    Responses,
    Messages,
}

impl Provider {
    pub(super) const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    fn api(self) -> &'static str {
        match self {
            Self::Chat => "openai-completions",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic-messages",
        }
    }

    pub(super) fn agent(self) -> &'static str {
        match self {
            Self::Chat => "ada",
            Self::Responses => "bob",
            Self::Messages => "eve",
        }
    }
}

/// A gateway's folder as a user of OpenClaw has it: a core tool, a plugin, an MCP server and three providers, all of which
/// are the scripted model. The plugin's `other`, the server's `hidden` and the core tool `write` are denied.
pub(super) fn setup(replies: Vec<Reply>) -> Setup {
    let sum = json!([{"result": {"content": [], "structuredContent": {"sum": 3}}}]);
    let mut add = reads("add", sum.clone());
    add["description"] = json!("Adds two numbers.");
    add["inputSchema"] = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}});
    let setup = Setup::new(json!([add, reads("hidden", sum)]), replies);
    plugin::install(&setup.place, "demo", &plugin::demo_tools());
    std::fs::create_dir_all(setup.place.path("root")).unwrap();
    std::fs::write(setup.place.path("root/notes.txt"), "buy tea").unwrap();
    setup
}

/// Writes a configuration in OpenClaw's form, with these further settings of `tools` and `gateway`.
pub(super) fn configure(setup: &Setup, tools: &Value, gateway: &Value) {
    let mut all = json!({
        "deny": ["plugin:demo:other", "mcp:s:hidden", "write"],
        "fs": {"enabled": true, "roots": [setup.place.path("root")]},
    });
    merge(&mut all, tools);
    let server = json!({"command": fake(), "args": [setup.place.path("script.json")], "trusted": true});
    let agents: Vec<Value> = Provider::ALL
        .iter()
        .map(|provider| json!({"id": provider.agent(), "model": {"primary": format!("{}/one", provider.api())}}))
        .collect();
    let mut own = json!({"mode": "local", "bind": "loopback", "auth": {"mode": "token"}, "holdSeconds": 60});
    merge(&mut own, gateway);
    setup.place.configure(&json!({
        "agents": {"defaults": {"workspace": setup.place.path("root")}, "list": agents},
        "models": {"mode": "merge", "providers": providers(setup)},
        "mcp": {"servers": {"s": server}},
        "tools": all,
        "gateway": own,
    }));
}

pub(super) fn providers(setup: &Setup) -> Value {
    let cost = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0});
    let model = json!({"id": "one", "name": "One", "reasoning": false, "input": ["text"], "cost": cost,
        "contextWindow": 128_000, "maxTokens": 4096});
    let mut all = json!({});
    for provider in Provider::ALL {
        // The SDK of Anthropic adds the version to the address itself.
        let url = setup.model.url();
        let url = if provider == Provider::Messages { url.trim_end_matches("/v1") } else { &url };
        let one = json!({"baseUrl": url, "api": provider.api(), "apiKey": "${MODEL_KEY}", "models": [model]});
        all[provider.api()] = one;
    }
    all
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// The response of a model that resumes each cell that waits.
pub(super) fn resumes() -> Reply {
    when_last("\"status\":\"waiting\"", Reply::call("wait", json!({"runId": RUN_ID})))
}

/// Returns a request to an agent, with the client's tool `look`.
pub(super) fn request(wire: Wire, agent: &str, items: &[Value], stream: bool) -> Value {
    let mut body = wire.request(items, true, stream);
    body["model"] = json!(format!("openclaw/{agent}"));
    body
}

/// Returns the tools of a request to a model.
pub(super) fn tools(request: &RecordedRequest) -> Vec<Value> {
    request.json()["tools"].as_array().cloned().unwrap_or_default()
}

/// Returns the names of the tools that a model sees.
pub(super) fn names(request: &RecordedRequest) -> Vec<String> {
    let name = |tool: &Value| tool["function"]["name"].as_str().or(tool["name"].as_str()).unwrap().to_owned();
    tools(request).iter().map(name).collect()
}

/// Returns the parameters of a tool that a model sees.
pub(super) fn parameters<'t>(tools: &'t [Value], name: &str) -> &'t Value {
    let tool = tools.iter().find(|tool| tool["function"]["name"] == name || tool["name"] == name).unwrap();
    [&tool["function"]["parameters"], &tool["parameters"], &tool["input_schema"]]
        .into_iter()
        .find(|schema| schema.is_object())
        .unwrap()
}

/// Returns the results of tools in the last message of a request to a model, which are JSON.
pub(super) fn results(request: &RecordedRequest) -> Vec<Value> {
    let body = request.json();
    let items = body["messages"].as_array().or(body["input"].as_array()).unwrap();
    let mut texts = Vec::new();
    collect(items.last().unwrap(), &mut texts);
    texts.iter().filter_map(|text| serde_json::from_str(text).ok()).filter(Value::is_object).collect()
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => members.values().for_each(|member| collect(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
