//! Writes messages, one per line, to a process that may not read them.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;

use crate::MAX_UNSENT;

/// The writing half of a connection. Clones share it.
#[derive(Debug)]
pub struct LineWriter<W> {
    writer: Arc<Mutex<Option<W>>>,
    unsent: Arc<Semaphore>,
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self { writer: Arc::clone(&self.writer), unsent: Arc::clone(&self.unsent) }
    }
}

/// A place for one message among those that the process has not read.
#[derive(Debug)]
pub struct WriteSlot<W> {
    writer: Arc<Mutex<Option<W>>>,
    _held_until_sent: OwnedSemaphorePermit,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    pub fn new(writer: W) -> Self {
        Self { writer: Arc::new(Mutex::new(Some(writer))), unsent: Arc::new(Semaphore::new(MAX_UNSENT)) }
    }

    /// Returns a place for one message, or `None` if the process has left [`MAX_UNSENT`] messages unread.
    pub fn reserve(&self) -> Option<WriteSlot<W>> {
        let permit = Arc::clone(&self.unsent).try_acquire_owned().ok()?;
        Some(WriteSlot { writer: Arc::clone(&self.writer), _held_until_sent: permit })
    }

    /// Closes the process's input, unless a message is being written.
    pub fn close(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.take();
        }
    }
}

impl<W: AsyncWrite + Unpin> WriteSlot<W> {
    /// Returns a future that writes a message and the line feed after it.
    ///
    /// Messages are written in the order of the calls of this function, whichever future is polled first. If the future
    /// is dropped while it writes, the rest is not written, so the connection must end.
    pub fn write(self, mut line: Vec<u8>) -> impl Future<Output = io::Result<()>> {
        line.push(b'\n');
        // Polling the lock once puts this message in the lock's queue.
        let mut lock = Box::pin(unconstrained(Arc::clone(&self.writer).lock_owned()));
        let locked = lock.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        async move {
            let _slot = self;
            let mut writer = match locked {
                Poll::Ready(writer) => writer,
                Poll::Pending => lock.await,
            };
            let writer = writer.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            writer.write_all(&line).await?;
            writer.flush().await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::LineWriter;
    use crate::MAX_UNSENT;

    #[tokio::test]
    async fn messages_beyond_the_limit_have_no_place_until_some_are_read() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let writer = LineWriter::new(ours);
        let mut places: Vec<_> = (0..MAX_UNSENT).map(|_| writer.reserve().unwrap()).collect();
        assert!(writer.reserve().is_none());
        places.pop().unwrap().write(b"{}".to_vec()).await.unwrap();
        assert!(writer.reserve().is_some());
        let mut line = [0; 3];
        theirs.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"{}\n");
        writer.close();
        assert!(places.pop().unwrap().write(b"{}".to_vec()).await.is_err());
    }

    #[tokio::test]
    async fn messages_are_written_in_the_order_of_the_calls() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let writer = LineWriter::new(ours);
        let messages = [&b"first"[..], b"second", b"third"].map(|line| writer.reserve().unwrap().write(line.to_vec()));
        let [first, second, third] = messages;
        let (third, second, first) = tokio::join!(third, second, first);
        third.and(second).and(first).unwrap();
        writer.close();
        let mut all = String::new();
        theirs.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "first\nsecond\nthird\n");
    }
}
