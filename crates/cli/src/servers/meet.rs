//! Starting configured servers, all at once, each with its own luck.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::text;
use mcp::{ConnectFailure, Server, Transport};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::{ServerEntry, shown};

/// Servers that are being started at one time: package runners are hungry.
const MAX_STARTING: usize = 16;

/// What is shown of a server's standard error.
const MAX_STDERR_LINES: usize = 20;

/// Values shorter than this are too common to be looked for.
const MIN_SECRET_BYTES: usize = 5;

/// One server, met or missed.
#[derive(Debug)]
pub(crate) struct ProbeResult {
    pub(crate) entry: ServerEntry,
    pub(crate) took: Duration,
    pub(crate) server: Result<Arc<Server>, Missed>,
}

/// Why a server is not there.
#[derive(Debug)]
pub(crate) struct Missed {
    pub(crate) why: String,
    /// The end of what it wrote to its standard error, without the secrets it was given.
    pub(crate) stderr: Vec<String>,
}

/// In the order given, when the last has started or failed. What came of it is kept in the folder, if there is one.
pub(crate) async fn meet(servers: Vec<ServerEntry>, lists: Option<PathBuf>) -> Vec<ProbeResult> {
    let places = Arc::new(Semaphore::new(MAX_STARTING));
    let mut meeting = JoinSet::new();
    for (position, entry) in servers.into_iter().enumerate() {
        let (places, lists) = (Arc::clone(&places), lists.clone());
        meeting.spawn(async move {
            let _place = places.acquire().await;
            (position, meet_one(entry, lists.as_deref()).await)
        });
    }
    let mut met = meeting.join_all().await;
    met.sort_by_key(|(position, _)| *position);
    met.into_iter().map(|(_, met)| met).collect()
}

async fn meet_one(entry: ServerEntry, lists: Option<&Path>) -> ProbeResult {
    let began = Instant::now();
    let spec = entry.spec();
    let server = Server::connect(spec.clone()).await;
    let took = began.elapsed();
    if let Some(lists) = lists {
        mcp::remember(lists, &spec, &server);
    }
    let server = server.map_err(|error| Missed {
        why: without_secrets(&why(&error.why), &entry),
        stderr: last_lines(&without_secrets(&error.stderr, &entry)),
    });
    ProbeResult { entry, took, server }
}

/// In the words of who can do something about it here.
fn why(failure: &ConnectFailure) -> String {
    match failure {
        ConnectFailure::Deadline(limit) => format!(
            "it was not ready within {} ms; see what it wrote to its standard error, or raise `startupTimeoutMs` in its entry",
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

/// Servers repeat what they were given when they complain about it.
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

/// Those that are not shown as they are: they look like a secret, or came from a variable. A path is neither.
fn hidden_arguments<'a>(args: &'a [String], shown: &str) -> impl Iterator<Item = &'a String> {
    args.iter().filter(move |arg| !arg.starts_with('/') && !shown.contains(arg.as_str()))
}
