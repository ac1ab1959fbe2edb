//! A keeper: a small process between the host and one program. When the host ends, it ends the program and everything
//! that the program started.
//!
//! A parent-death signal reaches only one process, not the processes that it started, and it needs a hook between fork
//! and exec. So each program gets its own parent, which outlives the host by a moment. It is this program, started
//! again: the kernel notifies it when the host ends (whichever host thread started it), it leads the program's
//! process group, adopts processes that leave that group, and passes the host's pipes to the program without reading them. A
//! single keeper for all programs would need file descriptors passed to it and would be one more single point of
//! failure.
//!
//! If the keeper itself is killed, the program receives the kernel's parent-death signal, and the host, if it is alive,
//! ends the group. Not covered: if host and keeper are killed at the same moment, grandchildren that ignore the end of
//! their input stay.

mod descendants;
mod stage;
mod watch;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::OnceLock;

use rustix::process::{Signal, getpid, getppid};

/// The first argument of this program when it is started as a keeper, or to become the program.
const KEEPER_ARGUMENT: &str = "__keeper";
const PROGRAM_ARGUMENT: &str = "__kept";

/// The first argument of this program when it is started as the keeper of a command, or to become the command.
const COMMAND_KEEPER_ARGUMENT: &str = "__command-keeper";
const COMMAND_ARGUMENT: &str = "__command";

/// The exit code that a shell uses for a command that cannot be started.
const CANNOT_START: i32 = 127;

/// The signal with which a host lets a kept program finish what it does, such as a download, although the host ends.
pub(crate) const LET_FINISH: Signal = Signal::USR1;

/// What a shell adds to the number of the signal that ended a command, for its exit code.
pub(crate) const SIGNALLED: i32 = 128;

/// The program to start as a keeper. A static, because only `main` knows whether this program can be one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Becomes a keeper and never returns, if this process was started as one; otherwise records that this program can be
/// one. If it is never called, child processes run without a keeper: they then outlive a killed host if they ignore the end of
/// their input.
///
/// Call it first in `main`, before any thread is started or file opened.
pub fn keeper_main() {
    keeper_main_closing_files(|| Ok(()));
}

/// Does what [`keeper_main`] does. Before this process becomes a command, it closes all files but the standard streams
/// with `close_inherited`: the program that started the host may have left some open.
pub fn keeper_main_closing_files(close_inherited: fn() -> io::Result<()>) {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(OsStr::to_str) {
        Some(KEEPER_ARGUMENT) => exit(watch::keep_program(arguments)),
        Some(PROGRAM_ARGUMENT) => exit(become_program(arguments)),
        Some(COMMAND_KEEPER_ARGUMENT) => exit(watch::keep_command(arguments)),
        Some(COMMAND_ARGUMENT) => exit(match follow_keeper(number(arguments.next())) {
            Ok(()) => stage::become_command(close_inherited),
            Err(code) => code,
        }),
        _ => set_keeper_program(this_program()),
    }
}

/// Uses another program as the keeper, whose `main` must call [`keeper_main`]. For tests, which have no `main`.
#[doc(hidden)]
pub fn set_keeper_program(program: PathBuf) {
    PROGRAM.get_or_init(|| program);
}

/// Returns the program that can be a keeper, if there is one.
pub(crate) fn program() -> Option<&'static Path> {
    PROGRAM.get().map(PathBuf::as_path)
}

/// Returns a keeper's arguments: the process to watch, and the command to start.
pub(crate) fn arguments(program: &str, args: &[String]) -> Vec<String> {
    let us = getpid().as_raw_nonzero().to_string();
    [KEEPER_ARGUMENT.to_owned(), us, program.to_owned()].into_iter().chain(args.iter().cloned()).collect()
}

/// Returns the arguments of a command's keeper: the process to watch, and how many processes the command may have.
pub(crate) fn command_arguments(processes: usize) -> [String; 3] {
    let us = getpid().as_raw_nonzero().to_string();
    [COMMAND_KEEPER_ARGUMENT.to_owned(), us, processes.to_string()]
}

/// Returns the running executable itself, even if the file has been replaced since.
fn this_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or(running) }
}

/// Parses a process id as [`arguments`] wrote it.
fn number(argument: Option<OsString>) -> Option<i32> {
    argument?.to_str()?.parse().ok()
}

/// Replaces this process with the program.
fn become_program(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let (keeper, Some(program)) = (number(arguments.next()), arguments.next()) else { return CANNOT_START };
    if let Err(code) = follow_keeper(keeper) {
        return code;
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("cannot start `{}`: {error}", program.to_string_lossy());
    CANNOT_START
}

/// Ties this process's life to its keeper. Returns an exit code if that fails.
fn follow_keeper(keeper: Option<i32>) -> Result<(), i32> {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        eprintln!("cannot tie the process to its keeper: {error}");
        return Err(CANNOT_START);
    }
    // The keeper may have ended before the signal was set.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if keeper.is_some() && parent == keeper { Ok(()) } else { Err(CANNOT_START) }
}
