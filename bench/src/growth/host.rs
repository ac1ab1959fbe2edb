//! A `cellmate mcp` process with its state in a folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use figures::machine::{peak_bytes, resident_bytes};
use figures::{Answer, McpClient};
use serde_json::{Value, json};

use super::{beside, files_bytes};
use crate::Result;

/// Where `cellmate mcp` has its configuration and state.
pub(super) struct Home {
    folder: PathBuf,
    cellmate: PathBuf,
}

impl Home {
    /// Prepares a folder. Its limits allow as many suspended runs, and for as long, as the largest point needs.
    pub(super) fn new(folder: &Path, servers: &Value) -> Result<Self> {
        let config = json!({
            "mcpServers": servers,
            "tools": {"codeMode": {"enabled": true, "maxLiveRuns": 1_000_000, "snapshotTtlSeconds": 86_400}},
            "store": {"perPrincipal": {"maxWaitingRuns": 1_000_000, "maxStoredBytes": 1_u64 << 36}},
        });
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("config.json5"), config.to_string())?;
        Ok(Self { folder: folder.to_owned(), cellmate: beside("cellmate")? })
    }

    pub(super) fn start(&self) -> Result<McpClient> {
        let mut command = Command::new(&self.cellmate);
        command.arg("mcp").arg("--config").arg(self.folder.join("config.json5"));
        command.arg("--state-dir").arg(self.folder.join("state")).args(["--ask-nobody", "--idle-stop", "0"]);
        command.env("HOME", &self.folder).current_dir(&self.folder).env_remove("CELLMATE_CONFIG");
        command.stderr(File::options().create(true).append(true).open(self.folder.join("stderr"))?);
        McpClient::start(command)
    }

    pub(super) fn store_bytes(&self) -> Result<u64> {
        files_bytes(&self.folder.join("state"), "runs.db")
    }
}

/// Memory of `cellmate` itself in bytes, without its workers: now, and at most since its start.
pub(super) fn memory(client: &McpClient) -> Result<(u64, u64)> {
    let process = client.pid().to_string();
    Ok((resident_bytes(&process)?, peak_bytes(&process)?))
}

/// The result of a cell or of `wait`.
pub(super) fn content<'a>(answer: &'a Answer, field: &str) -> &'a Value {
    answer.result.get("structuredContent").and_then(|content| content.get(field)).unwrap_or(&Value::Null)
}
