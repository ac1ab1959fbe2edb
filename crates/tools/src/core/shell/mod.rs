//! `openclaw:core:exec`, the shell: runs a command in a root, confined, with limits.

mod capture;
mod private_folder;
mod request;

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::config::{RootAccess, ShellTool};
use contract::limits::{
    MAX_QUEUED_SHELL_COMMANDS, MAX_SHELL_COMMANDS, MAX_SHELL_FILE_BYTES, MAX_SHELL_OPEN_FILES, MAX_SHELL_OUTPUT_BYTES,
    MAX_SHELL_PROCESSES, MAX_SHELL_UPDATE_CHARS, MAX_SHELL_UPDATES, SHELL_TIMEOUT_SECONDS, SHELL_UPDATE_INTERVAL_MS,
};
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, Outcome, ProgressSink, ToolResult};
use parking_lot::Mutex;
use process::{
    CommandLimits, CommandSpec, Confinement, Folder, Network, Process, Report, RunningCommand, Support,
    command_variables, confinement_support,
};
use rustix::fs::fstat;
use serde_json::{Value, json};
use telemetry::LogIgnored;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::CoreTool;
use super::roots::{Root, Roots};
use capture::Capture;
use private_folder::PrivateFolder;
use request::Request;

/// Bytes that are read at once, and after which reading pauses. So the output of one command takes at most about 100 MB
/// per second of this process's time; a faster command waits for its pipe.
const CHUNK_BYTES: usize = 64 << 10;
const BYTES_PER_PAUSE: usize = 1 << 20;
const PAUSE: Duration = Duration::from_millis(10);

/// How long the end of a command may take after it was requested. The keeper kills everything long before that.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// The shells that run commands: the first that exists.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// The shell.
#[derive(Debug)]
pub struct Shell {
    spec: ToolSpec,
    commands: Arc<Commands>,
}

/// What all commands share.
#[derive(Debug)]
struct Commands {
    program: PathBuf,
    roots: Roots,
    /// `None` if commands run without confinement.
    confinement: Option<Confinement>,
    temporary: PathBuf,
    running: Semaphore,
    /// Calls that wait for one of the running commands to end.
    queue: Semaphore,
    /// The time limit of a command whose call has none.
    default_timeout: Duration,
}

/// How commands run, with what the system provides.
#[derive(Clone, Debug)]
pub struct ShellSettings {
    /// Whether commands may run without Landlock on a system that does not have it.
    pub unconfined: bool,
    pub network: Network,
    /// Folders outside the roots that commands may read.
    pub readable: Vec<Folder>,
    /// The folder in which the private folders of commands are created.
    pub temporary: PathBuf,
    /// The time limit of a command whose call has none.
    pub default_timeout: Duration,
}

/// Why a folder of `tools.exec.readable` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`tools.exec.readable`: `{path}` cannot be used: {error}")]
pub struct UnreadableFolder {
    path: String,
    error: io::Error,
}

impl ShellSettings {
    pub fn new(settings: &ShellTool, temporary: PathBuf) -> Self {
        let network = if settings.network { Network::Allowed } else { Network::Denied };
        let seconds = settings.timeout_seconds.unwrap_or(SHELL_TIMEOUT_SECONDS.default);
        let default_timeout = Duration::from_secs(SHELL_TIMEOUT_SECONDS.clamp(seconds));
        Self { unconfined: settings.unconfined, network, readable: Vec::new(), temporary, default_timeout }
    }

    /// Lets commands read a folder or file, and run programs in it.
    pub fn allow_reading(&mut self, path: &Path) -> Result<(), UnreadableFolder> {
        let failed = |error| UnreadableFolder { path: path.display().to_string(), error };
        let real = std::fs::canonicalize(path).map_err(failed)?;
        let opened = std::fs::File::open(&real).map_err(failed)?;
        self.readable.push(identify(&real, &opened).map_err(failed)?);
        Ok(())
    }
}

