//! Progress of servers that start: a line for each as it finishes, on standard error, only on a terminal.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use client_config::{ServerEntry, display};
use mcp::Upstream;
use parking_lot::Mutex;

use crate::style::{Stream, Style, paint};

/// How long the first server may take before a line says what the command waits for.
const SILENT_FOR: Duration = Duration::from_millis(500);

/// How often a line says which servers are still starting.
const REMINDER: Duration = Duration::from_secs(20);

/// A server that is being started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartingServer {
    pub(crate) name: String,
    pub(crate) may_download: bool,
}

impl StartingServer {
    pub(crate) fn of(server: &Upstream) -> Self {
        Self { name: server.name().to_owned(), may_download: server.may_download() }
    }

    pub(crate) fn entry(entry: &ServerEntry) -> Self {
        Self { name: entry.name.clone(), may_download: entry.transport.may_download() }
    }
}

/// Reports on servers as they finish starting.
#[derive(Debug)]
pub(crate) struct StartProgress {
    total: usize,
    /// The servers that have not finished starting.
    starting: Vec<StartingServer>,
    finished: usize,
    began: Instant,
    is_shown: bool,
    announced: bool,
}

/// How the start of a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartOutcome {
    Started {
        tools: usize,
    },
    Failed,
    /// The server is still starting, and the command continues without it.
    NotAwaited,
}

impl StartProgress {
    /// Begins to report on these servers.
    pub(crate) fn of(starting: Vec<StartingServer>) -> Self {
        let total = starting.len();
        let is_shown = total > 0 && std::io::stderr().is_terminal();
        Self { total, starting, finished: 0, began: Instant::now(), is_shown, announced: false }
    }

    /// Returns when to call `announce`, if no server finishes before.
    fn announce_at(&self) -> Option<Instant> {
        (self.is_shown && !self.announced).then(|| self.began + SILENT_FOR)
    }

    /// Says that servers are starting, unless one has already finished.
    fn announce(&mut self) {
        if self.is_shown && !self.announced {
            eprintln!("{}", paint(&starting(&self.starting), Style::Dim, Stream::Err));
        }
        self.announced = true;
    }

    /// Says which servers are still starting.
    fn remind(&self) {
        if self.is_shown && !self.starting.is_empty() {
            let line = still_starting(&self.starting, self.began.elapsed());
            eprintln!("{}", paint(&line, Style::Dim, Stream::Err));
        }
    }

    /// Reports on one server.
    pub(crate) fn finished(&mut self, name: &str, outcome: StartOutcome, took: Duration) {
        self.finished += 1;
        self.starting.retain(|server| server.name != name);
        self.announced = true;
        if self.is_shown {
            let style = match outcome {
                StartOutcome::Started { .. } | StartOutcome::NotAwaited => Style::Dim,
                StartOutcome::Failed => Style::Bad,
            };
            let line = line(self.finished, self.total, name, outcome, took);
            eprintln!("{}", paint(&line, style, Stream::Err));
        }
    }
}

/// Waits for the end of `starts`, and says that servers are starting if none of them finishes soon.
pub(crate) async fn announcing<T>(progress: &Mutex<StartProgress>, starts: impl Future<Output = T>) -> T {
    tokio::select! {
        done = starts => done,
        never = announce(progress) => match never {},
    }
}

/// Says that servers are starting if none of them finishes soon, and then which ones are still starting.
async fn announce(progress: &Mutex<StartProgress>) -> Infallible {
    let at = progress.lock().announce_at();
    if let Some(at) = at {
        tokio::time::sleep_until(at.into()).await;
        progress.lock().announce();
    }
    loop {
        tokio::time::sleep(REMINDER).await;
        progress.lock().remind();
    }
}

fn starting(starting: &[StartingServer]) -> String {
    let servers = match starting.len() {
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    };
    match starting.iter().any(|server| server.may_download) {
        true => format!("starting {servers}; downloading packages may take a few minutes…"),
        false => format!("starting {servers}…"),
    }
}

fn still_starting(servers: &[StartingServer], waited: Duration) -> String {
    let names: Vec<String> = servers.iter().map(|server| display::plain(&server.name)).collect();
    let downloading = servers.iter().any(|server| server.may_download);
    let may_download = if downloading { "; downloading packages may take a few minutes" } else { "" };
    format!("still starting after {} s: {}{may_download}", waited.as_secs(), names.join(", "))
}

fn line(finished: usize, total: usize, name: &str, outcome: StartOutcome, took: Duration) -> String {
    let what = match outcome {
        StartOutcome::Started { tools: 1 } => "1 tool".to_owned(),
        StartOutcome::Started { tools } => format!("{tools} tools"),
        StartOutcome::Failed => "failed".to_owned(),
        StartOutcome::NotAwaited => "still starting, not waited for".to_owned(),
    };
    format!("[{finished}/{total}] {}: {what} ({:.1} s)", display::plain(name), took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::{SILENT_FOR, StartOutcome, StartProgress, StartingServer, announcing, line, starting, still_starting};

    fn progress() -> Mutex<StartProgress> {
        let starting = vec![StartingServer { name: "s".to_owned(), may_download: false }];
        Mutex::new(StartProgress { is_shown: true, ..StartProgress::of(starting) })
    }

    #[tokio::test]
    async fn servers_that_take_long_are_announced_once() {
        let soon = progress();
        assert_eq!(announcing(&soon, std::future::ready(7)).await, 7);
        assert!(!soon.lock().announced);
        let late = progress();
        announcing(&late, tokio::time::sleep(SILENT_FOR * 2)).await;
        assert!(late.lock().announced && late.lock().announce_at().is_none());
    }

    #[test]
    fn a_line_counts_and_names_the_server() {
        let took = Duration::from_millis(1_240);
        let started = line(1, 3, "files", StartOutcome::Started { tools: 14 }, took);
        assert_eq!(started, "[1/3] files: 14 tools (1.2 s)");
        assert_eq!(line(2, 3, "a\u{1b}b", StartOutcome::Failed, took), "[2/3] a\\u{1b}b: failed (1.2 s)");
        let server = |name: &str, may_download| StartingServer { name: name.to_owned(), may_download };
        let servers = [server("a", false), server("b", true)];
        assert_eq!(starting(&servers[..1]), "starting 1 server…");
        assert_eq!(starting(&servers), "starting 2 servers; downloading packages may take a few minutes…");
        let both = still_starting(&servers, Duration::from_secs(40));
        assert_eq!(both, "still starting after 40 s: a, b; downloading packages may take a few minutes");
    }
}
