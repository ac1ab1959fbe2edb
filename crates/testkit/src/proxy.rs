//! A proxy between a client and a Postgres server that cuts connections around COMMIT.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;

use crate::postgres::{socket_in, url_through};

/// The end of a transaction as a client sends it: the statement and a zero byte.
const COMMIT: &[u8] = b"COMMIT\0";

#[derive(Debug)]
pub struct Proxy {
    folder: TempDir,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    server: PathBuf,
    /// Cuts the connection at every n-th commit; never if 0.
    every: AtomicU64,
    commits: AtomicU64,
    cut: AtomicU64,
    stopped: AtomicBool,
}

impl Proxy {
    /// Starts a proxy that forwards connections to the server behind this socket.
    pub fn start(server: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cellmate-proxy").tempdir()?;
        let listener = UnixListener::bind(socket_in(folder.path()))?;
        let inner = Arc::new(Inner {
            server: server.to_owned(),
            every: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&inner);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                // If the server refuses the connection, the proxy closes it, too.
                if let Ok(server) = UnixStream::connect(&accepting.server) {
                    drop(connect(&accepting, client, server));
                }
            }
        });
        Ok(Self { folder, inner })
    }

    pub fn url(&self) -> String {
        url_through(self.folder.path())
    }

    /// Cuts the connection at every n-th commit, in turn: after the server answered, after the commit was sent,
    /// and before it is sent.
    pub fn cut_every(&self, commits: u64) {
        self.inner.every.store(commits, Ordering::Relaxed);
    }

    pub fn cuts(&self) -> u64 {
        self.inner.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then sees that it must stop.
        drop(UnixStream::connect(socket_in(self.folder.path())));
    }
}

/// The moment at which the connection is cut, relative to a commit.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Unsent,
    Unanswered,
    Answered,
}

impl Inner {
    fn next_cut(&self) -> Option<Cut> {
        let every = self.every.load(Ordering::Relaxed);
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if every == 0 || !commit.is_multiple_of(every) {
            return None;
        }
        Some(match self.cut.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Cut::Answered,
            1 => Cut::Unanswered,
            _ => Cut::Unsent,
        })
    }
}

fn connect(inner: &Arc<Inner>, client: UnixStream, server: UnixStream) -> io::Result<()> {
    // Once set, the server's next message is dropped and closes the connection.
    let muted = Arc::new(AtomicBool::new(false));
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let (inner, mute) = (Arc::clone(inner), Arc::clone(&muted));
    std::thread::spawn(move || {
        drop(forward(from_client, to_server, |bytes| {
            if !bytes.windows(COMMIT.len()).any(|window| window == COMMIT) {
                return Action::Forward;
            }
            match inner.next_cut() {
                None => Action::Forward,
                Some(Cut::Unsent) => Action::Close,
                Some(Cut::Unanswered) => Action::ForwardAndClose,
                Some(Cut::Answered) => {
                    mute.store(true, Ordering::SeqCst);
                    Action::Forward
                }
            }
        }));
    });
    std::thread::spawn(move || {
        drop(forward(server, client, |_| if muted.load(Ordering::SeqCst) { Action::Close } else { Action::Forward }));
    });
    Ok(())
}

/// The treatment of one chunk of bytes.
enum Action {
    Forward,
    ForwardAndClose,
    /// Drops the bytes and closes the connection.
    Close,
}

fn forward(mut from: UnixStream, mut to: UnixStream, mut decide: impl FnMut(&[u8]) -> Action) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let bytes = buffer.get(..count).unwrap_or_default();
        let action = if bytes.is_empty() { Action::Close } else { decide(bytes) };
        if !matches!(action, Action::Close) {
            to.write_all(bytes)?;
        }
        if !matches!(action, Action::Forward) {
            from.shutdown(Shutdown::Both)?;
            return to.shutdown(Shutdown::Both);
        }
    }
}
