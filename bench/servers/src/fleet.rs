//! The fleet on disk: a script for each server, and one configuration that names them all.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

use crate::Result;
use crate::client::Client;
use crate::offer::{SERVERS, tools};

/// Every process that belongs to the fleet has this in its environment, with the fleet's folder as value.
pub(crate) const MARK: &str = "CELLMATE_BENCH_FLEET";

/// Servers that do not answer when they are started, where some are wanted beside the others.
pub(crate) const HANGING: usize = 8;

/// Lines of what `cellmate` says that are shown when something goes wrong.
const SHOWN_COMPLAINTS: usize = 10;

/// Who is configured beside the fleet.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nobody,
    Hanging,
}

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
            servers.insert((*name).to_owned(), fleet.entry(&fleet.script(position)));
        }
        fleet.configure(Beside::Nobody, &servers)?;
        std::fs::write(
            fleet.folder.join("hanging.json"),
            json!({"on": {"initialize": [], "server/discover": []}}).to_string(),
        )?;
        for number in 0..HANGING {
            // Named so that they are the first to be started.
            servers.insert(format!("a-{number}"), fleet.entry(&fleet.folder.join("hanging.json")));
        }
        fleet.configure(Beside::Hanging, &servers)?;
        Ok(fleet)
    }

    fn configure(&self, beside: Beside, servers: &Map<String, Value>) -> Result<()> {
        Ok(std::fs::write(self.config(beside), json!({"mcpServers": servers}).to_string())?)
    }

    fn config(&self, beside: Beside) -> PathBuf {
        self.folder.join(match beside {
            Beside::Nobody => "config.json",
            Beside::Hanging => "config-hanging.json",
        })
    }

    /// Trusted, because a call may be repeated only where the server is believed that its tool reads.
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
        self.start(Beside::Nobody, state, 0)
    }

    /// The same; servers that nobody calls are stopped after so many seconds.
    pub(crate) fn serve_stopping(&self, state: &Path, idle_stop: u32) -> Result<Client> {
        self.start(Beside::Nobody, state, idle_stop)
    }

    /// The same beside some that do not answer.
    pub(crate) fn serve_beside_hanging(&self, state: &Path) -> Result<Client> {
        self.start(Beside::Hanging, state, 0)
    }

    fn start(&self, beside: Beside, state: &Path, idle_stop: u32) -> Result<Client> {
        let mut command = Command::new(&self.cellmate);
        command.arg("mcp").arg("--config").arg(self.config(beside)).arg("--state-dir").arg(state);
        command.args(["--ask-nobody", "--idle-stop", &idle_stop.to_string()]);
        command.env(MARK, self.mark()).env_remove("CELLMATE_CONFIG").stderr(self.complaints()?);
        Client::start(command)
    }

    /// What `cellmate` says to people; kept out of the table.
    fn complaints(&self) -> Result<File> {
        Ok(File::options().create(true).append(true).open(self.folder.join("complaints"))?)
    }

    /// The end of that, for when something went wrong.
    pub(crate) fn last_complaints(&self) -> String {
        let said = std::fs::read_to_string(self.folder.join("complaints")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines.get(lines.len().saturating_sub(SHOWN_COMPLAINTS)..).unwrap_or_default().join("\n")
    }
}