/// The rights with which commands run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// The rights to the folders that are configured.
    Confined,
    /// All rights of the user.
    OfUser,
}

impl Rights {
    /// Decides how commands run on a system that can confine them this far, or says why they cannot run. A system that can
    /// confine commands always does.
    fn decide(support: Result<Support, String>, settings: &ShellSettings) -> Result<Self, String> {
        match support {
            Ok(_) => Ok(Self::Confined),
            Err(_) if settings.unconfined => Ok(Self::OfUser),
            Err(why) => Err(format!(
                "{why}, so commands cannot be confined to their folders; use a newer kernel, or set \
                 `tools.exec.unconfined` to `true` to run them with all rights of your user"
            )),
        }
    }
}

impl Shell {
    /// Creates the shell, or says why commands cannot run here.
    pub fn new(settings: ShellSettings, roots: &Roots) -> Result<Self, String> {
        if !roots.is_writable() {
            return Err("it has no folder; list one that may be changed in `tools.fs.roots`".to_owned());
        }
        let program = SHELLS.iter().map(Path::new).find(|path| path.is_file());
        let program = program.ok_or("this system has neither bash nor /bin/sh")?.to_owned();
        let confinement = match Rights::decide(confinement_support(), &settings)? {
            Rights::Confined => {
                Some(confinement(&settings, roots).map_err(|error| format!("a folder cannot be read: {error}"))?)
            }
            Rights::OfUser => None,
        };
        let commands = Commands {
            program,
            roots: roots.clone(),
            temporary: settings.temporary,
            running: Semaphore::new(MAX_SHELL_COMMANDS),
            queue: Semaphore::new(MAX_QUEUED_SHELL_COMMANDS),
            confinement,
            default_timeout: settings.default_timeout,
        };
        Ok(Self { spec: spec(&commands)?, commands: Arc::new(commands) })
    }

    /// Runs a command. Dropping the future ends it with everything that it started.
    pub async fn run(&self, input: &Value, updates: &ProgressSink) -> Outcome {
        let request = match Request::read(input, &self.commands.roots, self.commands.default_timeout) {
            Ok(request) => request,
            Err(why) => return Outcome::Failed(why),
        };
        // The command has its own task, so that it is ended and cleaned up in order if the caller is dropped.
        let (cancel, cancelled) = oneshot::channel::<()>();
        let (commands, updates) = (Arc::clone(&self.commands), updates.clone());
        let task = tokio::spawn(async move { commands.run(request, &updates, cancelled).await });
        let ended = task.await;
        drop(cancel);
        match ended {
            Ok(Ok(details)) => Outcome::Returned(ToolResult::json(details)),
            Ok(Err(why)) => Outcome::Failed(why),
            // The task failed, or the runtime is shutting down.
            Err(_) => Outcome::Unknown,
        }
    }
}

impl CoreTool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, call: &'a AuthorizedCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(self.run(call.input(), call.updates()))
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Itself,
    Timeout,
    Cancelled,
}

/// What is kept of both output streams.
#[derive(Debug, Default)]
struct Output {
    stdout: Mutex<Capture>,
    stderr: Mutex<Capture>,
}

impl Commands {
    async fn run(
        &self,
        request: Request,
        updates: &ProgressSink,
        mut cancelled: oneshot::Receiver<()>,
    ) -> Result<Value, String> {
        let _permit = tokio::select! {
            permit = self.permit() => permit?,
            _ = &mut cancelled => return Err("the call was cancelled".to_owned()),
        };
        let failed = |error: io::Error| format!("the command cannot be started: {error}");
        let folder = PrivateFolder::create(&self.temporary).map_err(failed)?;
        let done = self.run_in(&folder, &request, updates, cancelled).await;
        // Removing many files takes a while.
        tokio::task::spawn_blocking(move || folder.remove()).await.log_ignored("remove the folder of a command");
        done
    }

