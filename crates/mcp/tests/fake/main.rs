//! An MCP server that follows a script: `fake-mcp script.json`, or over HTTP with the further arguments `http
//! PORT_FILE` (see `http`). It uses raw JSON and no protocol library, so that the client is not tested against itself.
//!
//! ```json
//! {
//!   "tools": [{"name": "add", "inputSchema": {"type": "object"}, "does": [{"result": {"content": []}}]}],
//!   "manyTools": 0, "pageSize": 100,
//!   "resources": [{"uri": "note://1", "name": "one", "text": "hello"}],
//!   "prompts": [{"name": "greet", "text": "Hello!"}],
//!   "listChanged": true, "start": [], "on": {"tools/list": []}, "afterEof": [],
//!   "record": "/where/to/record/messages"
//! }
//! ```
//!
//! All keys are optional. A tool's `does`, `start` (before anything is read), `afterEof` (when its input has ended) and
//! `on` (instead of the usual response to a method) are lists of steps, see [`Fake::step`]. With an empty list the
//! server never responds but keeps reading.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::zombie_processes,
    reason = "a script that is wrong ends the server, and the test that wrote it"
)]

mod http;
mod out;
mod request;

use std::fs::OpenOptions;
use std::io::{Write, stderr, stdin};
use std::process::{Command, exit};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use out::Out;

fn main() {
    let path = std::env::args().nth(1).expect("usage: fake-mcp script.json");
    let script: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    if let Some(port_file) = std::env::args().nth(3) {
        return http::serve(script, &port_file);
    }
    let mut fake = Fake { script, shared: None };
    fake.perform(&fake.script["start"].clone(), &Value::Null, &mut Out::Stdout);
    while let Some(message) = fake.hear() {
        if message["method"].is_string() && !message["id"].is_null() {
            fake.answer(&message, &mut Out::Stdout);
        }
    }
    fake.perform(&fake.script["afterEof"].clone(), &Value::Null, &mut Out::Stdout);
}

struct Fake {
    script: Value,
    /// The script shared by all HTTP requests, each of which has its own copy.
    shared: Option<Arc<Mutex<Value>>>,
}

impl Fake {
    /// Returns the next message, or `None` at the end of the input.
    fn hear(&self) -> Option<Value> {
        let mut line = String::new();
        if stdin().read_line(&mut line).unwrap() == 0 {
            return None;
        }
        self.record(line.trim_end());
        Some(serde_json::from_str(&line).unwrap())
    }

