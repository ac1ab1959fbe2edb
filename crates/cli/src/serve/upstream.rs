//! The servers behind us, connected while clients are served already.

use std::sync::Arc;

use executor::ToolSource;
use mcp::server::Offered as Behind;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::config::ServerEntry;
use crate::servers::{Offered, meet};

/// Servers that are being started at one time: package runners are hungry.
const MAX_STARTING: usize = 16;

/// Connects all at once. One that cannot be had is reported and left out; the others are there as soon as they are.
pub(super) async fn connect(servers: Vec<ServerEntry>, behind: watch::Sender<Behind>) {
    let mut connecting = JoinSet::new();
    let places = Arc::new(Semaphore::new(MAX_STARTING));
    for entry in servers.into_iter().filter(|entry| entry.enabled) {
        let places = Arc::clone(&places);
        connecting.spawn(async move {
            let _place = places.acquire().await;
            meet(vec![entry]).await
        });
    }
    while let Some(met) = connecting.join_next().await {
        for met in met.unwrap_or_default() {
            match met.server {
                Ok(server) => {
                    for left_out in server.left_out() {
                        eprintln!("cellmate: a tool of server `{}` is left out: {left_out:?}", met.entry.name);
                    }
                    let offered: Arc<dyn ToolSource> = Arc::new(Offered::new(server, &met.entry));
                    behind.send_modify(|behind| add(&mut behind.sources, offered));
                }
                Err(missed) => {
                    eprintln!("cellmate: server `{}` is left out: {}", met.entry.name, missed.why);
                    for line in &missed.stderr {
                        eprintln!("cellmate: {}: {}", met.entry.name, mcp::server::plain(line, 500));
                    }
                }
            }
        }
    }
    behind.send_modify(|behind| behind.settled = true);
    // What is offered stands for as long as anybody looks.
    behind.closed().await;
}

/// In the order of their tools' names, so that equal servers give equal catalogs whoever was quicker.
fn add(sources: &mut Vec<Arc<dyn ToolSource>>, source: Arc<dyn ToolSource>) {
    sources.push(source);
    sources.sort_by_key(|source| source.tools().into_iter().next().map(|tool| tool.id));
}
