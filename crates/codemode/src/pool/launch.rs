//! Starts workers: as processes that run this program again or, in tests, as threads of this process.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;

use contract::frame::WORKER_ARGUMENT;
use rustix::process::{Pid, setpriority_process};
use telemetry::LogIgnored;
use tokio::process::{Child, Command};

use super::PoolOptions;

/// The niceness of a worker, from 0 to 19. At 5 it gets a third of the time of a process at 0.
const WORKER_NICENESS: i32 = 5;

/// Whether cells may run if the operating system cannot restrict the worker process that executes them completely. The
/// restrictions, called the jail, are Landlock (no files, no network), seccomp (few system calls), resource limits, and
/// no core dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JailPolicy {
    /// A worker that lacks a part of the jail does not start, so no cell runs.
    Required,
    /// A worker has as much of the jail as the system supports, and runs cells with less.
    Preferred,
    /// A worker has no jail. For debugging, never for the cells of a model.
    Off,
}

/// How a worker is started.
#[derive(Clone, Debug)]
pub enum Launch {
    /// The program of this process, started again; its `main` calls `sandbox::worker_main` first.
    ThisProgram,
    /// A different program, whose `main` also calls `sandbox::worker_main` first.
    Program(PathBuf),
    /// A function that serves the worker's end of the socket in a thread of this process, such as
    /// `sandbox::serve_attached`. There is no jail.
    InProcess(fn(UnixStream, slots: u32, threads: usize) -> std::io::Result<()>),
}

impl Launch {
    /// Starts a worker and returns the host's end of its socket.
    pub(super) fn launch(&self, options: &PoolOptions) -> std::io::Result<(UnixStream, Option<Child>)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = match self {
            Self::ThisProgram => Some(spawn(&this_program()?, options, theirs)?),
            Self::Program(path) => Some(spawn(path, options, theirs)?),
            Self::InProcess(serve) => {
                let (serve, slots, threads) = (*serve, options.slots, options.threads);
                std::thread::Builder::new().name("attached".into()).spawn(move || serve(theirs, slots, threads))?;
                None
            }
        };
        Ok((ours, child))
    }
}

/// Returns the path of the running executable, even if its file was replaced since: host and worker must be the same
/// build.
fn this_program() -> std::io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

/// Starts a worker process. Its end of the socket is its standard input.
fn spawn(program: &PathBuf, options: &PoolOptions, socket: UnixStream) -> std::io::Result<Child> {
    let jail = match options.jail {
        JailPolicy::Required => "required",
        JailPolicy::Preferred => "preferred",
        JailPolicy::Off => "off",
    };
    let child = Command::new(program)
        .arg0("cellmate-worker")
        .arg(WORKER_ARGUMENT)
        .args([options.slots.to_string(), options.threads.to_string(), jail.to_owned()])
        .arg(options.heap_bytes().to_string())
        .env_clear()
        .current_dir("/")
        // Ctrl-C in a terminal goes to the foreground group. The host decides what it cancels, and needs its workers for
        // that.
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    lower_priority(&child);
    Ok(child)
}

/// Lowers the priority of a worker below that of the host, so that the host can serve other principals when cells use
/// all processors. The worker has not started its threads yet; they inherit the priority.
fn lower_priority(child: &Child) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) else { return };
    // If the system refuses, cells only compete more with the host.
    setpriority_process(Some(pid), WORKER_NICENESS).log_ignored("lower the priority of a worker");
}
