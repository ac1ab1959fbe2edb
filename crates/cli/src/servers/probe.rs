//! Starts configured servers concurrently and reports which of them work.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_config::ServerEntry;
use contract::text;
use mcp::{ConnectFailure, Server};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many servers are started at once: package runners take much CPU and memory.
const MAX_STARTING: usize = 16;

/// How many of the last lines of a server's standard error are shown.
const MAX_STDERR_LINES: usize = 20;

/// A server that was started, or the reason why it failed.
#[derive(Debug)]
pub(crate) struct ProbeResult {
    pub(crate) entry: ServerEntry,
    pub(crate) took: Duration,
    pub(crate) server: Result<Arc<Server>, ProbeFailure>,
}

/// Why a server could not be started.
#[derive(Debug)]
pub(crate) struct ProbeFailure {
    pub(crate) why: String,
    /// The end of what it wrote to its standard error, without the secrets it was given.
    pub(crate) stderr: Vec<String>,
}

/// Starts all servers, and returns when each has started or failed, in the given order.
///
/// Stores each tool list or failure in the folder `lists`, if given.
pub(crate) async fn probe_all(servers: Vec<ServerEntry>, lists: Option<PathBuf>) -> Vec<ProbeResult> {
    let permits = Arc::new(Semaphore::new(MAX_STARTING));
    let mut probes = JoinSet::new();
    for (position, entry) in servers.into_iter().enumerate() {
        let (permits, lists) = (Arc::clone(&permits), lists.clone());
        probes.spawn(async move {
            let _permit = permits.acquire().await;
            (position, probe(entry, lists.as_deref()).await)
        });
    }
    let mut results = probes.join_all().await;
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

async fn probe(entry: ServerEntry, lists: Option<&Path>) -> ProbeResult {
    let began = Instant::now();
    let spec = entry.spec();
    let server = Server::connect(spec.clone()).await;
    let took = began.elapsed();
    if let Some(lists) = lists {
        mcp::remember(lists, &spec, &server);
    }
    let server = server.map_err(|error| ProbeFailure {
        why: entry.without_secrets(&why(&error.why)),
        stderr: last_lines(&entry.without_secrets(&error.stderr)),
    });
    ProbeResult { entry, took, server }
}

/// Describes the failure, naming the setting that can help.
fn why(failure: &ConnectFailure) -> String {
    match failure {
        ConnectFailure::Deadline(limit) => format!(
            "it was not ready within {} ms; check its standard error, or raise `startupTimeoutMs` in its entry",
            limit.as_millis()
        ),
        other => other.to_string(),
    }
}

fn last_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(MAX_STDERR_LINES);
    lines.into_iter().skip(skipped).map(|line| text::line(line, usize::MAX)).collect()
}
