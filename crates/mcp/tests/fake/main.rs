//! An MCP server that follows a script: `fake-mcp script.json`. Raw JSON lines, no protocol library, so that the
//! client is not tested against itself.
//!
//! ```json
//! {
//!   "tools": [{"name": "add", "inputSchema": {"type": "object"}, "does": [{"result": {"content": []}}]}],
//!   "manyTools": 0, "pageSize": 100,
//!   "resources": [{"uri": "note://1", "name": "one", "text": "hello"}],
//!   "prompts": [{"name": "greet", "text": "Hello!"}],
//!   "start": [], "on": {"tools/list": []}, "record": "/where/to/write/what/it/hears"
//! }
//! ```
//!
//! All keys are optional. A tool's `does`, `start` (before anything is read) and `on` (instead of the usual answer to a
//! method) are lists of steps, see [`Fake::step`]. No step answers by itself: an empty list is a server that hangs
//! but still listens.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::zombie_processes,
    reason = "a script that is wrong ends the server, and the test that wrote it"
)]

use std::fs::OpenOptions;
use std::io::{BufRead, Write, stderr, stdin, stdout};
use std::process::{Command, exit};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

fn main() {
    let path = std::env::args().nth(1).expect("usage: fake-mcp script.json");
    let script: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut fake = Fake { script };
    fake.perform(&fake.script["start"].clone(), &Value::Null);
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        fake.record(&line);
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["method"].is_string() && !message["id"].is_null() {
            fake.answer(&message);
        }
    }
}

struct Fake {
    script: Value,
}

impl Fake {
    fn answer(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap();
        if self.script["on"][method].is_array() {
            return self.perform(&self.script["on"][method].clone(), message);
        }
        let params = &message["params"];
        let result = match method {
            "initialize" => Some(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": self.capabilities(),
                "serverInfo": {"name": "fake", "version": "1"},
            })),
            "server/discover" => Some(json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
                "serverInfo": {"name": "fake", "version": "1"},
                "ttlMs": 0,
                "cacheScope": "private",
            })),
            "ping" => Some(json!({})),
            "tools/list" => Some(self.page("tools", params)),
            "resources/list" => Some(self.page("resources", params)),
            "prompts/list" => Some(self.page("prompts", params)),
            "resources/read" => self.find("resources", "uri", &params["uri"]).map(|found| json!({"contents": [found]})),
            "prompts/get" => self.find("prompts", "name", &params["name"]).map(|found| {
                let content = json!({"type": "text", "text": found["text"]});
                json!({"messages": [{"role": "user", "content": content}]})
            }),
            "tools/call" => match self.find("tools", "name", &params["name"]) {
                Some(tool) => return self.perform(&tool["does"], message),
                None => None,
            },
            _ => None,
        };
        match result {
            Some(result) => say(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result})),
            None => {
                let error = json!({"code": -32602, "message": format!("nothing here for {method}")});
                say(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
            }
        }
    }

    fn perform(&mut self, steps: &Value, message: &Value) {
        for step in steps.as_array().into_iter().flatten() {
            self.step(step, message);
        }
    }

    /// One step of a script: an object with one of these keys.
    fn step(&mut self, step: &Value, message: &Value) {
        let (name, value) = step.as_object().unwrap().iter().next().unwrap();
        let answer = |key: &str, value: Value| say(&json!({"jsonrpc": "2.0", "id": message["id"], key: value}));
        let number = || value.as_u64().unwrap();
        match name.as_str() {
            "result" => answer("result", value.clone()),
            "error" => answer("error", value.clone()),
            // The request's parameters, to see what arrived.
            "echo" => answer("result", json!({"content": [], "structuredContent": message["params"]})),
            // Other tools from now on.
            "tools" => self.script["tools"] = value.clone(),
            "environment" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                answer("result", json!({"content": [], "structuredContent": names}));
            }
            // A grandchild that outlives its parent, and its number.
            "child" => {
                let child = Command::new("sleep").arg("1000").spawn().unwrap();
                answer("result", json!({"content": [], "structuredContent": child.id()}));
            }
            "progress" => {
                let mut params = value.clone();
                params["progressToken"] = message["params"]["_meta"]["progressToken"].clone();
                say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
            }
            // Any text, and a line end.
            "print" => print(value.as_str().unwrap().as_bytes(), b"\n"),
            "printBytes" => print(&b"x".repeat(usize::try_from(number()).unwrap()), b""),
            "stderr" => stderr().write_all(value.as_str().unwrap().as_bytes()).unwrap(),
            "stderrBytes" => stderr().write_all(&b"e".repeat(usize::try_from(number()).unwrap())).unwrap(),
            "sleepMs" => sleep(Duration::from_millis(number())),
            "exit" => exit(i32::try_from(number()).unwrap()),
            // A line without end.
            "endless" => loop {
                print(&[b'x'; 4096], b"");
            },
            other => panic!("no step is called {other}"),
        }
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({});
        for kind in ["tools", "resources", "prompts"] {
            if self.script[kind].is_array() {
                capabilities[kind] = json!({});
            }
        }
        if self.script["manyTools"].is_number() {
            capabilities["tools"] = json!({});
        }
        capabilities
    }

    fn page(&self, kind: &str, params: &Value) -> Value {
        let mut items = self.script[kind].as_array().cloned().unwrap_or_default();
        if kind == "tools" {
            let many = 0..self.script["manyTools"].as_u64().unwrap_or(0);
            items.extend(many.map(|n| json!({"name": format!("tool{n}"), "inputSchema": {"type": "object"}})));
        }
        items.iter_mut().for_each(|item| {
            item.as_object_mut().unwrap().remove("does");
        });
        let size = usize::try_from(self.script["pageSize"].as_u64().unwrap_or(100)).unwrap();
        let start: usize = params["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
        let mut page = json!({kind: items.iter().skip(start).take(size).collect::<Vec<_>>()});
        if start + size < items.len() {
            page["nextCursor"] = json!((start + size).to_string());
        }
        page
    }

    fn find(&self, kind: &str, key: &str, wanted: &Value) -> Option<Value> {
        self.script[kind].as_array()?.iter().find(|item| &item[key] == wanted).cloned()
    }

    fn record(&self, line: &str) {
        if let Some(path) = self.script["record"].as_str() {
            let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
            file.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
}

fn say(message: &Value) {
    print(message.to_string().as_bytes(), b"\n");
}

/// A client that has gone away is the usual end of a server.
fn print(bytes: &[u8], end: &[u8]) {
    let mut out = stdout().lock();
    if out.write_all(bytes).and_then(|()| out.write_all(end)).and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}
