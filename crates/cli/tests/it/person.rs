//! A test user with a home folder, a project folder and a small MCP server, who runs `cellmate`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A raw MCP server: it leaks its token on standard error and echoes its arguments.
const SERVER: &str = r#"#!/bin/sh
echo "started with $TOKEN $2" >&2
[ "$1" = fail ] && exit 3
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*)
      echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}" ;;
    *'"method":"tools/list"'*)
      echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"tools\":[{\"name\":\"greet\",\"description\":\"Greets.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]}},{\"name\":\"other\",\"inputSchema\":{\"type\":\"object\"}}]}}" ;;
    *'"method":"tools/call"'*)
      name=$(printf '%s' "$line" | sed -n 's/.*"arguments":{"name":"\([^"]*\)".*/\1/p')
      echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"hello $name\"}]}}" ;;
  esac
done
"#;

/// A secret that must never appear in the output of `cellmate`.
pub(crate) const CANARY: &str = "canary-7f3e9a51c0de";

/// A test user. The folder contains their home, a project and the server.
pub(crate) struct Person {
    folder: tempfile::TempDir,
}

pub(crate) struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

impl Person {
    pub(crate) fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_folder(folder: tempfile::TempDir) -> Self {
        let person = Self { folder };
        for folder in ["home", "project"] {
            std::fs::create_dir(person.path(folder)).unwrap();
        }
        person.write("server.sh", SERVER);
        person
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn server(&self) -> String {
        self.path("server.sh").display().to_string()
    }

    pub(crate) fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, below: &str) -> String {
        std::fs::read_to_string(self.path(below)).unwrap()
    }

    /// Runs `cellmate` in the project's folder, checks that its output has no secrets, and removes the scratch folder's
    /// path from it.
    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(&[], "", arguments)
    }

    /// Runs `cellmate` with more variables and this input.
    pub(crate) fn run_with(&self, variables: &[(&str, &str)], input: &str, arguments: &[&str]) -> CommandOutput {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // A command that does not read its input may have exited already.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(self.root(), "");
        let output =
            CommandOutput { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) };
        let kept = !output.out.contains(CANARY) && !output.err.contains(CANARY);
        assert!(kept, "{arguments:?} prints a secret:\n{}\n{}", output.out, output.err);
        output
    }

    /// Returns the command that runs `cellmate` in the project's folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command
            .args(arguments)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("SECRET", CANARY);
        command
    }

    fn root(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub(crate) fn has(&self, below: &str) -> bool {
        Path::new(&self.path(below)).exists()
    }
}

/// Runs a cell in a `cellmate mcp` that was just started, closes its input, and returns the answer.
pub(crate) fn exec_over_streams(child: &mut Child, code: &str) -> Value {
    let mut stdin = child.stdin.take().unwrap();
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let call = json!({"name": "exec", "arguments": {"code": code}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    messages.find(|message| message["id"] == 2).unwrap()
}
