//! A gateway process, its folder and its model.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::model::{Condition, Reply, ScriptedModel};

use super::wires::{Answer, Wire};
use crate::mcp::clients::{Era, HttpClient, PATIENCE, Response, Served};
use crate::mcp::place::{Place, fake};

/// A folder with a gateway's configuration: one server `s`, one agent `ada` with a scripted model.
pub(super) struct Setup {
    pub(super) place: Place,
    pub(super) model: ScriptedModel,
    /// Further variables of the gateway's environment.
    pub(super) variables: Vec<(&'static str, &'static str)>,
}

impl Setup {
    /// Configures a server with these tools, and a model with these responses.
    pub(super) fn new(tools: Value, replies: Vec<Reply>) -> Self {
        let place = Place::new(tools);
        let model = ScriptedModel::start(replies.into()).unwrap();
        let setup = Self { place, model, variables: Vec::new() };
        setup.configure(&json!({"holdSeconds": 60}));
        setup
    }

    pub(super) fn configure(&self, gateway: &Value) {
        let server = json!({"command": fake(), "args": [self.place.path("script.json")], "trusted": true});
        self.place.configure(&json!({
            "mcpServers": {"s": server},
            "tools": {"codeMode": true},
            "models": {"providers": {"scripted": {"baseUrl": self.model.url(), "api": "openai-completions", "apiKey": "${MODEL_KEY}"}}},
            "agents": {"ada": {"model": "scripted/one", "default": true}},
            "gateway": gateway,
        }));
    }

    fn spawn(&self) -> (Child, BufReader<ChildStderr>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["gateway", "--listen", "127.0.0.1:0", "--config", &self.place.path("config.json")]);
        command.args(["--state-dir", &self.place.path("state")]);
        command.env_remove("CELLMATE_TOKEN").env("MODEL_KEY", "key-of-the-model");
        command.envs(self.variables.iter().copied());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        (child, stderr)
    }

    /// Starts a gateway, and returns what it prints until it is ready.
    pub(super) fn first_lines(&self) -> String {
        let (mut child, mut stderr) = self.spawn();
        let mut lines = String::new();
        while !lines.contains("serving agents at") && stderr.read_line(&mut lines).unwrap() > 0 {}
        child.kill().unwrap();
        child.wait().unwrap();
        lines
    }

    pub(super) fn start(&self) -> Running {
        let (child, mut stderr) = self.spawn();
        let mut line = String::new();
        while !line.contains("serving agents at") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the gateway ended");
        }
        let address = line.split("http://").nth(1).unwrap().split("/v1").next().unwrap().to_owned();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        let token = std::fs::read_to_string(self.place.path("state/token")).unwrap_or_default().trim().to_owned();
        Running { served: Served::of(child, address, token) }
    }

    /// Waits until an approval is pending, and returns its id.
    pub(super) fn pending_approval(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let listed = self.place.approvals(&["list", "--json"]);
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
            let id = listed["approvals"][0]["approvalId"].as_str().or(listed[0]["approvalId"].as_str());
            if let Some(id) = id {
                return id.to_owned();
            }
            assert!(Instant::now() < deadline, "no approval is pending: {listed}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A `cellmate gateway` process.
pub(super) struct Running {
    served: Served,
}

impl Running {
    pub(super) fn token(&self) -> &str {
        &self.served.token
    }

    pub(super) fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        let mut all = vec![("Content-Type", "application/json")];
        all.extend(headers);
        self.served.request("POST", path, &all, &body.to_string())
    }

    pub(super) fn get(&self, path: &str) -> Response {
        let bearer = format!("Bearer {}", self.token());
        self.served.request("GET", path, &[("Authorization", &bearer)], "")
    }

    /// Sends a request of a wire, and returns what a client reads of the response.
    pub(super) fn send(&self, wire: Wire, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.token());
        // Each vendor's SDK has its own header.
        let header = match wire {
            Wire::Messages => ("x-api-key", self.token()),
            Wire::Chat | Wire::Responses => ("Authorization", bearer.as_str()),
        };
        wire.read(self.post(wire.path(), &[header], body), body["stream"] == true)
    }

    /// Returns an MCP client of the gateway.
    pub(super) fn mcp(&self, era: Era) -> HttpClient<'_> {
        self.served.client(era, self.token(), json!({}))
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.served.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn wait(&mut self) -> ExitStatus {
        self.served.wait()
    }
}

/// A response to requests whose last message contains a text.
pub(super) fn when_last(text: &str, reply: Reply) -> Reply {
    Reply { when: Some(Condition { last_contains: Some(text.to_owned()), ..Condition::default() }), ..reply }
}

/// A response that runs a cell.
pub(super) fn cell(code: &str) -> Reply {
    Reply::call("exec", json!({"code": code}))
}
