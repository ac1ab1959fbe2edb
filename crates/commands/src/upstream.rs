//! The configured MCP servers of this process: offered with their stored tool lists, started when first called.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client_config::{LoadedConfig, ServerEntry, display};
use executor::ToolSource;
use executor::clock::now_ms;
use mcp::server::OfferedSources;
use mcp::{Unavailable, Upstream, UpstreamOptions, Upstreams};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::hint;
use crate::log::CONSOLE;
use crate::named_words::NamedWords;
use crate::progress::{StartOutcome, StartProgress, StartingServer, announcing};
use crate::servers::{FilteredTools, count_tools};
use crate::unusable::unusable_servers;

/// When servers that failed to list their tools are started again. A server that has failed too often is not started
/// for a while in any case.
const RETRY_DELAYS: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];
const LAST_RETRY_DELAY: Duration = Duration::from_secs(300);

/// How long a server that starts delays readiness and the choice of a surface.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(30);

/// How long a command waits for the tools of a server that its cell does not name. `cellmate mcp` waits as long.
const MAX_LIST_WAIT: Duration = Duration::from_secs(10);

/// How long commands do not start a server that was not ready in time, unless their cell names it.
const REMEMBERED_MS: i64 = 10 * 60 * 1000;

/// How long the last standard error output of a server that has ended may take to arrive.
pub(crate) const STDERR_WAIT: Duration = Duration::from_millis(200);

/// All enabled servers. None is started on creation.
#[derive(Clone)]
pub(crate) struct Servers {
    upstreams: Arc<Upstreams>,
    options: UpstreamOptions,
    sources: Vec<Arc<dyn ToolSource>>,
    entries: Arc<[ServerEntry]>,
    /// Servers whose failure to start has not been reported.
    unreported: BTreeSet<String>,
}

impl Servers {
    /// Creates the servers. Tool lists are stored in `lists`; a process without calls for `idle_stop` is stopped.
    pub(crate) fn new(loaded: &LoadedConfig, lists: PathBuf, idle_stop: Option<Duration>) -> Self {
        let options = UpstreamOptions { cache_dir: Some(lists), idle_stop, ..UpstreamOptions::DEFAULT };
        let none = Upstreams::new(Vec::new(), &options);
        let none = Self {
            upstreams: Arc::new(none),
            options,
            sources: Vec::new(),
            entries: Arc::default(),
            unreported: BTreeSet::new(),
        };
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
        let entries = entries.into_iter().cloned().collect();
        let options = self.options.clone();
        (Self { upstreams: Arc::new(upstreams), options, sources, entries, unreported }, removed)
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
                    self.report(server, why);
                }
            });
            tokio::pin!(listing);
            let mut missing = match tokio::time::timeout(MAX_SETTLE_TIME, &mut listing).await {
                Ok(missing) => missing,
                // A download may take minutes; readiness and the choice of a surface do not wait for it.
                Err(_) => {
                    offered.send_modify(|offered| offered.settled = true);
                    listing.await
                }
            };
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

    /// Starts the servers whose tools are not known yet, waits for their lists, and reports those that are missing: with
    /// the reason, or only by name if a cell is given that does not name them.
    ///
    /// A server that the cell names is waited for until it is ready or fails. Others are waited for only for a moment,
    /// and not at all if they recently were not ready in time.
    pub(crate) async fn wait_for_lists(&self, cell: Option<&str>) {
        let words = cell.map(NamedWords::of).unwrap_or_default();
        let patience = |server: &Upstream| match server.status().last_failure {
            _ if words.contain(server.name()) => None,
            Some(failure) if failure.timed_out && now_ms().saturating_sub(failure.at) < REMEMBERED_MS => {
                Some(Duration::ZERO)
            }
            _ => Some(MAX_LIST_WAIT),
        };
        let is_started = |server: &&Upstream| {
            server.status().listed_at.is_none() && patience(server).is_none_or(|patience| !patience.is_zero())
        };
        let starting: Vec<StartingServer> = self.upstreams.all().filter(is_started).map(StartingServer::of).collect();
        let names: BTreeSet<String> = starting.iter().map(|server| server.name.clone()).collect();
        let progress = Mutex::new(StartProgress::of(starting));
        let unnamed = Mutex::new(Vec::new());
        let listing = self.upstreams.listed_within(patience, |server, why, took| {
            if names.contains(server.name()) {
                let outcome = match why {
                    Some(Unavailable::StillStarting { .. }) => StartOutcome::NotAwaited,
                    Some(_) => StartOutcome::Failed,
                    None => StartOutcome::Started { tools: count_tools(&server.tools()) },
                };
                progress.lock().finished(server.name(), outcome, took);
            }
            match why {
                Some(why) if cell.is_none() || words.contain(server.name()) => self.report(server, why),
                Some(_) => unnamed.lock().push(display::plain(server.name())),
                None => {}
            }
        });
        announcing(&progress, listing).await;
        let mut unnamed = unnamed.into_inner();
        unnamed.sort_unstable();
        report_unnamed(&unnamed);
    }

    /// Waits until no server that starts may be downloading its package: package runners such as `npx` leave a folder that
    /// does not work if they are interrupted. The user can interrupt the wait.
    pub(crate) async fn finish_downloads(&self) {
        let downloading: Vec<String> =
            self.upstreams.downloading().map(|server| format!("`{}`", display::plain(server.name()))).collect();
        if downloading.is_empty() {
            return;
        }
        eprintln!(
            "cellmate: waiting for {}, which may be downloading a package, so that the next command finds its tools; \
             Ctrl-C stops it",
            downloading.join(", ")
        );
        tokio::select! {
            missing = self.upstreams.finish_downloads() => {
                for (name, why) in &missing {
                    if let Ok(server) = self.upstreams.get(name) {
                        self.report(server, why);
                    }
                }
            }
            // Without a handler for the signal, it ends the command.
            Ok(()) = tokio::signal::ctrl_c() => {}
        }
    }

    /// Lets servers that may be downloading their packages finish that in the background when they are stopped.
    pub(crate) fn leave_downloads(&self) {
        self.upstreams.leave_downloads();
    }

    pub(crate) async fn stop(&self) {
        self.upstreams.stop_all().await;
    }

    /// Prints which servers that a cell names have failed since this time, with the end of their standard error: those
    /// that could not be started for a call, and those that ended during one.
    pub(crate) async fn report_failures_since(&self, began: i64, words: &NamedWords) {
        let has_failed = |server: &&Upstream| words.contain(server.name()) && failed_since(server, began);
        let failed: Vec<&Upstream> = self.upstreams.all().filter(has_failed).collect();
        if !failed.is_empty() {
            tokio::time::sleep(STDERR_WAIT).await;
        }
        for server in failed {
            if let Some(failure) = server.status().last_failure {
                let why = contract::text::line(&failure.message, MAX_SHOWN_CHARS);
                eprintln!("cellmate: server `{}` failed during the cell: {why}", display::plain(server.name()));
                self.print_stderr(server.name(), &failure.stderr);
            }
        }
    }

    /// Prints why a server is not available, with the end of its standard error if it did not start.
    fn report(&self, server: &Upstream, why: &Unavailable) {
        report(server.name(), why);
        if let (Unavailable::NotStarted(_), Some(failure)) = (why, server.status().last_failure) {
            self.print_stderr(server.name(), &failure.stderr);
        }
    }

    fn print_stderr(&self, name: &str, stderr: &str) {
        if let Some(entry) = self.entries.iter().find(|entry| entry.name == name) {
            let lines = process::excerpt(&entry.without_secrets(stderr));
            lines.iter().for_each(|line| eprintln!("      | {line}"));
        }
    }
}

