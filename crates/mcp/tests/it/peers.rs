//! Servers that nobody here wrote. `make test-peers` installs them and says where they are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use contract::tool::ToolSpec;
use executor::ToolSource;
use mcp::Server;
use serde_json::{Value, json};

use crate::fake::{Connected, Folder, limits, spec};

/// Where `scripts/test-peers` put them.
fn installed(path: &str) -> String {
    let peers = std::env::var_os("CELLMATE_PEERS").map(PathBuf::from);
    let path = peers.unwrap_or_else(|| panic!("run this through `make test-peers`")).join(path);
    path.to_str().unwrap().to_owned()
}

async fn start(command: &str, args: &[&str]) -> Connected {
    let server = Server::connect(spec(command, args, limits())).await;
    let server = server.unwrap_or_else(|error| panic!("{error}\n{}", error.stderr));
    assert!(server.left_out().is_empty(), "{:?}", server.left_out());
    Connected::over(server, Folder::new())
}

fn names(tools: &[ToolSpec]) -> Vec<&str> {
    tools.iter().map(|tool| tool.id.name()).collect()
}
