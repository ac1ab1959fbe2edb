//! The files of the fleet: a script for each server, and a configuration with all of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

use crate::Result;
use crate::server_tools::{name, tools};
use figures::McpClient;

/// The environment variable that every process of the fleet has. Its value is the fleet's folder.
pub(crate) const MARK: &str = "CELLMATE_BENCH_FLEET";

/// Number of additional servers that do not answer during start-up, in the configuration that has them.
pub(crate) const HANGING: usize = 8;

/// Lines of `cellmate`'s standard error that are shown after a failure.
const SHOWN_STDERR_LINES: usize = 10;

/// The servers that are configured in addition to the fleet.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Hanging,
}

/// A temporary folder with the fleet's files, removed when dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    folder: PathBuf,
    cellmate: PathBuf,
    fake: PathBuf,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("bench-servers: cannot remove {}: {error}", self.folder.display());
        }
    }
}

impl Fleet {
    /// Writes the files of a fleet with this number of servers.
    pub(crate) fn prepare(binaries: &Path, servers: usize) -> Result<Self> {
        let found = |name: &str| {
            let path = binaries.join(name).canonicalize();
            path.map_err(|error| format!("{}: {error}; build it first", binaries.join(name).display()))
        };
        let (cellmate, fake) = (found("cellmate")?, found("fake-mcp")?);
        let folder = std::env::temp_dir().join(format!("cellmate-fleet-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let fleet = Self { folder, cellmate, fake };
        let mut entries = Map::new();
        for position in 0..servers {
            let script = json!({"tools": tools(position), "record": fleet.record(position)});
            std::fs::write(fleet.script(position), script.to_string())?;
            entries.insert(name(position), fleet.entry(&fleet.script(position)));
        }
        fleet.configure(Beside::Nothing, &entries)?;
        std::fs::write(
            fleet.folder.join("hanging.json"),
            json!({"on": {"initialize": [], "server/discover": []}}).to_string(),
        )?;
        for number in 0..HANGING {
            // These names sort first, so that these servers are started first.
            entries.insert(format!("a-{number}"), fleet.entry(&fleet.folder.join("hanging.json")));
        }
        fleet.configure(Beside::Hanging, &entries)?;
        Ok(fleet)
    }

    fn configure(&self, beside: Beside, servers: &Map<String, Value>) -> Result<()> {
        Ok(std::fs::write(self.config(beside), json!({"mcpServers": servers}).to_string())?)
    }

    fn config(&self, beside: Beside) -> PathBuf {
        self.folder.join(match beside {
            Beside::Nothing => "config.json",
            Beside::Hanging => "config-hanging.json",
        })
    }

    /// Trusted, because a call is repeated only if the server's read-only annotation is trusted.
    fn entry(&self, script: &Path) -> Value {
        json!({
            "command": self.fake,
            "args": [script],
            "env": {MARK: self.mark()},
            "trusted": true,
        })
    }

    pub(crate) fn mark(&self) -> String {
        self.folder.display().to_string()
    }

    pub(crate) fn script(&self, position: usize) -> PathBuf {
        self.folder.join(format!("server-{position:02}.json"))
    }

    /// The file in which a server records its input.
    pub(crate) fn record(&self, position: usize) -> PathBuf {
        self.folder.join(format!("record-{position:02}"))
    }

    /// Starts one server, without `cellmate` in between.
    pub(crate) fn server(&self, position: usize) -> Result<McpClient> {
        let mut command = Command::new(&self.fake);
        command.arg(self.script(position)).env(MARK, self.mark());
        McpClient::start(command)
    }

    /// Returns a new state folder.
    pub(crate) fn new_state(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.folder.join(format!("state-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Starts `cellmate mcp` in front of all servers, without stopping idle ones.
    pub(crate) fn serve(&self, state: &Path) -> Result<McpClient> {
        self.start(Beside::Nothing, state, 0)
    }

    /// Starts `cellmate mcp` in front of all servers; idle ones are stopped after `idle_stop` seconds.
    pub(crate) fn serve_stopping(&self, state: &Path, idle_stop: u32) -> Result<McpClient> {
        self.start(Beside::Nothing, state, idle_stop)
    }

    /// Starts `cellmate mcp` in front of all servers and of [`HANGING`] more that do not answer.
    pub(crate) fn serve_beside_hanging(&self, state: &Path) -> Result<McpClient> {
        self.start(Beside::Hanging, state, 0)
    }

    fn start(&self, beside: Beside, state: &Path, idle_stop: u32) -> Result<McpClient> {
        let mut command = Command::new(&self.cellmate);
        command.arg("mcp").arg("--config").arg(self.config(beside)).arg("--state-dir").arg(state);
        command.args(["--ask-nobody", "--idle-stop", &idle_stop.to_string()]);
        command.env(MARK, self.mark()).env_remove("CELLMATE_CONFIG").stderr(self.stderr_file()?);
        McpClient::start(command)
    }

    /// The file for `cellmate`'s standard error, which is not part of the table.
    fn stderr_file(&self) -> Result<File> {
        Ok(File::options().create(true).append(true).open(self.folder.join("stderr"))?)
    }

    /// The last lines of `cellmate`'s standard error.
    pub(crate) fn last_stderr(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(SHOWN_STDERR_LINES)..).unwrap_or_default().join("\n")
    }
}
