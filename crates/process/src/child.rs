//! A child process and its pipes. The process has its own process group, a limited environment and a keeper, and is ended
//! when dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use telemetry::LogIgnored;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::program_end::ProgramEnd;
use crate::{environment, keeper};

/// How long a process may take to exit after its input is closed, and to be reaped after it was killed.
pub const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// How long a process, or its keeper on its behalf, may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(1_500);

/// How often the process is polled while it ends.
const END_POLL: Duration = Duration::from_millis(10);

/// How often a group's leader is polled for its end.
const LEADER_POLL: Duration = Duration::from_millis(250);

/// Whether a process that is dropped may finish what it does, instead of being ended at once. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MayFinish(Arc<AtomicBool>);

impl MayFinish {
    /// Lets the process finish, for a limited time and also if this process ends.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A child process. Its group is led by its keeper, or by the process itself if this program cannot be a keeper.
#[derive(Debug)]
pub struct Process {
    /// Taken when the process is reaped.
    child: Option<Child>,
    group: Group,
    leader: GroupLeader,
    /// How long it, or its keeper on its behalf, may take to end after SIGTERM.
    term_grace: Duration,
    /// The task that ends a group whose leader was killed: the rest of the group may keep the pipes open, so that the
    /// end would go unnoticed.
    watching: AbortHandle,
    may_finish: MayFinish,
    /// How the program ended. Dropped when the process has ended, which notifies [`ProcessExit`].
    alive: watch::Sender<Option<ProgramEnd>>,
}

/// A process group, as long as its id is valid: once its leader has been reaped, the system may reuse the id. So a kill
/// takes the id, and holds the lock while it kills.
#[derive(Clone, Debug)]
struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn number(&self) -> Option<Pid> {
        *self.0.lock()
    }

    fn take(&self) -> Option<Pid> {
        self.0.lock().take()
    }

    /// Kills the whole group: a package runner starts the real program as its child, and killing only the runner
    /// would leave the program behind.
    fn kill(&self) {
        let mut group = self.0.lock();
        if let Some(group) = group.take() {
            // This fails only if the group has no processes left.
            kill_process_group(group, Signal::KILL).log_expected("kill a process group");
        }
    }

    /// Kills the rest of the group once its leader has ended.
    async fn outlive_leader(self) {
        while let Some(leader) = self.number() {
            if has_ended(leader) {
                self.kill();
            }
            sleep(LEADER_POLL).await;
        }
    }
}

/// The process that leads a process's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupLeader {
    /// A keeper, which ends the program.
    Keeper,
    /// The program itself.
    Program,
}

/// A started process and its pipes.
#[derive(Debug)]
pub struct StartedProcess {
    pub process: Process,
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// A handle to wait until a process and all its descendants have ended.
#[derive(Clone, Debug)]
pub struct ProcessExit(watch::Receiver<Option<ProgramEnd>>);

impl ProcessExit {
    /// Waits until all of them have ended. Returns how the program ended; `None` if that is unknown, or if it was ended on
    /// request.
    pub async fn wait(mut self) -> Option<ProgramEnd> {
        while self.0.changed().await.is_ok() {}
        *self.0.borrow()
    }

    /// Waits until it is known how the program ended, but not longer than `limit`. Returns `None` if that is unknown, or if
    /// it was ended on request.
    pub async fn program_end(mut self, limit: Duration) -> Option<ProgramEnd> {
        // Without a change in time, the value is still `None`.
        tokio::time::timeout(limit, self.0.changed()).await.ok();
        *self.0.borrow()
    }
}

impl Process {
    /// Starts a program. It gets the variables that [`crate::is_inheritable`] names and those in `env`, which win.
    pub fn start(
        program: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
    ) -> io::Result<StartedProcess> {
        let keeper = keeper::program();
        let mut command = match keeper {
            Some(keeper) => {
                find(program, env, cwd)?;
                let mut command = Command::new(keeper);
                command.arg0("cellmate-keeper").args(keeper::arguments(program, args));
                command
            }
            None => {
                let mut command = Command::new(program);
                command.args(args);
                command
            }
        };
        command.env_clear().process_group(0).envs(environment::inherited()).envs(env);
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let leader = if keeper.is_some() { GroupLeader::Keeper } else { GroupLeader::Program };
        let process = Self::new(child, leader, TERM_GRACE);
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        Ok(StartedProcess { process, stdin, stdout, stderr })
    }

