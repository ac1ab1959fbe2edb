//! A keeper: a small process between us and one server, which ends the server and all it started when we are no more.
//!
//! A signal at the parent's death reaches one process and not what that process started, and it needs a hook between
//! fork and exec. So each server gets a parent of its own that outlives us by a moment. It is this program, started
//! again: it hears of our end from the kernel (whichever thread of ours started it), leads the server's process
//! group, adopts whatever leaves that group, and hands our pipes to the server without touching what goes through
//! them. One for all servers would need descriptors handed over and would be one more thing whose end ends everything.
//!
//! Should the keeper itself be killed, the server gets the kernel's signal at its parent's death, and we, where we
//! live, end the group. What is not caught: host and keeper killed outright in the same moment leave grandchildren
//! that ignore the end of their input.

mod family;
mod watch;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::OnceLock;

use rustix::process::{getpid, getppid};

/// First arguments of this program when it is started as what it says.
const KEEPER_ARGUMENT: &str = "__mcp-keeper";
const SERVER_ARGUMENT: &str = "__mcp-server";

/// What a shell says of a command that cannot be started.
const CANNOT_START: i32 = 127;

/// The program to start as a keeper. A fact about this process that only its `main` knows, hence a static.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Becomes a keeper and never returns, if this process was started as one; otherwise notes that this program can be
/// one. Where it is never called, servers run without: they then outlive us if we are killed and they ignore the end
/// of their input.
///
/// Call it first in `main`, before any thread is started or file opened.
pub fn keeper_main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(OsStr::to_str) {
        Some(KEEPER_ARGUMENT) => exit(watch::run(arguments)),
        Some(SERVER_ARGUMENT) => exit(become_server(arguments)),
        _ => keep_with(this_program()),
    }
}

/// Has another program be the keeper: one whose `main` calls [`keeper_main`]. For tests, which have no `main`.
#[doc(hidden)]
pub fn keep_with(program: PathBuf) {
    PROGRAM.get_or_init(|| program);
}

/// The program that can be a keeper, where there is one.
pub(crate) fn program() -> Option<&'static Path> {
    PROGRAM.get().map(PathBuf::as_path)
}

/// What a keeper is told: whom to watch, and what to start.
pub(crate) fn arguments(server: &str, args: &[String]) -> Vec<String> {
    let us = getpid().as_raw_nonzero().to_string();
    [KEEPER_ARGUMENT.to_owned(), us, server.to_owned()].into_iter().chain(args.iter().cloned()).collect()
}

/// The running executable itself, even where the file has since been replaced.
fn this_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or(running) }
}

/// The number of a process, as [`arguments`] wrote it.
fn number(argument: Option<OsString>) -> Option<i32> {
    argument?.to_str()?.parse().ok()
}

/// Ties this process to its keeper and becomes the server.
fn become_server(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let (Some(keeper), Some(server)) = (number(arguments.next()), arguments.next()) else { return CANNOT_START };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        eprintln!("cannot follow the keeper's death: {error}");
        return CANNOT_START;
    }
    // It may have died before the line above.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(keeper) {
        return CANNOT_START;
    }
    let error = Command::new(&server).args(arguments).exec();
    eprintln!("cannot start `{}`: {error}", server.to_string_lossy());
    CANNOT_START
}