    /// Waits until another command may run.
    async fn permit(&self) -> Result<SemaphorePermit<'_>, String> {
        if let Ok(permit) = self.running.try_acquire() {
            return Ok(permit);
        }
        let Ok(_queued) = self.queue.try_acquire() else {
            return Err(format!(
                "{MAX_SHELL_COMMANDS} commands are running and {MAX_QUEUED_SHELL_COMMANDS} are waiting; wait for some \
                 to end before you start others"
            ));
        };
        self.running.acquire().await.map_err(|_| "the shell is shutting down".to_owned())
    }

    async fn run_in(
        &self,
        folder: &PrivateFolder,
        request: &Request,
        updates: &ProgressSink,
        mut cancelled: oneshot::Receiver<()>,
    ) -> Result<Value, String> {
        let began = Instant::now();
        let failed = |error: io::Error| format!("the command cannot be started: {error}");
        let spec = self.command(folder, request).map_err(failed)?;
        let RunningCommand { mut process, stdout, stderr, reports } =
            RunningCommand::start(&spec).await.map_err(failed)?;
        let output = Output::default();
        let whole = async {
            let (reports, (), ()) =
                tokio::join!(reports.read(), read(stdout, &output.stdout), read(stderr, &output.stderr));
            reports
        };
        tokio::pin!(whole);
        let mut progress = Progress::new(updates);
        let deadline = sleep(request.timeout);
        tokio::pin!(deadline);
        let (end, reports) = loop {
            let end = tokio::select! {
                reports = &mut whole => break (End::Itself, reports),
                () = progress.tick(&output) => continue,
                () = &mut deadline => End::Timeout,
                _ = &mut cancelled => End::Cancelled,
            };
            break (end, end_all(&mut process, whole.as_mut()).await);
        };
        if end == End::Itself {
            // The command has already ended; this only collects its exit status.
            process.end().await;
        }
        self.details(request, end, &reports, &output, began.elapsed())
    }

    fn command(&self, folder: &PrivateFolder, request: &Request) -> io::Result<CommandSpec> {
        let mut env = command_variables();
        env.extend(folder.variables());
        // Programs that check it do not wait for input or print colours.
        env.insert("TERM".to_owned(), "dumb".to_owned());
        env.extend(request.env.clone());
        let mut confinement = self.confinement.clone();
        if let Some(confinement) = &mut confinement {
            let opened = std::fs::File::open(folder.path())?;
            confinement.writable.push(identify(folder.path(), &opened)?);
        }
        Ok(CommandSpec {
            program: self.program.clone(),
            args: vec!["-c".to_owned(), request.command.clone()],
            env,
            cwd: request.folder.clone(),
            limits: CommandLimits {
                processes: MAX_SHELL_PROCESSES,
                file_bytes: MAX_SHELL_FILE_BYTES,
                open_files: MAX_SHELL_OPEN_FILES,
            },
            confinement,
        })
    }

    /// Returns the result of a command.
    fn details(
        &self,
        request: &Request,
        end: End,
        reports: &[Report],
        output: &Output,
        duration: Duration,
    ) -> Result<Value, String> {
        let reason = reports.iter().find_map(|report| match report {
            Report::NotStarted(why) => Some(format!("the command cannot be started: {why}")),
            Report::TooManyProcesses(most) => Some(format!(
                "the command had more than {most} processes and was ended with all of them; start fewer at once"
            )),
            Report::Exited(_) | Report::Signalled(_) => None,
        });
        if let Some(reason) = reason {
            return Err(reason);
        }
        let (mut exit_code, mut signal) = (Value::Null, None);
        match (end, reports.last()) {
            (End::Cancelled, _) => return Err("the call was cancelled, and the command ended".to_owned()),
            (End::Itself, Some(Report::Exited(code))) => exit_code = json!(code),
            (End::Itself, Some(Report::Signalled(number))) => signal = Some(signal_name(*number)),
            (End::Itself, _) => return Err("the supervisor of the command ended, and the command with it".to_owned()),
            (End::Timeout, _) => {}
        }
        let [stdout, stderr] = [output.stdout.lock().text(), output.stderr.lock().text()];
        let mut details = json!({
            "exitCode": exit_code,
            "timedOut": end == End::Timeout,
            "stdout": stdout.text,
            "stderr": stderr.text,
            "truncated": stdout.omitted + stderr.omitted > 0,
            "totalBytes": {"stdout": stdout.total, "stderr": stderr.total},
            "omittedBytes": {"stdout": stdout.omitted, "stderr": stderr.omitted},
            "durationMs": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            "cwd": request.folder.to_string_lossy(),
        });
        if let Some(fields) = details.as_object_mut() {
            fields.extend(signal.map(|name| ("signal".to_owned(), json!(name))));
            let escaped = stdout.has_escapes || stderr.has_escapes;
            let note = json!("bytes that are not UTF-8 are written as \\xNN");
            fields.extend(escaped.then(|| ("escaped".to_owned(), note)));
            fields.extend(self.confinement.is_none().then(|| ("confined".to_owned(), json!(false))));
        }
        Ok(details)
    }
}

