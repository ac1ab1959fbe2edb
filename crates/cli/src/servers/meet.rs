//! Starts configured servers concurrently and reports which of them work.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::text;
use mcp::{ConnectFailure, Server, Transport};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::{ServerEntry, shown};

/// How many servers are started at once: package runners take much CPU and memory.
const MAX_STARTING: usize = 16;

/// How many of the last lines of a server's standard error are shown.
const MAX_STDERR_LINES: usize = 20;

/// Shorter values are not masked: they are too common in other text.
const MIN_SECRET_BYTES: usize = 5;

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
        why: without_secrets(&why(&error.why), &entry),
        stderr: last_lines(&without_secrets(&error.stderr, &entry)),
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

/// Masks the secrets that a server was given: servers repeat them in their error messages.
pub(super) fn without_secrets(text: &str, entry: &ServerEntry) -> String {
    let values: Vec<&String> = match &entry.transport {
        Transport::Stdio { env, args, .. } => env.values().chain(hidden_arguments(args, &entry.shown)).collect(),
        Transport::Http { headers, url, login } => {
            let secret = login.as_ref().and_then(|login| login.client_secret.as_ref());
            headers.values().chain([url]).chain(secret).collect()
        }
    };
    let secrets = values.into_iter().flat_map(|value| value.split(' ')).filter(|word| word.len() >= MIN_SECRET_BYTES);
    secrets.fold(text.to_owned(), |text, secret| text.replace(secret, shown::HIDDEN))
}

/// Returns the arguments that look like a secret or came from a variable, which `shown` leaves out. A path is neither.
fn hidden_arguments<'a>(args: &'a [String], shown: &str) -> impl Iterator<Item = &'a String> {
    args.iter().filter(move |arg| !arg.starts_with('/') && !shown.contains(arg.as_str()))
}
