//! The end of what a server wrote to its standard error.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

use crate::client::spec::{GRACE, STDERR_BYTES};

/// What reading rests for after as many bytes as are kept: a flood of some six megabytes a second and more waits in
/// the server's pipe and costs the server its time, not its neighbours theirs.
const PAUSE: Duration = Duration::from_millis(10);

/// A ring that a task fills. Reading it never waits for the server.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl fmt::Debug for Tail {
    /// Not the text: servers write their secrets there too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tail")
    }
}

/// Ends the task that drains: a grandchild that inherited the pipe could otherwise keep it for ever.
#[derive(Debug)]
pub(crate) struct Draining(JoinHandle<()>);

impl Draining {
    /// Waits a moment for the last words of a server that has ended.
    pub(crate) async fn finish(mut self) {
        drop(tokio::time::timeout(GRACE, &mut self.0).await);
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tail {
    pub(crate) fn drain(&self, mut from: impl AsyncRead + Unpin + Send + 'static) -> Draining {
        let tail = self.clone();
        Draining(tokio::spawn(async move {
            let mut chunk = [0; 4096];
            let mut since_pause = 0;
            while let Ok(read @ 1..) = from.read(&mut chunk).await {
                tail.push(chunk.get(..read).unwrap_or_default());
                since_pause += read;
                if since_pause >= STDERR_BYTES {
                    since_pause = 0;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }))
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.extend(bytes);
        let over = ring.len().saturating_sub(STDERR_BYTES);
        ring.drain(..over);
    }

    pub(crate) fn text(&self) -> String {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = ring.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{STDERR_BYTES, Tail};

    #[test]
    fn the_tail_keeps_the_end_of_the_output() {
        let tail = Tail::default();
        tail.push(&vec![b'a'; STDERR_BYTES]);
        assert_eq!(tail.text().len(), STDERR_BYTES);
        tail.push(b"end");
        assert_eq!(tail.text().len(), STDERR_BYTES);
        assert!(tail.text().ends_with("aend"));
    }
}
