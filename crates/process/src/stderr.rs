//! Keeps the end of a child process's standard error.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use telemetry::{LogIgnored, Redactor};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::CLOSE_GRACE;

/// How much of the end of the standard error is kept.
pub const STDERR_BYTES: usize = 64 << 10;

/// How much of a line is logged.
pub const MAX_SHOWN_CHARS: usize = 1_000;

/// The pause after reading as many bytes as are kept. It limits reading to about six megabytes per second: a flood of
/// output blocks in the process's pipe and slows down that process only.
const PAUSE: Duration = Duration::from_millis(10);

/// A ring buffer that a task fills. Reading it never waits for the process.
#[derive(Clone, Default)]
pub struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl fmt::Debug for Tail {
    /// Omits the text, because processes also write secrets there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tail")
    }
}

/// The task that reads a process's standard error. It is aborted on drop, because a grandchild that inherited the pipe
/// could keep it open forever.
#[derive(Debug)]
pub struct StderrReader(JoinHandle<()>);

impl StderrReader {
    /// Waits a moment for the last output of a process that has ended.
    pub async fn finish(mut self) {
        match tokio::time::timeout(CLOSE_GRACE, &mut self.0).await {
            Ok(read) => read.log_ignored("read a child process's standard error"),
            // A process that it left behind may keep the pipe open.
            Err(_) => tracing::debug!("the standard error of a process that has ended is still open"),
        }
    }
}

impl Drop for StderrReader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Logs the output of a process line by line. Only whole lines are redacted and cut: otherwise a secret that is divided
/// between two reads, or by the cut, would be logged in part.
struct LineLog {
    process: String,
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
}

/// The longest line that is logged, in part; it is longer than the longest secret.
const MAX_LINE_BYTES: usize = 2 * STDERR_BYTES;

impl LineLog {
    fn push(&mut self, bytes: &[u8]) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.add(bytes);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(part.get(..room).unwrap_or(part));
            if part.ends_with(b"\n") {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if !line.is_empty() {
            let line = logged(line.trim_end());
            tracing::debug!(process = self.process, line, "standard error of a child process");
        }
    }
}

/// Returns a line without secrets, cut.
fn logged(line: &str) -> String {
    contract::text::plain(&Redactor::process().redact(line), MAX_SHOWN_CHARS)
}

impl Tail {
    /// Reads the pipe of the named process until it is closed.
    pub fn drain(&self, process: &str, mut from: impl AsyncRead + Unpin + Send + 'static) -> StderrReader {
        let mut log = LineLog { process: process.to_owned(), line: Vec::new() };
        let tail = self.clone();
        StderrReader(tokio::spawn(async move {
            let mut chunk = [0; 4096];
            let mut since_pause = 0;
            while let Ok(read @ 1..) = from.read(&mut chunk).await {
                let bytes = chunk.get(..read).unwrap_or_default();
                log.push(bytes);
                tail.push(bytes);
                since_pause += read;
                if since_pause >= STDERR_BYTES {
                    since_pause = 0;
                    tokio::time::sleep(PAUSE).await;
                }
            }
            log.flush();
        }))
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock();
        ring.extend(bytes);
        let over = ring.len().saturating_sub(STDERR_BYTES);
        ring.drain(..over);
    }

    /// Returns the text that is kept.
    pub fn text(&self) -> String {
        let ring = self.0.lock();
        let bytes: Vec<u8> = ring.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// How many lines, and how many characters of them, [`excerpt`] returns.
const EXCERPT_LINES: usize = 3;
const EXCERPT_CHARS: usize = 300;

/// Returns the last lines of an output that are not empty, as an error message shows them: few, cut, and with control
/// characters escaped. The caller removes secrets before.
pub fn excerpt(output: &str) -> Vec<String> {
    let mut left = EXCERPT_CHARS;
    let last = output.lines().rev().filter(|line| !line.trim().is_empty()).take(EXCERPT_LINES);
    let mut lines: Vec<String> = last
        .map_while(|line| {
            let shown = (left > 0).then(|| contract::text::line(line.trim_end(), left))?;
            left = left.saturating_sub(shown.chars().count());
            Some(shown)
        })
        .collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::{
        EXCERPT_CHARS, LineLog, MAX_LINE_BYTES, MAX_SHOWN_CHARS, Redactor, STDERR_BYTES, Tail, excerpt, logged,
    };

    #[test]
    fn an_excerpt_has_the_last_lines_within_its_limits() {
        assert_eq!(excerpt("one\ntwo\n\nthree\r\n \nfo\u{1b}ur\n"), ["two", "three", "fo\\u{1b}ur"]);
        assert_eq!(excerpt(""), Vec::<String>::new());
        let long = excerpt(&format!("first\n{}\nlast", "x".repeat(1_000)));
        assert_eq!((long.len(), long[1].as_str()), (2, "last"), "{long:?}");
        assert!(long[0].chars().count() <= EXCERPT_CHARS, "{long:?}");
    }

    #[test]
    fn a_secret_at_the_cut_is_not_logged_in_part() {
        Redactor::process().register("stderr-secret-value");
        let line = format!("{}stderr-secret-value", "x".repeat(MAX_SHOWN_CHARS - 5));
        assert!(!logged(&line).contains("stde"), "{}", logged(&line));
        assert_eq!(logged("a stderr-secret-value b"), "a [redacted] b");
    }

    #[test]
    fn an_endless_line_is_bounded() {
        let mut log = LineLog { process: "s".to_owned(), line: Vec::new() };
        log.add(&vec![b'x'; MAX_LINE_BYTES - 1]);
        log.add(&[b'y'; 100]);
        assert_eq!(log.line.len(), MAX_LINE_BYTES);
        log.add(b"end\nnext");
        assert_eq!(log.line, b"next");
    }

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let tail = Tail::default();
        tail.push(&vec![b'a'; STDERR_BYTES]);
        assert_eq!(tail.text().len(), STDERR_BYTES);
        tail.push(b"end");
        assert_eq!(tail.text().len(), STDERR_BYTES);
        assert!(tail.text().ends_with("aend"));
    }
}
