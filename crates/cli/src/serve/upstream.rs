//! The servers behind us, connected while clients are served already.

use std::sync::Arc;

use executor::ToolSource;
use mcp::server::Offered;
use mcp::{Server, ServerSpec};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Connects all at once. One that cannot be had is reported and left out; the others are there as soon as they are.
pub(super) async fn connect(servers: Vec<ServerSpec>, offered: watch::Sender<Offered>) {
    let mut connecting = JoinSet::new();
    for spec in servers {
        connecting.spawn(Server::connect(spec));
    }
    while let Some(connected) = connecting.join_next().await {
        match connected {
            Ok(Ok(server)) => {
                for left_out in server.left_out() {
                    eprintln!("cellmate: a tool of MCP server `{}` is left out: {left_out:?}", server.name());
                }
                offered.send_modify(|offered| add(&mut offered.sources, server));
            }
            Ok(Err(error)) => {
                eprintln!("cellmate: {error}");
                for line in error.stderr.lines() {
                    eprintln!("cellmate: {}: {}", error.server, mcp::server::plain(line, 500));
                }
            }
            Err(error) => eprintln!("cellmate: {error}"),
        }
    }
    offered.send_modify(|offered| offered.settled = true);
    // What is offered stands for as long as anybody looks.
    offered.closed().await;
}

/// In the order of their names, so that equal servers give equal catalogs whoever was quicker.
fn add(sources: &mut Vec<Arc<dyn ToolSource>>, server: Arc<Server>) {
    sources.push(server);
    sources.sort_by_key(|source| source.tools().into_iter().next().map(|tool| tool.id));
}
