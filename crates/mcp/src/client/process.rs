//! A server's process: its own group, almost no environment, gone when dropped.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::client::spec::GRACE;

/// All that a server inherits: enough to be found and to find its own files.
const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// Not done: a signal to the server when our own process is killed outright (`PR_SET_PDEATHSIG`) needs a hook between
/// fork and exec, which is unsafe code. Such a server sees its input end; one that ignores that lives on.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Taken by the kill: once the child has been waited for, the number may be another's.
    group: Option<Pid>,
}

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Process {
    pub(crate) fn start(
        program: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
    ) -> io::Result<Started> {
        let mut command = Command::new(program);
        command.args(args).env_clear().process_group(0).kill_on_drop(true);
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(env);
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child, group };
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        Ok(Started { process, stdin, stdout, stderr })
    }

    /// Kills the whole group, then waits a moment so that no zombie is left.
    pub(crate) async fn end(&mut self) {
        self.kill();
        drop(tokio::time::timeout(GRACE, self.child.wait()).await);
    }

    /// A package runner starts the server as its child; killing the runner alone would leave that behind.
    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // The only failure is that nobody of the group is left.
            let _nobody_left = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
