//! A command that runs once: its output is read to the end, its exit status is reported, and it may be confined.
//!
//! The keeper of a command (see `keeper`) also starts its own session, counts the processes and reports the status. The
//! host and the keeper are connected by a socket, which is the keeper's standard input: the host sends the
//! [`CommandSpec`] as one line of JSON, and receives [`Report`]s, one a line, until the keeper has ended everything and
//! exits. The command itself has no standard input.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{ChildStderr, ChildStdout, Command};

use crate::child::Process;
use crate::keeper;
use crate::spec::{CommandSpec, MAX_SPEC_BYTES, Report};

/// How long the keeper of a command may take to end all its processes. Far longer than for a server, because a command
/// may start thousands.
const END_GRACE: Duration = Duration::from_secs(15);

/// Bytes of the reports of one command. A keeper sends a few short lines.
const MAX_REPORT_BYTES: u64 = 16 << 10;

/// A started command and its output.
#[derive(Debug)]
pub struct RunningCommand {
    pub process: Process,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
    pub reports: Reports,
}

/// Receives the reports of a command's keeper.
#[derive(Debug)]
pub struct Reports(UnixStream);

impl Reports {
    /// Waits until the command and everything that it started have ended, and returns what the keeper reported.
    pub async fn read(self) -> Vec<Report> {
        let mut text = Vec::new();
        // If reading fails, what was read before is still valid.
        let _incomplete = self.0.take(MAX_REPORT_BYTES).read_to_end(&mut text).await;
        text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

impl RunningCommand {
    /// Starts a command. It fails if this program cannot be a keeper (`keeper_main`).
    pub async fn start(spec: &CommandSpec) -> io::Result<Self> {
        let keeper = keeper::program().ok_or_else(|| io::Error::other("this program cannot supervise commands"))?;
        let mut line = serde_json::to_vec(spec).map_err(io::Error::other)?;
        line.push(b'\n');
        if line.len() as u64 > MAX_SPEC_BYTES {
            return Err(io::Error::other("the command and its environment are too long"));
        }
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut ours = UnixStream::from_std(ours)?;
        let mut command = Command::new(keeper);
        command.arg0("cellmate-keeper").args(keeper::command_arguments(spec.limits.processes)).env_clear();
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // The command holds the keeper's end of the socket. Once only the keeper holds it, its closing shows that the
        // keeper has ended.
        drop(command);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let process = Process::kept(child, END_GRACE);
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        ours.write_all(&line).await?;
        Ok(Self { process, stdout, stderr, reports: Reports(ours) })
    }
}
