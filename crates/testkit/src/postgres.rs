//! A Postgres server for a test: created in a temporary folder, reached through a socket there, removed with the test.

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

pub use tls::TlsServer;

mod tls;

/// Time limit for a server to become ready; after an unclean shutdown it recovers first.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Schemas created by one `psql` command; the SQL of more would exceed the length of a command line.
const SCHEMAS_AT_ONCE: usize = 1_000;

/// Users to run the server as if the tests run as root: Postgres refuses to run as root.
const USERS: [&str; 2] = ["postgres", "nobody"];

#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    /// The TCP port, if the server also accepts connections over the network.
    tcp_port: Option<u16>,
    child: Child,
}

impl Server {
    /// Creates a new, empty server and waits until it is ready.
    pub fn start() -> io::Result<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("cellmate-pg").tempdir()?;
        let user = if geteuid().is_root() { Some(unprivileged_user()?) } else { None };
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let initdb = command(&programs, "initdb", user)
            .arg("--pgdata")
            .arg(folder.path().join("data"))
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--locale=C", "--encoding=UTF8"])
            .current_dir(folder.path())
            .output()?;
        if !initdb.status.success() {
            return Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&initdb.stderr))));
        }
        let child = launch(&programs, folder.path(), user, None)?;
        let server = Self { folder, programs, user, tcp_port: None, child };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Returns the URL for connecting to the server.
    pub fn url(&self) -> String {
        url_through(self.folder.path())
    }

    /// Creates empty schemas, and returns a URL for each, so that tests can share one server.
    pub fn schemas(&self, count: usize) -> io::Result<Vec<String>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let first = NEXT.fetch_add(count, Ordering::Relaxed);
        let names: Vec<String> = (first..first + count).map(|number| format!("test_{number}")).collect();
        for chunk in names.chunks(SCHEMAS_AT_ONCE) {
            let sql: String = chunk.iter().map(|name| format!("CREATE SCHEMA {name};")).collect();
            let psql = command(&self.programs, "psql", self.user)
                .args(["-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-c", &sql, "-h"])
                .arg(self.folder.path())
                .output()?;
            if !psql.status.success() {
                return Err(io::Error::other(format!("psql: {}", String::from_utf8_lossy(&psql.stderr))));
            }
        }
        Ok(names.iter().map(|name| in_schema(&self.url(), name)).collect())
    }

    /// Returns the path of the socket that the server listens on.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Restarts the server like `pg_ctl restart -m immediate`: open connections are cut, committed data must survive.
    pub fn restart_immediately(&mut self) -> io::Result<()> {
        self.signal(Signal::QUIT);
        self.child.wait()?;
        self.child = launch(&self.programs, self.folder.path(), self.user, self.tcp_port)?;
        self.wait_until_ready()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An error means that the server has exited already.
            let _result = kill_process(pid, signal);
        }
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            let port = self.tcp_port.unwrap_or(PORT).to_string();
            let mut ready = command(&self.programs, "pg_isready", self.user);
            let ready = ready.args(["-p", &port, "-h"]).arg(self.folder.path()).output()?;
            if ready.status.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!("the Postgres server did not become ready within 30 seconds; its log: {log}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::QUIT);
        let _status = self.child.wait();
    }
}

/// Returns a URL whose connections use only this schema.
fn in_schema(url: &str, schema: &str) -> String {
    format!("{url}&options=-c%20search_path%3D{schema}")
}

/// The port of a server that has only a socket; the socket's name contains it.
const PORT: u16 = 5432;
const SOCKET: &str = ".s.PGSQL.5432";

/// Returns the URL of a server, or of a proxy in front of one, whose socket is in this folder.
pub fn url_through(folder: &Path) -> String {
    format!("postgres://postgres@localhost/postgres?host={}", folder.display())
}

/// Returns the socket path on which a proxy must listen to be reached by [`url_through`].
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

fn launch(programs: &Path, folder: &Path, user: Option<(u32, u32)>, tcp_port: Option<u16>) -> io::Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    let listen = if tcp_port.is_some() { "127.0.0.1" } else { "" };
    command(programs, "postgres", user)
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-p", &tcp_port.unwrap_or(PORT).to_string(), "-c", &format!("listen_addresses={listen}")])
        .args(["-c", "max_connections=200", "-c", "shared_buffers=32MB"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

/// Builds a command for one of the server's programs.
fn command(programs: &Path, name: &str, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(programs.join(name));
    // A separate process group: Ctrl+C must not reach the server directly, because the test stops it.
    command.env_clear().env("LC_ALL", "C").current_dir("/").process_group(0);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Finds the folder of the server's programs. Debian does not put them into `PATH`, but into one folder per version.
fn programs() -> io::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
        .ok_or_else(|| io::Error::other("Postgres is not installed; scripts/setup installs it"))
}

fn unprivileged_user() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &&str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    USERS.iter().find_map(find).ok_or_else(|| {
        io::Error::other("cannot run Postgres as root, and this system has neither a user `postgres` nor `nobody`")
    })
}
