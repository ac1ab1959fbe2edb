//! Starts configured servers concurrently and reports which of them work.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_config::ServerEntry;
use contract::text;
use executor::ToolSource;
use mcp::{ConnectError, ConnectFailure, Server, Transport};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::filtered_tools::count_tools;
use crate::progress::{StartOutcome, StartProgress, StartingServer, announcing};

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
    /// The names of variables that the server did not get; those that it probably lacks come first.
    pub(crate) not_passed: Vec<String>,
}

impl ProbeFailure {
    /// Returns the last lines of what it wrote to its standard error.
    pub(crate) fn excerpt(&self) -> Vec<String> {
        process::excerpt(&self.stderr.join("\n"))
    }
}

/// Starts all servers, and returns when each has started or failed, in the given order.
///
/// Stores each tool list or failure in the folder `lists`, if given.
pub(crate) async fn probe_all(servers: Vec<ServerEntry>, lists: Option<PathBuf>) -> Vec<ProbeResult> {
    let permits = Arc::new(Semaphore::new(MAX_STARTING));
    let progress = StartProgress::of(servers.iter().map(StartingServer::entry).collect());
    let mut probes = JoinSet::new();
    for (position, entry) in servers.into_iter().enumerate() {
        let (permits, lists) = (Arc::clone(&permits), lists.clone());
        probes.spawn(async move {
            let _permit = permits.acquire().await;
            (position, probe(entry, lists.as_deref()).await)
        });
    }
    let mut results = collect(probes, progress).await;
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Waits for all probes, and reports each as it ends.
async fn collect(mut probes: JoinSet<(usize, ProbeResult)>, progress: StartProgress) -> Vec<(usize, ProbeResult)> {
    let progress = Mutex::new(progress);
    let collected = async {
        let mut results = Vec::new();
        while let Some(ended) = probes.join_next().await {
            match ended {
                Ok((position, result)) => {
                    let outcome = match &result.server {
                        Ok(server) => StartOutcome::Started { tools: count_tools(&server.tools()) },
                        Err(_) => StartOutcome::Failed,
                    };
                    progress.lock().finished(&result.entry.name, outcome, result.took);
                    results.push((position, result));
                }
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // Probes are not cancelled.
                    Err(error) => tracing::error!(%error, "the test of a server was cancelled"),
                },
            }
        }
        results
    };
    announcing(&progress, collected).await
}

async fn probe(entry: ServerEntry, lists: Option<&Path>) -> ProbeResult {
    let began = Instant::now();
    let spec = entry.spec();
    let server = Server::connect(spec.clone()).await.map_err(|error| {
        // Names of variables are searched in the output before secrets are masked, which can mask a name, too.
        let not_passed = likely_first(&error, &entry);
        let stderr = entry.without_secrets(&error.stderr);
        ConnectError { stderr, not_passed, ..error }
    });
    let took = began.elapsed();
    if let Some(lists) = lists {
        mcp::remember(lists, &spec, &server);
    }
    let server = server.map_err(|error| ProbeFailure {
        why: entry.without_secrets(&why(&error, &entry)),
        stderr: last_lines(&error.stderr),
        not_passed: error.not_passed,
    });
    ProbeResult { entry, took, server }
}

/// Describes the failure, and what to do next.
fn why(error: &ConnectError, entry: &ServerEntry) -> String {
    match (&error.why, &entry.transport) {
        (ConnectFailure::Deadline(limit), Transport::Stdio { .. }) => {
            let by_hand = format!(
                "it was not ready within {} s; run its command once by hand (`{}`) to see what it waits for, or raise \
                 `startupTimeoutMs` in its entry",
                limit.as_secs_f64(),
                entry.shown
            );
            error.reason().replacen(&error.why.to_string(), &by_hand, 1)
        }
        _ => error.reason(),
    }
}

/// How many names of variables are shown.
const MAX_NOT_PASSED: usize = 12;

/// How names of variables end that hold credentials, which most servers need.
const CREDENTIALS: [&str; 4] = ["TOKEN", "KEY", "SECRET", "PASSWORD"];

/// Returns the names of the variables that a server did not get. Those that it may lack come first: those that its output
/// mentions, then those of credentials, then those that begin with a word of its name or command.
fn likely_first(error: &ConnectError, entry: &ServerEntry) -> Vec<String> {
    let command = match &entry.transport {
        Transport::Stdio { command, args, .. } => [command].into_iter().chain(args).map(String::as_str).collect(),
        Transport::Http { .. } => Vec::new(),
    };
    sorted_by_likelihood(error.not_passed.clone(), &error.stderr, &[&[entry.name.as_str()], &command[..]].concat())
}

fn sorted_by_likelihood(mut names: Vec<String>, output: &str, about: &[&str]) -> Vec<String> {
    let mentioned: BTreeSet<&str> = output.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let words = about.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()));
    let words: BTreeSet<String> = words.map(str::to_ascii_uppercase).collect();
    names.sort_by_key(|name| {
        let upper = name.to_ascii_uppercase();
        let is_credential = CREDENTIALS.iter().any(|end| upper.ends_with(end));
        let is_about = upper.split_once('_').is_some_and(|(prefix, _)| words.contains(prefix));
        (!mentioned.contains(name.as_str()), !is_credential, !is_about)
    });
    names
}

/// Returns a line about variables that the server did not get; `None` if there are none.
pub(super) fn not_passed_note(names: &[String]) -> Option<String> {
    let shown = names.get(..MAX_NOT_PASSED).unwrap_or(names);
    let more = names.len() - shown.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!shown.is_empty())
        .then(|| format!("not passed: {}{more}; to pass one, name it in the server's `env`", shown.join(", ")))
}

fn last_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(MAX_STDERR_LINES);
    lines.into_iter().skip(skipped).map(|line| text::line(line, usize::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_NOT_PASSED, not_passed_note, sorted_by_likelihood};

    #[test]
    fn variables_that_the_server_mentions_are_named_first_and_the_list_is_bounded() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let output = "error: $TOKEN is missing, see MY_B\n";
        let sorted = sorted_by_likelihood(names(&["AWS_PROFILE", "B", "TOKEN"]), output, &[]);
        assert_eq!(sorted, ["TOKEN", "AWS_PROFILE", "B"]);
        assert_eq!(not_passed_note(&[]), None);
        let note = "not passed: TOKEN, AWS_PROFILE, B; to pass one, name it in the server's `env`";
        assert_eq!(not_passed_note(&sorted).as_deref(), Some(note));
        let many: Vec<String> = (0..MAX_NOT_PASSED + 5).map(|number| format!("V{number}")).collect();
        assert!(not_passed_note(&many).is_some_and(|note| note.contains("V11 and 5 more; to pass one")));
    }

    #[test]
    fn credentials_and_variables_of_the_servers_name_or_command_come_before_others() {
        let given = [
            "AWS_PROFILE",
            "FOO",
            "GITHUB_HOST",
            "GITHUB_TOKEN",
            "OPENAI_API_KEY",
            "WEATHER_UNIT",
            "ZZ",
            "db_password",
        ];
        let about = ["my-weather", "npx", "@modelcontextprotocol/server-github"];
        let sorted = sorted_by_likelihood(given.map(str::to_owned).to_vec(), "ZZ is not set", &about);
        let expected = [
            "ZZ",
            "GITHUB_TOKEN",
            "OPENAI_API_KEY",
            "db_password",
            "GITHUB_HOST",
            "WEATHER_UNIT",
            "AWS_PROFILE",
            "FOO",
        ];
        assert_eq!(sorted, expected);
    }
}
