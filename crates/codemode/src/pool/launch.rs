//! How a worker comes to be: a process of this program, or threads of a test.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;

use contract::frame::WORKER_ARGUMENT;
use rustix::process::{Pid, setpriority_process};
use tokio::process::{Child, Command};

use super::PoolOptions;

/// How much a worker gives way to other processes, from 0 to 19. At 5 it gets a third of the time of one at 0.
const WORKER_NICENESS: i32 = 5;

/// What a worker's jail must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JailPolicy {
    /// The whole jail, or no worker.
    Required,
    /// As much as the system has.
    Preferred,
    /// None. For debugging.
    Off,
}

#[derive(Clone, Debug)]
pub enum Launch {
    /// This program again; its `main` calls `sandbox::worker_main` first.
    ThisProgram,
    Program(PathBuf),
    /// Somebody who serves the other end of a socket, such as `sandbox::serve_attached`.
    Attached(fn(UnixStream, slots: u32, threads: usize) -> std::io::Result<()>),
}

impl Launch {
    /// Starts a worker; returns our end of its socket.
    pub(super) fn launch(&self, options: &PoolOptions) -> std::io::Result<(UnixStream, Option<Child>)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = match self {
            Self::ThisProgram => Some(spawn(&this_program()?, options, theirs)?),
            Self::Program(path) => Some(spawn(path, options, theirs)?),
            Self::Attached(serve) => {
                let (serve, slots, threads) = (*serve, options.slots, options.threads);
                std::thread::Builder::new().name("attached".into()).spawn(move || serve(theirs, slots, threads))?;
                None
            }
        };
        Ok((ours, child))
    }
}

/// The running executable itself, even where the file has since been replaced: host and worker must
/// be of one build.
fn this_program() -> std::io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

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
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    lower_priority(&child);
    Ok(child)
}

/// Lets the host go before its workers where cells use all processors, so that it can still serve other principals. The
/// worker has not started its threads yet; they inherit the priority.
fn lower_priority(child: &Child) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) else { return };
    // Where the system refuses, cells only compete harder.
    let _refused = setpriority_process(Some(pid), WORKER_NICENESS);
}