    /// Takes over a keeper that leads its own group.
    pub(crate) fn kept(keeper: Child, term_grace: Duration) -> Self {
        Self::new(keeper, GroupLeader::Keeper, term_grace)
    }

    fn new(child: Child, leader: GroupLeader, term_grace: Duration) -> Self {
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = Group(Arc::new(Mutex::new(group)));
        let watching = tokio::spawn(group.clone().outlive_leader()).abort_handle();
        let (may_finish, alive) = (MayFinish::default(), watch::Sender::new(None));
        Self { child: Some(child), group, leader, term_grace, watching, may_finish, alive }
    }

    /// Returns the process. If it is dropped while `may_finish` is set, its keeper lets it finish.
    pub fn that_may_finish(mut self, may_finish: MayFinish) -> Self {
        self.may_finish = may_finish;
        self
    }

    /// Returns a handle to wait until the process and all its descendants have ended.
    pub fn exit(&self) -> ProcessExit {
        ProcessExit(self.alive.subscribe())
    }

    /// Sends SIGTERM, waits a moment, kills the whole group, and reaps it so that no zombie is left.
    pub async fn end(&mut self) {
        if let Some(group) = self.group.number() {
            self.terminate(group);
            let term_sent = Instant::now();
            while term_sent.elapsed() < self.term_grace && !has_ended(group) {
                sleep(END_POLL).await;
            }
        }
        self.group.kill();
        if let Some(child) = self.child.take() {
            reap(child, self.leader, CLOSE_GRACE, &self.alive).await;
        }
    }

    /// Sends SIGTERM. A keeper passes it on to the group and kills the processes that ignore it.
    fn terminate(&self, group: Pid) {
        // This fails only if the process or group no longer exists.
        let sent = match self.leader {
            GroupLeader::Keeper => kill_process(group, Signal::TERM),
            GroupLeader::Program => kill_process_group(group, Signal::TERM),
        };
        sent.log_expected("terminate a child process");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watching.abort();
        // A keeper works without being waited for, and also finds processes that have left the group.
        if self.leader == GroupLeader::Program {
            self.group.kill();
        } else if let Some(keeper) = self.group.take() {
            if self.may_finish.is_set() {
                // This fails only if the keeper no longer exists.
                kill_process(keeper, keeper::LET_FINISH).log_expected("let a child process finish");
                return;
            }
            self.terminate(keeper);
        }
        // Those that wait for the end also learn how the program ended. Without a runtime, nothing waits.
        if let (Some(child), Ok(runtime)) = (self.child.take(), Handle::try_current()) {
            let (leader, grace, alive) = (self.leader, self.term_grace + CLOSE_GRACE, self.alive.clone());
            runtime.spawn(async move { reap(child, leader, grace, &alive).await });
        }
    }
}

/// Waits for the end of a process that was terminated or killed, and records how the program ended.
async fn reap(mut child: Child, leader: GroupLeader, grace: Duration, alive: &watch::Sender<Option<ProgramEnd>>) {
    let reaped = tokio::time::timeout(grace, child.wait()).await.unwrap_or_else(|late| Err(late.into()));
    if let Ok(status) = &reaped {
        alive.send_replace(match leader {
            GroupLeader::Keeper => ProgramEnd::of_kept(*status),
            GroupLeader::Program => ProgramEnd::of_program(*status),
        });
    }
    reaped.log_ignored("wait for the end of a child process");
}

/// Returns true if the process has ended. It is not reaped, so its id stays valid.
fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(process), options), Ok(None))
}

/// Searches for the command as the system would. Without this check a missing command would only be noticed later, by
/// the keeper.
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
    fn a_command_is_searched_as_the_system_does() {
        let env = |path: &str| BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        let found =
            |program: &str, path: &str, cwd: Option<&str>| find(program, &env(path), cwd.map(Path::new)).is_ok();
        assert!(found("sh", "/nowhere:/bin", None) && !found("sh", "/nowhere", None));
        assert!(found("/bin/sh", "", None) && !found("/bin/no-such-command", "/bin", None));
        assert!(found("./sh", "", Some("/bin")) && !found("./sh", "/bin", Some("/nowhere")));
        assert!(find("sh", &BTreeMap::new(), None).is_ok(), "without a configured PATH, the host's PATH is used");
        assert!(!found("bin", "/", None), "a folder is not a command");
    }
}