    fn answer(&mut self, message: &Value, out: &mut Out) {
        let method = message["method"].as_str().unwrap();
        if self.script["on"][method].is_array() {
            return self.perform(&self.script["on"][method].clone(), message, out);
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
                Some(tool) => return self.perform(&tool["does"], message, out),
                None => None,
            },
            _ => None,
        };
        match result {
            Some(result) => out.say(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result})),
            None => {
                let error = json!({"code": -32602, "message": format!("nothing here for {method}")});
                out.say(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
            }
        }
    }

    fn perform(&mut self, steps: &Value, message: &Value, out: &mut Out) {
        for step in steps.as_array().into_iter().flatten() {
            self.step(step, message, out);
        }
    }

    /// Performs one step of a script: an object with one of these keys.
    fn step(&mut self, step: &Value, message: &Value, out: &mut Out) {
        let (name, value) = step.as_object().unwrap().iter().next().unwrap();
        let mut answer = |key: &str, value: Value| out.say(&json!({"jsonrpc": "2.0", "id": message["id"], key: value}));
        let number = || value.as_u64().unwrap();
        match name.as_str() {
            "result" => answer("result", value.clone()),
            "error" => answer("error", value.clone()),
            // Responds with the request's parameters.
            "echo" => answer("result", json!({"content": [], "structuredContent": message["params"]})),
            // Replaces the tools.
            "tools" => self.keep("tools", value.clone()),
            // Replaces the steps of methods.
            "on" => {
                let mut on = self.script["on"].clone();
                value.as_object().unwrap().iter().for_each(|(method, steps)| on[method] = steps.clone());
                self.keep("on", on);
            }
            // Responds with the server's variables and their values.
            "environment" => {
                let variables: serde_json::Map<String, Value> =
                    std::env::vars().map(|(name, value)| (name, json!(value))).collect();
                answer("result", json!({"content": [], "structuredContent": variables}));
            }
            // Starts a grandchild that outlives its parent, and responds with its process id.
            "child" => {
                let child = Command::new("sleep").arg("1000").spawn().unwrap();
                answer("result", json!({"content": [], "structuredContent": child.id()}));
            }
            // Starts a grandchild without responding.
            "spawn" => {
                let words: Vec<&str> = value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
                Command::new(words[0]).args(&words[1..]).spawn().unwrap();
            }
            // Exits the first time only, which a file records.
            "exitOnce" => {
                let path = value.as_str().unwrap();
                if OpenOptions::new().write(true).create_new(true).open(path).is_ok() {
                    exit(1);
                }
            }
            // Asks the client a question and responds with its answer; on pipes only.
            "ask" => {
                out.say(&json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": value}));
                let said = loop {
                    let heard = self.hear().unwrap_or_else(|| exit(0));
                    if heard["id"] == "q" {
                        break heard["result"].clone();
                    }
                };
                out.say(&json!({
                    "jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "structuredContent": said},
                }));
            }
            // Performs one list of steps if the file exists, else the other: `[file, then, else]`.
            "ifFile" => {
                let there = std::path::Path::new(value[0].as_str().unwrap()).exists();
                self.perform(&value[if there { 1 } else { 2 }], message, out);
            }
            // Performs one list of steps if the request has a person's answers, else the other: `[then, else]`.
            "ifAnswered" => {
                let answered = message["params"]["inputResponses"].is_object();
                self.perform(&value[if answered { 0 } else { 1 }], message, out);
            }
            // Performs the steps of the first pair whose object is part of the call's arguments: `[[object, steps], …]`.
            "when" => {
                let arguments = &message["params"]["arguments"];
                let is_part =
                    |wanted: &Value| wanted.as_object().unwrap().iter().all(|(key, one)| arguments[key] == *one);
                let found = value.as_array().unwrap().iter().find(|pair| is_part(&pair[0]));
                let steps = found.unwrap_or_else(|| panic!("no steps for {arguments}"))[1].clone();
                self.perform(&steps, message, out);
            }
            // Performs the first list of steps for a tool's first call, and so on; the last for all further ones.
            "inTurn" => {
                let lists = value.as_array().unwrap();
                let counter = format!("calls of {}", message["params"]["name"]);
                let turn = usize::try_from(self.script[&counter].as_u64().unwrap_or(0)).unwrap();
                self.keep(&counter, json!(turn + 1));
                self.perform(&lists[turn.min(lists.len() - 1)], message, out);
            }
            "progress" => {
                let mut params = value.clone();
                params["progressToken"] = message["params"]["_meta"]["progressToken"].clone();
                out.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
            }
            // Prints any text and a line end.
            "print" => drop(out.print(value.as_str().unwrap().as_bytes(), b"\n")),
            "printBytes" => drop(out.print(&b"x".repeat(usize::try_from(number()).unwrap()), b"")),
            // Sends any message, also one that is not a response.
            "say" => out.say(value),
            // Sends a message with many equal parts: `[before, part, times, after]`. `$ID` is the request's id.
            "repeated" => {
                let part = |index: usize| value[index].as_str().unwrap().replace("$ID", &message["id"].to_string());
                let times = usize::try_from(value[2].as_u64().unwrap()).unwrap();
                out.text(&format!("{}{}{}", part(0), part(1).repeat(times), part(3)));
            }
            // Sends a message repeatedly: `[times, message]`.
            "sayTimes" => (0..value[0].as_u64().unwrap()).for_each(|_| out.say(&value[1])),
            // Sends a whole HTTP response.
            "raw" => out.raw(value.as_str().unwrap()),
            // Sends a byte every given number of milliseconds until the client disconnects, then records that.
            "drip" => {
                while out.print(b":", b"") {
                    sleep(Duration::from_millis(number()));
                }
                self.record(&json!({"gone": message["params"]["name"]}).to_string());
            }
            // Replaces the session id; the old session becomes unknown.
            "session" => {
                let mut how = self.script["http"].clone();
                how["session"] = value.clone();
                self.keep("http", how);
            }
            "stderr" => stderr().write_all(value.as_str().unwrap().as_bytes()).unwrap(),
            "stderrBytes" => stderr().write_all(&b"e".repeat(usize::try_from(number()).unwrap())).unwrap(),
            "sleepMs" => sleep(Duration::from_millis(number())),
            "exit" => exit(i32::try_from(number()).unwrap()),
            // Sends a line that never ends.
            "endless" => while out.print(&[b'x'; 4096], b"") {},
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
        if self.script["listChanged"].is_boolean() {
            capabilities["tools"]["listChanged"] = self.script["listChanged"].clone();
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

    fn keep(&mut self, key: &str, value: Value) {
        self.script[key] = value.clone();
        if let Some(shared) = &self.shared {
            shared.lock().unwrap()[key] = value;
        }
    }

    fn record(&self, line: &str) {
        if let Some(path) = self.script["record"].as_str() {
            let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
            file.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
}
