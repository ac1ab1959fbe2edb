//! A folder for one server's state, its configuration, and a scripted server behind it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

pub struct Place(pub PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Place {
    /// With a server `s` that has these tools.
    pub fn new(tools: Value) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let place = Self(path);
        let script = json!({"tools": tools, "record": place.path("heard")});
        std::fs::write(place.path("script.json"), script.to_string()).unwrap();
        let server = json!({"command": fake(), "args": [place.path("script.json")], "trusted": true});
        place.configure(&json!({"mcpServers": {"s": server}}));
        place.own(&json!({"approvals": {"nonInteractive": true}}));
        place
    }

    pub fn configure(&self, config: &Value) {
        std::fs::write(self.path("config.json"), config.to_string()).unwrap();
    }

    /// The configuration of the user whose decisions these are: [`Self::approvals`] approves without a terminal.
    pub fn own(&self, config: &Value) {
        std::fs::create_dir_all(self.path("own/cellmate")).unwrap();
        std::fs::write(self.path("own/cellmate/config.json5"), config.to_string()).unwrap();
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// What the scripted server has heard.
    pub fn heard(&self) -> String {
        std::fs::read_to_string(self.path("heard")).unwrap_or_default()
    }

    pub fn server(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["mcp", "--config", &self.path("config.json"), "--state-dir", &self.path("state")]).args(more);
        command.env_remove("CELLMATE_TOKEN");
        command
    }

    /// Another command on the same state.
    pub fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(arguments).args(["--state-dir", &self.path("state"), "--config", &self.path("config.json")]);
        command.output().unwrap()
    }

    pub fn approvals(&self, arguments: &[&str]) -> Output {
        self.approvals_command(arguments).output().unwrap()
    }

    pub fn approvals_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.arg("approvals").args(arguments).args(["--state-dir", &self.path("state")]);
        command.env("XDG_CONFIG_HOME", self.path("own")).env_remove("CELLMATE_CONFIG").stdin(Stdio::null());
        command
    }
}

impl Place {
    /// What a person types to call a tool of the server by hand.
    pub fn by_hand(&self, tool: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["tools", "call", tool, "to=main", "--json", "--config", &self.path("config.json")]);
        command.args(["--state-dir", &self.path("state")]).env("HOME", &self.0).env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::null());
        command
    }
}

/// Runs a command on a terminal of its own and types for it. What was seen there is standard output.
pub fn on_terminal(command: &Command, typed: &str) -> Output {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &line.join(" "), "/dev/null"]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    terminal.stdin.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
    terminal.wait_with_output().unwrap()
}

/// A tool of the scripted server. One that reads is not asked about.
pub fn reads(name: &str, does: Value) -> Value {
    let annotations = json!({"readOnlyHint": true});
    json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations, "does": does})
}

pub fn writes(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "does": [{"result": {"content": [], "structuredContent": {"done": name}}}]})
}

/// The scripted server is a binary of another package, which Cargo does not promise to have built.
fn fake() -> PathBuf {
    static FAKE: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let path = Path::new(env!("CARGO_BIN_EXE_cellmate")).with_file_name("fake-mcp");
        if !path.exists() {
            let built = Command::new(env!("CARGO")).args(["build", "-p", "cellmate-mcp", "--bin", "fake-mcp"]).status();
            assert!(built.unwrap().success());
        }
        path
    };
    FAKE.get_or_init(build).clone()
}
