//! Keeps the end of a server's standard error.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use telemetry::LogIgnored;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::client::spec::{GRACE, MAX_SHOWN_CHARS, STDERR_BYTES, shown};

/// The pause after reading as many bytes as are kept. It limits reading to about six megabytes per second: a flood of
/// output blocks in the server's pipe and slows down that server only.
const PAUSE: Duration = Duration::from_millis(10);

/// A ring buffer that a task fills. Reading it never waits for the server.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl fmt::Debug for Tail {
    /// Omits the text, because servers also write secrets there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tail")
    }
}

/// The task that reads the pipe. It is aborted on drop, because a grandchild that inherited the pipe could keep it open
/// forever.
#[derive(Debug)]
pub(crate) struct Draining(JoinHandle<()>);

impl Draining {
    /// Waits a moment for the last output of a server that has ended.
    pub(crate) async fn finish(mut self) {
        match tokio::time::timeout(GRACE, &mut self.0).await {
            Ok(read) => read.log_ignored("read a server's standard error"),
            // A process that the server left behind may keep the pipe open.
            Err(_) => tracing::debug!("the standard error of a server that has ended is still open"),
        }
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Logs output of a server. A line that arrives in two parts is logged in two parts.
fn log_lines(server: &str, bytes: &[u8]) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        for line in String::from_utf8_lossy(bytes).lines() {
            tracing::debug!(server, line = shown(line, MAX_SHOWN_CHARS), "standard error of an MCP server");
        }
    }
}

impl Tail {
    /// Reads the pipe of a server until it is closed.
    pub(crate) fn drain(&self, server: &str, mut from: impl AsyncRead + Unpin + Send + 'static) -> Draining {
        let server = server.to_owned();
        let tail = self.clone();
        Draining(tokio::spawn(async move {
            let mut chunk = [0; 4096];
            let mut since_pause = 0;
            while let Ok(read @ 1..) = from.read(&mut chunk).await {
                let bytes = chunk.get(..read).unwrap_or_default();
                log_lines(&server, bytes);
                tail.push(bytes);
                since_pause += read;
                if since_pause >= STDERR_BYTES {
                    since_pause = 0;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }))
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock();
        ring.extend(bytes);
        let over = ring.len().saturating_sub(STDERR_BYTES);
        ring.drain(..over);
    }

    pub(crate) fn text(&self) -> String {
        let ring = self.0.lock();
        let bytes: Vec<u8> = ring.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{STDERR_BYTES, Tail};

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
