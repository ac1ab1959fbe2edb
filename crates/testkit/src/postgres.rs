//! A Postgres server for a test: made in a folder of its own, reached through a socket in it, gone with the test.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

pub use secured::Secured;

mod secured;

/// How long a server may take to answer. It recovers first, where it was not shut down.
const START: Duration = Duration::from_secs(30);

/// More of them are too much for one command line.
const SCHEMAS_AT_ONCE: usize = 1_000;

/// Whom a server runs as where the tests are root's: it refuses to be root's itself.
const USERS: [&str; 2] = ["postgres", "nobody"];

#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    /// A port of this machine, where it is to be reached over the network, too.
    network: Option<u16>,
    child: Child,
}

impl Server {
    /// Makes a new, empty server and waits until it answers.
    pub fn start() -> io::Result<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("cellmate-pg").tempdir()?;
        let user = if geteuid().is_root() { Some(someone()?) } else { None };
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let made = asked(&programs, "initdb", user)
            .arg("--pgdata")
            .arg(folder.path().join("data"))
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--locale=C", "--encoding=UTF8"])
            .current_dir(folder.path())
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&made.stderr))));
        }
        let child = launch(&programs, folder.path(), user, None)?;
        let server = Self { folder, programs, user, network: None, child };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Where the server is, for whoever connects to it.
    pub fn url(&self) -> String {
        url_through(self.folder.path())
    }

    /// Rooms of their own in the server, each with its address.
    pub fn schemas(&self, count: usize) -> io::Result<Vec<String>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let first = NEXT.fetch_add(count, Ordering::Relaxed);
        let names: Vec<String> = (first..first + count).map(|number| format!("room_{number}")).collect();
        for some in names.chunks(SCHEMAS_AT_ONCE) {
            let sql: String = some.iter().map(|name| format!("CREATE SCHEMA {name};")).collect();
            let made = asked(&self.programs, "psql", self.user)
                .args(["-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-c", &sql, "-h"])
                .arg(self.folder.path())
                .output()?;
            if !made.status.success() {
                return Err(io::Error::other(format!("psql: {}", String::from_utf8_lossy(&made.stderr))));
            }
        }
        Ok(names.iter().map(|name| in_schema(&self.url(), name)).collect())
    }

    /// The socket behind that address.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// What `pg_ctl restart -m immediate` does: nobody is waited for, and what was committed must be there again.
    pub fn restart_at_once(&mut self) -> io::Result<()> {
        self.signal(Signal::QUIT);
        self.child.wait()?;
        self.child = launch(&self.programs, self.folder.path(), self.user, self.network)?;
        self.wait_until_it_answers()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _told = kill_process(pid, signal);
        }
    }

    fn wait_until_it_answers(&self) -> io::Result<()> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            let port = self.network.unwrap_or(PORT).to_string();
            let mut ready = asked(&self.programs, "pg_isready", self.user);
            let ready = ready.args(["-p", &port, "-h"]).arg(self.folder.path()).output()?;
            if ready.status.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!("the server does not answer: {log}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::QUIT);
        let _gone = self.child.wait();
    }
}

/// The same server, and of it one room.
fn in_schema(url: &str, schema: &str) -> String {
    format!("{url}&options=-c%20search_path%3D{schema}")
}

/// A server's port is in the name of its socket, too.
const PORT: u16 = 5432;
const SOCKET: &str = ".s.PGSQL.5432";

/// The address of a server whose socket, or something that stands in for it, is in this folder.
pub fn url_through(folder: &Path) -> String {
    format!("postgres://postgres@localhost/postgres?host={}", folder.display())
}

/// Where a stand-in for a server listens, to be reached by [`url_through`].
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

fn launch(programs: &Path, folder: &Path, user: Option<(u32, u32)>, network: Option<u16>) -> io::Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    let listen = if network.is_some() { "127.0.0.1" } else { "" };
    asked(programs, "postgres", user)
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-p", &network.unwrap_or(PORT).to_string(), "-c", &format!("listen_addresses={listen}")])
        .args(["-c", "max_connections=200", "-c", "shared_buffers=32MB"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

fn asked(programs: &Path, name: &str, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(programs.join(name));
    // Its own group: a test that is interrupted ends it itself.
    command.env_clear().env("LC_ALL", "C").current_dir("/").process_group(0);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Debian keeps a server's programs out of the way, one folder a version.
fn programs() -> io::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
        .ok_or_else(|| io::Error::other("Postgres is not installed here; scripts/setup installs it"))
}

fn someone() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &&str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    USERS.iter().find_map(find).ok_or_else(|| io::Error::other("there is no user for the server to run as"))
}
