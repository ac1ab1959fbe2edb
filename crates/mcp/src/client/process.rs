//! A server's process: a group of its own, almost no environment, a keeper beside it, gone when dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::client::spec::GRACE;
use crate::keeper;

/// All that a server inherits: enough to be found and to find its own files.
const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// How long a server, or its keeper on its behalf, may take to end once it is told to.
const TERM_GRACE: Duration = Duration::from_millis(1_500);

/// How often the process is looked at while it ends.
const LOOK: Duration = Duration::from_millis(10);

/// How often it is looked whether the leader of a group has ended.
const WATCH: Duration = Duration::from_millis(250);

/// One server as the system sees it. Its group is led by its keeper; where this program cannot be one, by itself.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Group,
    kept: bool,
    /// Ends a group whose leader was killed: what is left of it may hold the pipes, so that nobody hears of it.
    watching: AbortHandle,
    /// Dropped with the process.
    alive: watch::Sender<()>,
}

/// A process group, while its number is its own: once its leader has been waited for, it may be another's. So it is
/// taken by whoever kills it, and kills are made while it is locked.
#[derive(Clone, Debug)]
struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn number(&self) -> Option<Pid> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Pid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A package runner starts the server as its child; killing the runner alone would leave that behind.
    fn kill(&self) {
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = group.take() {
            // The only failure is that nobody of the group is left.
            let _nobody_left = kill_process_group(group, Signal::KILL);
        }
    }

    /// Kills what is left once the leader has ended by itself.
    async fn outlive_leader(self) {
        while let Some(leader) = self.number() {
            if has_ended(leader) {
                self.kill();
            }
            sleep(WATCH).await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// Tells when a process and all it started are gone.
#[derive(Clone, Debug)]
pub(crate) struct Gone(watch::Receiver<()>);

impl Gone {
    pub(crate) async fn wait(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

impl Process {
    pub(crate) fn start(
        program: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
    ) -> io::Result<Started> {
        let keeper = keeper::program();
        let mut command = match keeper {
            Some(keeper) => {
                find(program, env, cwd)?;
                let mut command = Command::new(keeper);
                command.arg0("mcp-keeper").args(keeper::arguments(program, args));
                command
            }
            None => {
                let mut command = Command::new(program);
                command.args(args);
                command
            }
        };
        command.env_clear().process_group(0);
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
        let group = Group(Arc::new(Mutex::new(group)));
        let watching = tokio::spawn(group.clone().outlive_leader()).abort_handle();
        let process = Self { child, group, kept: keeper.is_some(), watching, alive: watch::Sender::new(()) };
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        Ok(Started { process, stdin, stdout, stderr })
    }

    pub(crate) fn gone(&self) -> Gone {
        Gone(self.alive.subscribe())
    }

    /// Tells the server to end, gives it a moment, kills the whole group, and waits so that no zombie is left.
    pub(crate) async fn end(&mut self) {
        if let Some(group) = self.group.number() {
            self.tell(group);
            let told = Instant::now();
            while told.elapsed() < TERM_GRACE && !has_ended(group) {
                sleep(LOOK).await;
            }
        }
        self.group.kill();
        drop(tokio::time::timeout(GRACE, self.child.wait()).await);
    }

    /// A keeper passes it on to the group and kills whoever does not heed it.
    fn tell(&self, group: Pid) {
        // The only failure is that nobody is left to tell.
        let _nobody_left =
            if self.kept { kill_process(group, Signal::TERM) } else { kill_process_group(group, Signal::TERM) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watching.abort();
        // A keeper needs nobody to wait for it, and finds those too that have left the group.
        if !self.kept {
            self.group.kill();
        } else if let Some(keeper) = self.group.take() {
            self.tell(keeper);
        }
    }
}

/// Whether the process has ended; it stays to be waited for, so its number stays its own.
fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(process), options), Ok(None))
}

/// Looks for the command as the system would: a keeper can always be started, and would only fail later.
fn find(program: &str, env: &BTreeMap<String, String>, cwd: Option<&Path>) -> io::Result<()> {
    let here = |path: &Path| cwd.unwrap_or(Path::new("")).join(path).is_file();
    let path = env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found = match program.contains('/') {
        true => here(Path::new(program)),
        false => std::env::split_paths(&path).any(|folder| here(&folder.join(program))),
    };
    if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::find;

    #[test]
    fn a_command_is_found_as_the_system_finds_it() {
        let env = |path: &str| BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        let found =
            |program: &str, path: &str, cwd: Option<&str>| find(program, &env(path), cwd.map(Path::new)).is_ok();
        assert!(found("sh", "/nowhere:/bin", None) && !found("sh", "/nowhere", None));
        assert!(found("/bin/sh", "", None) && !found("/bin/no-such-command", "/bin", None));
        assert!(found("./sh", "", Some("/bin")) && !found("./sh", "/bin", Some("/nowhere")));
        assert!(
            find("sh", &BTreeMap::new(), None).is_ok(),
            "without a configured PATH, the one of this process counts"
        );
        assert!(!found("bin", "/", None), "a folder is not a command");
    }
}
