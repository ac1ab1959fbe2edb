//! A test folder with the state and configuration of one `cellmate mcp`, and a scripted upstream server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

pub(crate) struct Place(pub PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Place {
    /// Creates a folder whose configuration has one server, `s`, with these tools.
    pub(crate) fn new(tools: Value) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let place = Self(path);
        let script = json!({"tools": tools, "record": place.path("received")});
        std::fs::write(place.path("script.json"), script.to_string()).unwrap();
        let server = json!({"command": fake(), "args": [place.path("script.json")], "trusted": true});
        place.configure(&json!({"mcpServers": {"s": server}}));
        place.own(&json!({"approvals": {"nonInteractive": true}}));
        place
    }

    pub(crate) fn configure(&self, config: &Value) {
        std::fs::write(self.path("config.json"), config.to_string()).unwrap();
    }

    /// Writes the user's own configuration. By default it lets [`Self::approvals`] approve without a terminal.
    pub(crate) fn own(&self, config: &Value) {
        std::fs::create_dir_all(self.path("own/cellmate")).unwrap();
        std::fs::write(self.path("own/cellmate/config.json5"), config.to_string()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// All messages that the scripted server has received.
    pub(crate) fn received(&self) -> String {
        std::fs::read_to_string(self.path("received")).unwrap_or_default()
    }

    pub(crate) fn server(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["mcp", "--config", &self.path("config.json"), "--state-dir", &self.path("state")]).args(more);
        command.env_remove("CELLMATE_TOKEN");
        command
    }

    /// Runs another command with this state folder and configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        self.command_line(arguments).output().unwrap()
    }

    /// Returns a second command with this state folder and configuration.
    pub(crate) fn command_line(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(arguments).args(["--state-dir", &self.path("state"), "--config", &self.path("config.json")]);
        command
    }

    pub(crate) fn approvals(&self, arguments: &[&str]) -> Output {
        self.approvals_command(arguments).output().unwrap()
    }

    pub(crate) fn tokens(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.arg("tokens").args(arguments).args(["--state-dir", &self.path("state")]);
        command.env("XDG_CONFIG_HOME", self.path("own")).env_remove("CELLMATE_CONFIG").stdin(Stdio::null());
        command.output().unwrap()
    }

    pub(crate) fn approvals_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.arg("approvals").args(arguments).args(["--state-dir", &self.path("state")]);
        command.env("XDG_CONFIG_HOME", self.path("own")).env_remove("CELLMATE_CONFIG").stdin(Stdio::null());
        command
    }
}

impl Place {
    /// The `tools call` command for a direct call of a tool.
    pub(crate) fn by_hand(&self, tool: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(["tools", "call", tool, "to=main", "--json", "--config", &self.path("config.json")]);
        command.args(["--state-dir", &self.path("state")]).env("HOME", &self.0).env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::null());
        command
    }
}

/// Runs a command on its own terminal with this input. The output of the terminal is in `stdout`.
pub(crate) fn on_terminal(command: &Command, typed: &str) -> Output {
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

/// A read-only tool of the scripted server; its calls need no approval.
pub(crate) fn reads(name: &str, does: Value) -> Value {
    let annotations = json!({"readOnlyHint": true});
    json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations, "does": does})
}

pub(crate) fn writes(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "does": [{"result": {"content": [], "structuredContent": {"done": name}}}]})
}

/// The scripted server is a binary of another package, which Cargo does not promise to have built.
pub(crate) fn fake() -> PathBuf {
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
