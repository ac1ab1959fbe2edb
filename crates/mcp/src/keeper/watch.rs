//! What a keeper does: it starts the server, watches us and it, and ends what must not outlive us.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, kill_current_process_group};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use super::{CANNOT_START, SERVER_ARGUMENT, family, number, this_program};

/// How long a server and what it started may take to end once they are told to.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// How long killed processes may take to go. Past it the whole group is killed at once, the keeper with it.
const KILL_GRACE: Duration = Duration::from_millis(500);

/// How often what was killed is looked for again: its children become ours as it goes.
const SWEEP: Duration = Duration::from_millis(10);

/// How often the host is looked for where nobody tells of its end.
const HOST_CHECK: Duration = Duration::from_millis(500);

/// The keeper's exit code.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let Some(host) = number(arguments.next()) else { return CANNOT_START };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let kept = runtime.and_then(|runtime| runtime.block_on(keep(host, arguments.collect())));
    match kept {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("cannot keep the server: {error}");
            CANNOT_START
        }
    }
}

async fn keep(host: i32, server: Vec<OsString>) -> io::Result<()> {
    family::adopt();
    // Handlers stand before there is anybody to end, and the server does not inherit them.
    let mut told = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut children = signal(SignalKind::child())?;
    // The kernel says so also when a mere thread of the host's ends, hence the second look.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::HUP))?;
    let leader = start(server)?;
    release_streams()?;
    loop {
        tokio::select! {
            _ = told.recv() => break,
            _ = hung_up.recv() => if is_orphan_of(host) { break },
            // For what ended before the kernel was asked, and for other systems.
            () = sleep(HOST_CHECK) => if is_orphan_of(host) { break },
            // The command that was configured is the server: with it ends what it left behind.
            _ = children.recv() => if family::reap(Some(leader)).leader_ended { break },
        }
    }
    end(&mut children).await;
    Ok(())
}

/// From the first thread, which lives as long as the keeper: the server follows the death of the thread that made it.
fn start(server: Vec<OsString>) -> io::Result<Pid> {
    let us = getpid().as_raw_nonzero().to_string();
    let child = Command::new(this_program()).arg(SERVER_ARGUMENT).arg(us).args(server).spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("a process without number"))
}

/// Otherwise the server's end would not be the end of its pipes.
fn release_streams() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// Whether the process that started this one is no more.
fn is_orphan_of(host: i32) -> bool {
    getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(host)
}

/// Asks, waits a moment, then kills until nobody is left.
async fn end(children: &mut Signals) {
    // This reaches the keeper too, which has a handler for it.
    let _somebody_is_there = kill_current_process_group(Signal::TERM);
    let asked = Instant::now();
    while !family::reap(None).nobody_left {
        tokio::select! {
            _ = children.recv() => {}
            () = sleep_until(asked + TERM_GRACE) => break,
        }
    }
    let killing = Instant::now();
    while !family::reap(None).nobody_left {
        if killing.elapsed() > KILL_GRACE {
            let _we_are_in_it = kill_current_process_group(Signal::KILL);
        }
        family::kill();
        sleep(SWEEP).await;
    }
}
