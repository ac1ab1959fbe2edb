//! The keeper's main loop: it starts the program, watches the program and the host, and ends all remaining processes.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, kill_current_process_group};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use super::{CANNOT_START, PROGRAM_ARGUMENT, descendants, number, this_program};

/// How long a program and its descendants may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// How long killed processes may take to end. After that the whole group is killed, including the keeper.
const KILL_GRACE: Duration = Duration::from_millis(500);

/// How often the descendants are killed again: children of killed processes become the keeper's.
const SWEEP: Duration = Duration::from_millis(10);

/// How often the keeper checks that the host is alive, in case no signal reports its end.
const HOST_CHECK: Duration = Duration::from_millis(500);

/// Runs the keeper and returns its exit code.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let Some(host) = number(arguments.next()) else { return CANNOT_START };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let kept = runtime.and_then(|runtime| runtime.block_on(keep(host, arguments.collect())));
    match kept {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("cannot keep the process: {error}");
            CANNOT_START
        }
    }
}

async fn keep(host: i32, program: Vec<OsString>) -> io::Result<()> {
    descendants::adopt();
    // Handlers are installed before the program starts. The program does not inherit them.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut children = signal(SignalKind::child())?;
    // The kernel also sends this when only the host's starting thread ends, so the handler checks the parent again.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::HUP))?;
    let leader = start(program)?;
    release_streams()?;
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = hung_up.recv() => if is_orphan_of(host) { break },
            // For a host that ended before the signal was requested, and for systems without the signal.
            () = sleep(HOST_CHECK) => if is_orphan_of(host) { break },
            // When the configured command ends, the processes that it left behind are ended too.
            _ = children.recv() => if descendants::reap(Some(leader)).leader_ended { break },
        }
    }
    end(&mut children).await;
    Ok(())
}

/// Starts the program. It must be called on the main thread, which lives as long as the keeper: the kernel sends the
/// program's parent-death signal when the thread that started it ends.
fn start(program: Vec<OsString>) -> io::Result<Pid> {
    let us = getpid().as_raw_nonzero().to_string();
    let child = Command::new(this_program()).arg(PROGRAM_ARGUMENT).arg(us).args(program).spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the process id is out of range"))
}

/// Closes the keeper's copies of the pipes, so that they close when the program ends.
fn release_streams() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// Returns true if the host that started this process has ended.
fn is_orphan_of(host: i32) -> bool {
    getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(host)
}

/// Sends SIGTERM to all descendants, waits a moment, then kills until none is left.
async fn end(children: &mut Signals) {
    // The signal reaches the keeper too, which has a handler for it. It cannot fail: the keeper is in the group.
    let _never_fails = kill_current_process_group(Signal::TERM);
    let term_sent = Instant::now();
    while !descendants::reap(None).none_left {
        tokio::select! {
            _ = children.recv() => {}
            () = sleep_until(term_sent + TERM_GRACE) => break,
        }
    }
    let killing = Instant::now();
    while !descendants::reap(None).none_left {
        if killing.elapsed() > KILL_GRACE {
            // This kills the keeper itself as well.
            let _not_reached = kill_current_process_group(Signal::KILL);
        }
        descendants::kill();
        sleep(SWEEP).await;
    }
}
