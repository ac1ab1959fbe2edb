//! A TCP stream whose writes time out, and which closes without losing its last response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::limits::{LINGER, LINGER_BYTES, WRITE_STALL};

/// How long the writes of a connection may make no progress. Each request sets it as its route says.
#[derive(Clone, Debug)]
pub(crate) struct WritePace(Arc<AtomicU64>);

impl Default for WritePace {
    fn default() -> Self {
        let pace = Self(Arc::default());
        pace.set(WRITE_STALL);
        pace
    }
}

impl WritePace {
    pub(crate) fn set(&self, stall: Duration) {
        self.0.store(u64::try_from(stall.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct PacedStream {
    stream: TcpStream,
    pace: WritePace,
    /// The timeout of a write that waits for the peer to read.
    stall: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

/// The closing phase of a connection, in which data that the peer still sends is read and discarded.
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl PacedStream {
    pub(crate) fn new(stream: TcpStream, pace: WritePace) -> Self {
        Self { stream, pace, stall: None, linger: None }
    }

    /// Fails a write that has been pending for too long.
    fn pace<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let pace = &self.pace;
        ready!(self.stall.get_or_insert_with(|| Box::pin(sleep(pace.get()))).as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stopped reading")))
    }

    fn poll_linger(stream: &mut TcpStream, linger: &mut Linger, cx: &mut Context<'_>) -> Poll<()> {
        let mut chunk = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut chunk);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() && linger.bytes_left > buffer.filled().len() => {
                    linger.bytes_left -= buffer.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.until.as_mut().poll(cx),
            }
        }
    }
}

impl AsyncRead for PacedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PacedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.pace(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.pace(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.pace(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, linger, .. } = self.get_mut();
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let linger = linger.get_or_insert_with(|| Linger { until: Box::pin(sleep(LINGER)), bytes_left: LINGER_BYTES });
        Self::poll_linger(stream, linger, cx).map(Ok)
    }
}
