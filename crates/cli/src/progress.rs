//! Progress of servers that start: a line for each as it finishes, on standard error, only on a terminal.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use client_config::display;
use parking_lot::Mutex;

use crate::style::{Stream, Style, paint};

/// How long the first server may take before a line says what the command waits for.
const SILENT_FOR: Duration = Duration::from_millis(500);

/// Reports on servers as they finish starting.
#[derive(Debug)]
pub(crate) struct StartProgress {
    total: usize,
    finished: usize,
    began: Instant,
    is_shown: bool,
    announced: bool,
}

/// How the start of a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartOutcome {
    Started { tools: usize },
    Failed,
}

impl StartProgress {
    /// Begins to report on this many servers.
    pub(crate) fn of(total: usize) -> Self {
        let is_shown = total > 0 && std::io::stderr().is_terminal();
        Self { total, finished: 0, began: Instant::now(), is_shown, announced: false }
    }

    /// Returns when to call `announce`, if no server finishes before.
    fn announce_at(&self) -> Option<Instant> {
        (self.is_shown && !self.announced).then(|| self.began + SILENT_FOR)
    }

    /// Says that servers are starting, unless one has finished meanwhile.
    fn announce(&mut self) {
        if self.is_shown && !self.announced {
            eprintln!("{}", paint(&starting(self.total), Style::Dim, Stream::Err));
        }
        self.announced = true;
    }

    /// Reports on one server.
    pub(crate) fn finished(&mut self, name: &str, outcome: StartOutcome, took: Duration) {
        self.finished += 1;
        self.announced = true;
        if self.is_shown {
            let style = match outcome {
                StartOutcome::Started { .. } => Style::Dim,
                StartOutcome::Failed => Style::Bad,
            };
            let line = line(self.finished, self.total, name, outcome, took);
            eprintln!("{}", paint(&line, style, Stream::Err));
        }
    }
}

/// Waits for the end of `starts`, and says that servers are starting if none of them finishes soon.
pub(crate) async fn announcing<T>(progress: &Mutex<StartProgress>, starts: impl Future<Output = T>) -> T {
    let announce = async {
        let at = progress.lock().announce_at();
        if let Some(at) = at {
            tokio::time::sleep_until(at.into()).await;
            progress.lock().announce();
        }
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        done = starts => done,
        never = announce => match never {},
    }
}

fn starting(total: usize) -> String {
    match total {
        1 => "starting 1 server…".to_owned(),
        _ => format!("starting {total} servers…"),
    }
}

fn line(finished: usize, total: usize, name: &str, outcome: StartOutcome, took: Duration) -> String {
    let what = match outcome {
        StartOutcome::Started { tools: 1 } => "1 tool".to_owned(),
        StartOutcome::Started { tools } => format!("{tools} tools"),
        StartOutcome::Failed => "failed".to_owned(),
    };
    format!("[{finished}/{total}] {}: {what} ({:.1} s)", display::plain(name), took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::time::Instant;

    use parking_lot::Mutex;

    use super::{SILENT_FOR, StartOutcome, StartProgress, announcing, line, starting};

    fn progress() -> Mutex<StartProgress> {
        Mutex::new(StartProgress { total: 1, finished: 0, began: Instant::now(), is_shown: true, announced: false })
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
        assert_eq!((starting(1).as_str(), starting(2).as_str()), ("starting 1 server…", "starting 2 servers…"));
    }
}
