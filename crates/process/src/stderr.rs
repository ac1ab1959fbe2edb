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
    /// Waits until everything is read that the process wrote before it closed its standard error, but not longer than
    /// `limit`.
    pub async fn caught_up(&mut self, limit: Duration) {
        if !self.0.is_finished() {
            tokio::time::timeout(limit, &mut self.0).await.ok();
        }
    }

    /// Waits a moment for the last output of a process that has ended.
    pub async fn finish(mut self) {
        // `caught_up` may have seen its end.
        if self.0.is_finished() {
            return;
        }
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
    contract::text::plain(&Redactor::global().redact(line), MAX_SHOWN_CHARS)
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

/// How lines begin that follow the cause of a failure and do not explain it: npm's and Node's closing notes.
const CLOSING_NOTES: [&str; 6] = [
    "npm notice",
    "npm error A complete log",
    "npm error 404 Note that",
    "npm error 404 tarball",
    "npm error For a full report",
    "Node.js v",
];

/// Whether a line cannot be the cause of a failure: it is empty, a closing note or a frame of Node's stack.
fn is_noise(line: &str) -> bool {
    // Older versions of npm write `ERR!` for `error`.
    let text = line.trim().replace("npm ERR!", "npm error");
    let is_frame = line.starts_with(char::is_whitespace) && text.starts_with("at ");
    is_frame
        || matches!(text.as_str(), "" | "}" | "^" | "npm error" | "npm error 404")
        || CLOSING_NOTES.iter().any(|note| text.starts_with(note))
}

/// Returns the last lines of an output that may explain a failure, as an error message shows them: few, cut, and with control
/// characters escaped. The caller removes secrets before.
pub fn excerpt(output: &str) -> Vec<String> {
    let mut left = EXCERPT_CHARS;
    let mut last: Vec<&str> = output.lines().rev().filter(|line| !is_noise(line)).take(EXCERPT_LINES).collect();
    if last.is_empty() {
        last = output.lines().rev().filter(|line| !line.trim().is_empty()).take(EXCERPT_LINES).collect();
    }
    let mut lines: Vec<String> = last
        .into_iter()
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
    fn an_excerpt_leaves_out_what_follows_the_cause() {
        let npm = "npm warn exec The following package was not found\n\
            npm error code E404\n\
            npm error 404 Not Found - GET https://registry.npmjs.org/@no%2fsuch - Not found\n\
            npm error 404\n\
            npm error 404  '@no/such@*' is not in this registry.\n\
            npm error 404\n\
            npm error 404 Note that you can also install from a\n\
            npm error 404 tarball, folder, http url, or git url.\n\
            npm notice\n\
            npm notice New minor version of npm available! 11.4.2 -> 11.6.0\n\
            npm error A complete log of this run can be found in: /root/.npm/_logs/2026-01-01T00_00_00_000Z-debug-0.log\n";
        let cause = [
            "npm error code E404",
            "npm error 404 Not Found - GET https://registry.npmjs.org/@no%2fsuch - Not found",
            "npm error 404  '@no/such@*' is not in this registry.",
        ];
        assert_eq!(excerpt(npm), cause);
        assert_eq!(excerpt(&npm.replace("npm error", "npm ERR!")), cause.map(|line| line.replace("error", "ERR!")));
        let node = "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/x.js'\n    \
            at Function._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n    at \
            node:internal/main/run_main_module:36:49 {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v22.12.0\n";
        assert_eq!(excerpt(node)[0], "Error: Cannot find module '/x.js'");
        assert_eq!(excerpt("npm notice only\n"), ["npm notice only"]);
    }

    #[test]
    fn a_secret_at_the_cut_is_not_logged_in_part() {
        Redactor::global().register("stderr-secret-value");
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
