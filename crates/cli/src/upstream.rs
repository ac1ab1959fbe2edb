//! The configured MCP servers of this process: offered with their stored tool lists, started when first called.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client_config::{Loaded, ServerEntry, display};
use executor::ToolSource;
use mcp::server::OfferedSources;
use mcp::{Unavailable, UpstreamOptions, Upstreams};
use tokio::sync::watch;

use crate::log::CONSOLE;
use crate::servers::FilteredTools;
use crate::unusable::unusable_servers;

/// All enabled servers. None is started on creation.
#[derive(Clone)]
pub(crate) struct Servers {
    upstreams: Arc<Upstreams>,
    sources: Vec<Arc<dyn ToolSource>>,
}

impl Servers {
    /// Creates the servers. Tool lists are stored in `lists`; a process without calls for `idle_stop` is stopped.
    pub(crate) fn new(entries: &[ServerEntry], lists: PathBuf, idle_stop: Option<Duration>) -> Self {
        let entries: Vec<&ServerEntry> = entries.iter().filter(|entry| entry.enabled).collect();
        let options = UpstreamOptions { cache_dir: Some(lists), idle_stop, ..UpstreamOptions::DEFAULT };
        let upstreams = Upstreams::new(entries.iter().map(|entry| entry.spec()).collect(), &options);
        let source = |entry: &&ServerEntry| -> Option<Arc<dyn ToolSource>> {
            let upstream: Arc<dyn ToolSource> = upstreams.get(&entry.name).ok()?.clone();
            Some(Arc::new(FilteredTools::new(upstream, entry)))
        };
        let sources = entries.iter().filter_map(source).collect();
        Self { upstreams: Arc::new(upstreams), sources }
    }

    /// Adds the configured servers that cannot be started, so that models read why they cannot be called.
    pub(crate) fn naming_unusable(mut self, loaded: &Loaded) -> Self {
        self.sources.extend(unusable_servers(&loaded.servers, &loaded.problems));
        self
    }

    /// Offers the stored tool lists at once and fresh ones as servers return them, until the receiver is dropped.
    pub(crate) async fn offer(self, offered: watch::Sender<OfferedSources>) {
        offered.send_modify(|offered| offered.sources.clone_from(&self.sources));
        let mut changes = self.upstreams.changes();
        let listing = self.upstreams.listed();
        tokio::pin!(listing);
        let mut is_listed = false;
        loop {
            tokio::select! {
                missing = &mut listing, if !is_listed => {
                    is_listed = true;
                    missing.iter().for_each(report);
                    offered.send_modify(|offered| offered.settled = true);
                }
                changed = changes.changed() => match changed {
                    Ok(()) => offered.send_modify(|_| {}),
                    Err(_) => return,
                },
                () = offered.closed() => return,
            }
        }
    }

    pub(crate) fn sources(&self) -> Vec<Arc<dyn ToolSource>> {
        self.sources.clone()
    }

    /// Starts the servers whose tools are not known yet, waits for their lists, and reports those that failed.
    pub(crate) async fn wait_for_lists(&self) {
        self.upstreams.listed().await.iter().for_each(report);
    }

    pub(crate) async fn stop(&self) {
        self.upstreams.stop_all().await;
    }
}

fn report((name, why): &(String, Unavailable)) {
    // Expected at shutdown.
    if matches!(why, Unavailable::Retired | Unavailable::Stopped) {
        return;
    }
    let (name, why) = (display::plain(name), contract::text::line(&why.to_string(), MAX_SHOWN_CHARS));
    tracing::warn!(target: CONSOLE, server = name, why, "a server is not available");
    eprintln!("cellmate: server `{name}` is not available: {why}; run `cellmate servers test {name}` for details");
}

/// The longest reason for an unavailable server that is printed.
const MAX_SHOWN_CHARS: usize = 500;
