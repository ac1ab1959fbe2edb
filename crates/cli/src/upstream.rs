//! The configured MCP servers of this process: offered with their stored tool lists, started when first called.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client_config::{LoadedConfig, ServerEntry, display};
use executor::ToolSource;
use mcp::server::OfferedSources;
use mcp::{Unavailable, Upstream, UpstreamOptions, Upstreams};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::log::CONSOLE;
use crate::progress::{StartOutcome, StartProgress, announcing};
use crate::servers::{FilteredTools, count_tools};
use crate::unusable::unusable_servers;

/// When servers that failed to list their tools are started again. A server that has failed too often is not started
/// for a while in any case.
const RETRY_DELAYS: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];
const LAST_RETRY_DELAY: Duration = Duration::from_secs(300);

/// All enabled servers. None is started on creation.
#[derive(Clone)]
pub(crate) struct Servers {
    upstreams: Arc<Upstreams>,
    options: UpstreamOptions,
    sources: Vec<Arc<dyn ToolSource>>,
    /// Servers whose failure to start has not been reported.
    unreported: BTreeSet<String>,
}

impl Servers {
    /// Creates the servers. Tool lists are stored in `lists`; a process without calls for `idle_stop` is stopped.
    pub(crate) fn new(loaded: &LoadedConfig, lists: PathBuf, idle_stop: Option<Duration>) -> Self {
        let options = UpstreamOptions { cache_dir: Some(lists), idle_stop, ..UpstreamOptions::DEFAULT };
        let none = Upstreams::new(Vec::new(), &options);
        let none = Self { upstreams: Arc::new(none), options, sources: Vec::new(), unreported: BTreeSet::new() };
        none.reconfigured(loaded).0
    }

    /// Returns the servers of a changed configuration, and those that are no longer part of it. Servers whose entry
    /// has not changed are kept as they are, running or not. Configured servers that cannot be started are named with the
    /// reason, so that models read why they cannot be called.
    pub(crate) fn reconfigured(&self, loaded: &LoadedConfig) -> (Self, Vec<Arc<Upstream>>) {
        let entries: Vec<&ServerEntry> = loaded.servers.iter().filter(|entry| entry.enabled).collect();
        let specs = entries.iter().map(|entry| entry.spec()).collect();
        let (upstreams, removed) = self.upstreams.reconfigured(specs, &self.options);
        let source = |entry: &&ServerEntry| -> Option<Arc<dyn ToolSource>> {
            let upstream: Arc<dyn ToolSource> = upstreams.get(&entry.name).ok()?.clone();
            Some(Arc::new(FilteredTools::new(upstream, entry)))
        };
        let unusable = unusable_servers(&loaded.servers, &loaded.problems);
        let sources = entries.iter().filter_map(source).chain(unusable).collect();
        let is_kept = |name: &str| match (self.upstreams.get(name), upstreams.get(name)) {
            (Ok(before), Ok(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let unreported = entries.iter().map(|entry| entry.name.clone()).filter(|name| !is_kept(name)).collect();
        (Self { upstreams: Arc::new(upstreams), options: self.options.clone(), sources, unreported }, removed)
    }

    /// Returns the sources of the servers' tools.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn ToolSource>> {
        self.sources.clone()
    }

    /// Offers the stored tool lists at once and fresh ones as servers return them, until the receiver is dropped.
    pub(crate) async fn offer(self, offered: watch::Sender<OfferedSources>) {
        offered.send_modify(|offered| offered.sources.clone_from(&self.sources));
        let mut changes = self.upstreams.changes();
        // Each failure is reported at once: another server may take long.
        let listing = async {
            let listing = self.upstreams.listed_each(|server, why, _| {
                if let Some(why) = why.filter(|_| self.unreported.contains(server.name())) {
                    report(server.name(), why);
                }
            });
            let mut missing = listing.await;
            offered.send_modify(|offered| offered.settled = true);
            // Nothing else would start a server without tools: a model cannot call it.
            let mut delays = RETRY_DELAYS.into_iter().chain(std::iter::repeat(LAST_RETRY_DELAY));
            while let Some(delay) = delays.next().filter(|_| !missing.is_empty()) {
                tokio::time::sleep(delay).await;
                missing = self.upstreams.listed().await;
            }
        };
        tokio::pin!(listing);
        let mut is_listed = false;
        loop {
            tokio::select! {
                () = &mut listing, if !is_listed => is_listed = true,
                changed = changes.changed() => match changed {
                    Ok(()) => offered.send_modify(|_| {}),
                    Err(_) => return,
                },
                () = offered.closed() => return,
            }
        }
    }

    /// Starts the servers whose tools are not known yet, waits for their lists, and reports those that failed.
    pub(crate) async fn wait_for_lists(&self) {
        let starting = self.upstreams.statuses().into_iter().filter(|status| status.listed_at.is_none());
        let starting: BTreeSet<String> = starting.map(|status| status.name).collect();
        let progress = Mutex::new(StartProgress::of(starting.len()));
        let listing = self.upstreams.listed_each(|server, why, took| {
            if starting.contains(server.name()) {
                let outcome = match why {
                    Some(_) => StartOutcome::Failed,
                    None => StartOutcome::Started { tools: count_tools(&server.tools()) },
                };
                progress.lock().finished(server.name(), outcome, took);
            }
            if let Some(why) = why {
                report(server.name(), why);
            }
        });
        announcing(&progress, listing).await;
    }

    pub(crate) async fn stop(&self) {
        self.upstreams.stop_all().await;
    }
}

fn report(name: &str, why: &Unavailable) {
    // Expected at shutdown, and after a change of the configuration.
    if matches!(why, Unavailable::Retired | Unavailable::Stopped | Unavailable::Removed) {
        return;
    }
    let (name, why) = (display::plain(name), contract::text::line(&why.to_string(), MAX_SHOWN_CHARS));
    tracing::warn!(target: CONSOLE, server = name, why, "a server is not available");
    eprintln!("cellmate: server `{name}` is not available: {why}; run `cellmate servers test {name}` for details");
}

/// The longest reason for an unavailable server that is printed.
const MAX_SHOWN_CHARS: usize = 500;