/// Ends a command and everything that it started, and reads the rest of its output.
async fn end_all(process: &mut Process, whole: Pin<&mut impl Future<Output = Vec<Report>>>) -> Vec<Report> {
    let ((), reports) = tokio::join!(process.end(), timeout(END_PATIENCE, whole));
    reports.unwrap_or_default()
}

/// Reads a stream to its end, at a limited speed.
async fn read(mut stream: impl AsyncRead + Unpin, capture: &Mutex<Capture>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut since_pause = 0;
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        capture.lock().push(chunk.get(..read).unwrap_or_default());
        since_pause += read;
        if since_pause >= BYTES_PER_PAUSE {
            since_pause = 0;
            sleep(PAUSE).await;
        }
    }
}

/// Sends the last line of the output as progress, at a limited rate.
struct Progress<'u> {
    updates: &'u ProgressSink,
    ticks: tokio::time::Interval,
    sent: usize,
    seen: u64,
}

impl<'u> Progress<'u> {
    fn new(updates: &'u ProgressSink) -> Self {
        let mut ticks = interval(Duration::from_millis(SHELL_UPDATE_INTERVAL_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { updates, ticks, sent: 0, seen: 0 }
    }

    /// Waits for the next tick and sends what is new.
    async fn tick(&mut self, output: &Output) {
        self.ticks.tick().await;
        let (stdout, stderr) = (output.stdout.lock(), output.stderr.lock());
        let total = stdout.total() + stderr.total();
        if total == self.seen || self.sent >= MAX_SHELL_UPDATES {
            return;
        }
        let stream = if stdout.total() > 0 { &stdout } else { &stderr };
        // A character has at most four bytes.
        let line = stream.last_line(4 * MAX_SHELL_UPDATE_CHARS);
        let message = contract::text::line(&line.unwrap_or_default(), MAX_SHELL_UPDATE_CHARS);
        self.seen = total;
        self.sent += 1;
        self.updates.send(json!({"message": message, "stdoutBytes": stdout.total(), "stderrBytes": stderr.total()}));
    }
}

/// Returns what commands may access.
fn confinement(settings: &ShellSettings, roots: &Roots) -> io::Result<Confinement> {
    let folders = |access: RootAccess| {
        let chosen = roots.iter().filter(move |root| root.access() == access);
        chosen.map(|root: &Root| identify(root.path(), root.folder())).collect::<io::Result<Vec<Folder>>>()
    };
    let mut readable = folders(RootAccess::Read)?;
    readable.extend(settings.readable.clone());
    Ok(Confinement { writable: folders(RootAccess::Write)?, readable, network: settings.network })
}

fn identify(path: &Path, opened: impl AsFd) -> io::Result<Folder> {
    let found = fstat(opened)?;
    Ok(Folder { path: path.to_owned(), device: found.st_dev, inode: found.st_ino })
}

fn signal_name(number: i32) -> String {
    let known = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    let name = known.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("signal {number}"))
}

fn spec(commands: &Commands) -> Result<ToolSpec, String> {
    let id = ToolId::parse("openclaw:core:exec").map_err(|error| error.to_string())?;
    let limits = match &commands.confinement {
        None => "It has all rights of the user.".to_owned(),
        Some(confinement) => {
            let network = match confinement.network {
                Network::Denied => "It has no network and cannot create sockets.",
                Network::Allowed => "It can use the network, but no sockets in the file system.",
            };
            format!(
                "It can change only these folders and its own temporary folder, and read programs and libraries of the \
                 system; not the user's home folder. {network}"
            )
        }
    };
    let description = format!(
        "Runs a command with {} -c and returns its exit code and output. {}. {limits} There is no terminal and no \
         standard input; HOME and TMPDIR are empty folders that are removed afterwards, and processes in the background \
         are ended with the command. Of more than {MAX_SHELL_OUTPUT_BYTES} bytes of output, start and end are returned.",
        commands.program.file_name().unwrap_or_default().to_string_lossy(),
        commands.roots,
    );
    let range = &SHELL_TIMEOUT_SECONDS.range;
    let seconds = format!("Seconds until the command is ended. Default: {}.", commands.default_timeout.as_secs());
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "The command, as for a POSIX shell."},
            "workdir": {"type": "string", "description": "The folder in which it runs. Default: the first folder."},
            "cwd": {"type": "string", "description": "Another name of `workdir`."},
            "timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": range.end(), "description": seconds},
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Variables to set.",
            },
            "yieldMs": {"type": "number", "description": "Ignored: the call returns when the command has ended."},
            "background": {"type": "boolean", "description": "Ignored: the call returns when the command has ended."},
            "pty": {"type": "boolean", "description": "Not supported if `true`."},
            "elevated": {"type": "boolean", "description": "Not supported if `true`."},
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    let bytes = json!({
        "type": "object",
        "properties": {"stdout": {"type": "integer"}, "stderr": {"type": "integer"}},
        "required": ["stdout", "stderr"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "exitCode": {"type": ["integer", "null"]},
            "signal": {"type": "string"},
            "timedOut": {"type": "boolean"},
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "truncated": {"type": "boolean"},
            "totalBytes": bytes,
            "omittedBytes": bytes,
            "escaped": {"type": "string"},
            "durationMs": {"type": "integer"},
            "cwd": {"type": "string"},
            "confined": {"type": "boolean"},
        },
        "required": ["exitCode", "timedOut", "stdout", "stderr", "truncated", "totalBytes", "durationMs", "cwd"],
    });
    let label = Some("Run a command".to_owned());
    Ok(ToolSpec { label, output: Some(output), ..ToolSpec::new(id, description, parameters) })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use contract::config::ShellTool;
    use process::Support;

    use super::{Rights, ShellSettings};

    #[test]
    fn commands_run_with_all_rights_only_if_nothing_can_confine_them_and_the_user_says_so() {
        let settings =
            |unconfined| ShellSettings::new(&ShellTool { unconfined, ..ShellTool::default() }, PathBuf::from("/tmp"));
        let (asked, unasked) = (settings(true), settings(false));
        for scopes in [true, false] {
            for settings in [&asked, &unasked] {
                assert_eq!(Rights::decide(Ok(Support { scopes }), settings), Ok(Rights::Confined));
            }
        }
        for why in ["this kernel has no Landlock", "commands can be confined only on Linux"] {
            assert_eq!(Rights::decide(Err(why.to_owned()), &asked), Ok(Rights::OfUser));
            let refused = Rights::decide(Err(why.to_owned()), &unasked).unwrap_err();
            assert!(refused.starts_with(why) && refused.contains("`tools.exec.unconfined` to `true`"), "{refused}");
        }
    }
}
