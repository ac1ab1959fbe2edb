//! The fleet on disk: a script for each server, and one configuration that names them all.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

use crate::Result;
use crate::client::Client;
use crate::offer::{SERVERS, tools};

/// Every process that belongs to the fleet has this in its environment, with the fleet's folder as value.
pub(crate) const MARK: &str = "CELLMATE_BENCH_FLEET";

/// Removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    folder: PathBuf,
    cellmate: PathBuf,
    fake: PathBuf,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("bench-servers: {} is left behind: {error}", self.folder.display());
        }
    }
}

impl Fleet {
    pub(crate) fn prepare(binaries: &Path) -> Result<Self> {
        let found = |name: &str| {
            let path = binaries.join(name).canonicalize();
            path.map_err(|error| format!("{}: {error}; build it first", binaries.join(name).display()))
        };
        let (cellmate, fake) = (found("cellmate")?, found("fake-mcp")?);
        let folder = std::env::temp_dir().join(format!("cellmate-fleet-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let fleet = Self { folder, cellmate, fake };
        let mut servers = Map::new();
        for (position, name) in SERVERS.iter().enumerate() {
            let script = json!({"tools": tools(position), "record": fleet.heard(position)});
            std::fs::write(fleet.script(position), script.to_string())?;
            servers.insert((*name).to_owned(), fleet.entry(position));
        }
        std::fs::write(fleet.folder.join("config.json"), json!({"mcpServers": servers}).to_string())?;
        Ok(fleet)
    }

    /// Trusted, because a call may be repeated only where the server is believed that its tool reads.
    fn entry(&self, position: usize) -> Value {
        json!({
            "command": self.fake,
            "args": [self.script(position)],
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

    /// What a server wrote down of what it heard.
    pub(crate) fn heard(&self, position: usize) -> PathBuf {
        self.folder.join(format!("heard-{position:02}"))
    }

    /// One server, without us in between.
    pub(crate) fn server(&self, position: usize) -> Result<Client> {
        let mut command = Command::new(&self.fake);
        command.arg(self.script(position)).env(MARK, self.mark());
        Client::start(command)
    }

    /// A folder for state that nobody has used before.
    pub(crate) fn new_state(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.folder.join(format!("state-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// `cellmate mcp` in front of all servers, none of which is stopped for idleness.
    pub(crate) fn serve(&self, state: &Path) -> Result<Client> {
        self.serve_stopping(state, 0)
    }

    /// The same; servers that nobody calls are stopped after so many seconds.
    pub(crate) fn serve_stopping(&self, state: &Path, idle_stop: u32) -> Result<Client> {
        let mut command = Command::new(&self.cellmate);
        command.arg("mcp").arg("--config").arg(self.folder.join("config.json")).arg("--state-dir").arg(state);
        command.args(["--ask-nobody", "--idle-stop", &idle_stop.to_string()]);
        command.env(MARK, self.mark()).env_remove("CELLMATE_CONFIG");
        Client::start(command)
    }
}