fn report(name: &str, why: &Unavailable) {
    // Expected at shutdown, and after a change of the configuration.
    if matches!(why, Unavailable::ShuttingDown | Unavailable::Stopped | Unavailable::Removed) {
        return;
    }
    let (name, shown) = (display::plain(name), contract::text::line(&why.to_string(), MAX_SHOWN_CHARS));
    tracing::warn!(target: CONSOLE, server = name, why = shown, "a server is not available");
    let next = match why {
        Unavailable::StillStarting { .. } | Unavailable::FailedRecently(_) => {
            "to start it and to keep the list of its tools"
        }
        _ => "for details",
    };
    let test = hint::command(&format!("servers test {}", display::for_shell(&name)));
    eprintln!("cellmate: server `{name}` is not available: {shown}; run `{test}` {next}");
}

fn failed_since(server: &Upstream, began: i64) -> bool {
    server.status().last_failure.is_some_and(|failure| failure.at >= began)
}

/// Prints which servers that the cell does not name are not available.
fn report_unnamed(names: &[String]) {
    let quoted: Vec<String> = names.iter().take(MAX_NAMED_SERVERS).map(|name| format!("`{name}`")).collect();
    let message = match names {
        [] => return,
        [only] => {
            let test = hint::command(&format!("servers test {}", display::for_shell(only)));
            format!("server `{only}` is not available; run `{test}` for the reason")
        }
        [_, ..] => {
            let more = match names.len() - quoted.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let test = hint::command("servers test");
            format!("servers {}{more} are not available; run `{test}` for the reasons", quoted.join(", "))
        }
    };
    eprintln!("cellmate: {message}");
}

/// The most unavailable servers that are named in one line.
const MAX_NAMED_SERVERS: usize = 8;

/// The longest reason for an unavailable server that is printed.
const MAX_SHOWN_CHARS: usize = 500;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use client_config::Places;
    use mcp::server::OfferedSources;
    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::{MAX_SETTLE_TIME, Servers};

    /// The clock is simulated: it advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_still_starting_delays_readiness_only_for_a_limited_time() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.json5");
        let entry = "{ command: 'sleep', args: ['600'], startupTimeoutMs: 300000 }";
        std::fs::write(&config, format!("{{ mcpServers: {{ slow: {entry} }} }}")).unwrap();
        let variables = BTreeMap::from([("HOME".to_owned(), folder.path().display().to_string())]);
        let places = Places::of(&[config], folder.path().to_owned(), variables);
        let loaded = client_config::load(&places).unwrap();
        let servers = Servers::new(&loaded, folder.path().join("lists"), None);
        let (offer, mut offered) = watch::channel(OfferedSources::default());
        let began = Instant::now();
        let offering = tokio::spawn(servers.offer(offer));
        offered.wait_for(|offered| !offered.sources.is_empty()).await.unwrap();
        assert!(!offered.borrow().settled);
        offered.wait_for(|offered| offered.settled).await.unwrap();
        let settled = began.elapsed();
        assert!(settled >= MAX_SETTLE_TIME && settled < MAX_SETTLE_TIME * 2, "{settled:?}");
        assert!(!offering.is_finished(), "the server is still starting");
    }
}
