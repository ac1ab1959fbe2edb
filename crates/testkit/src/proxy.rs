//! Stands between a client and a Postgres server, and loses answers to COMMIT.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;

use crate::postgres::{socket_in, url_through};

/// How a client sends the end of a transaction: text, and a zero.
const COMMIT: &[u8] = b"COMMIT\0";

#[derive(Debug)]
pub struct Proxy {
    folder: TempDir,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    server: PathBuf,
    /// Every how many commits one is cut off; none where it is zero.
    every: AtomicU64,
    commits: AtomicU64,
    cut: AtomicU64,
    over: AtomicBool,
}

impl Proxy {
    /// Passes everything on to the server behind that socket.
    pub fn start(server: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cellmate-proxy").tempdir()?;
        let listener = UnixListener::bind(socket_in(folder.path()))?;
        let inner = Arc::new(Inner {
            server: server.to_owned(),
            every: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&inner);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                // A server that is away refuses; so does this.
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

    /// Cuts the connection at every so many-th commit: by turns before the server hears of it, as soon as it has
    /// been sent, and once the server has answered.
    pub fn cut_every(&self, commits: u64) {
        self.inner.every.store(commits, Ordering::Relaxed);
    }

    pub fn cuts(&self) -> u64 {
        self.inner.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Relaxed);
        // Wakes whoever accepts, to find that it is over.
        drop(UnixStream::connect(socket_in(self.folder.path())));
    }
}

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
    // From now on what the server says is not passed on: it is the end of the connection.
    let muted = Arc::new(AtomicBool::new(false));
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let (inner, mutes) = (Arc::clone(inner), Arc::clone(&muted));
    std::thread::spawn(move || {
        drop(pass(from_client, to_server, |bytes| {
            if !bytes.windows(COMMIT.len()).any(|window| window == COMMIT) {
                return Goes::On;
            }
            match inner.next_cut() {
                None => Goes::On,
                Some(Cut::Unsent) => Goes::Nowhere,
                Some(Cut::Unanswered) => Goes::Last,
                Some(Cut::Answered) => {
                    mutes.store(true, Ordering::SeqCst);
                    Goes::On
                }
            }
        }));
    });
    std::thread::spawn(move || {
        drop(pass(server, client, |_| if muted.load(Ordering::SeqCst) { Goes::Nowhere } else { Goes::On }));
    });
    Ok(())
}

enum Goes {
    On,
    /// Passed on, and the connection ends.
    Last,
    /// Not passed on, and the connection ends.
    Nowhere,
}

fn pass(mut from: UnixStream, mut to: UnixStream, mut goes: impl FnMut(&[u8]) -> Goes) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let bytes = buffer.get(..count).unwrap_or_default();
        let goes = if bytes.is_empty() { Goes::Nowhere } else { goes(bytes) };
        if !matches!(goes, Goes::Nowhere) {
            to.write_all(bytes)?;
        }
        if !matches!(goes, Goes::On) {
            from.shutdown(Shutdown::Both)?;
            return to.shutdown(Shutdown::Both);
        }
    }
}
