//! The keeper's main loop: it starts the program, watches the program and the host, and ends all remaining processes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitStatus, getpid, getppid, kill_current_process_group, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::{
    CANNOT_START, COMMAND_ARGUMENT, LET_FINISH, PROGRAM_ARGUMENT, SIGNALLED, descendants, number, this_program,
};
use crate::spec::Report;

/// How long a program and its descendants may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// How long killed processes may take to end. After that the whole group is killed, including the keeper.
const KILL_GRACE: Duration = Duration::from_millis(500);

/// How often the descendants are killed again: children of killed processes become the keeper's.
const SWEEP: Duration = Duration::from_millis(10);

/// How long a program may take to finish what it does after its host has ended.
const FINISH_TIME: Duration = Duration::from_secs(60);

/// How often the keeper checks that the host is alive, in case no signal reports its end.
const HOST_CHECK: Duration = Duration::from_millis(500);

/// How often the processes of a command are counted.
const COUNT_EVERY: Duration = Duration::from_millis(200);

/// How long the processes of a command may take to end after they were killed: there may be thousands.
const COMMAND_KILL_GRACE: Duration = Duration::from_secs(10);

/// What a keeper starts and watches.
enum KeeperTarget {
    /// A program with its arguments.
    Program(Vec<OsString>),
    /// A command, which may have this many processes.
    Command { processes: usize },
}

/// Keeps a program and returns the exit code.
pub(super) fn keep_program(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let host = number(arguments.next());
    run(host, KeeperTarget::Program(arguments.collect()))
}

/// Keeps a command and returns the exit code.
pub(super) fn keep_command(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let (host, processes) = (number(arguments.next()), number(arguments.next()));
    let Some(processes) = processes.and_then(|max| usize::try_from(max).ok()) else { return CANNOT_START };
    run(host, KeeperTarget::Command { processes })
}

fn run(host: Option<i32>, kept: KeeperTarget) -> i32 {
    let Some(host) = host else { return CANNOT_START };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(keep(host, kept))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cannot keep the process: {error}");
            CANNOT_START
        }
    }
}

/// Keeps the target until it ends or must end. Returns the exit code of the keeper, which tells the host of a program how
/// that ended.
async fn keep(host: i32, kept: KeeperTarget) -> io::Result<i32> {
    // The host of a command reads from the socket at standard input how the command ended.
    let mut host_socket = match kept {
        KeeperTarget::Program(_) => None,
        KeeperTarget::Command { .. } => {
            // A command must not use the host's terminal. The session's leader also leads a process group.
            setsid()?;
            Some(File::from(io::stdin().as_fd().try_clone_to_owned()?))
        }
    };
    let max_processes = match kept {
        KeeperTarget::Program(_) => None,
        KeeperTarget::Command { processes } => Some(processes),
    };
    descendants::adopt();
    // Handlers are installed before the program starts. The program does not inherit them.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut children = signal(SignalKind::child())?;
    let mut let_finish = signal(SignalKind::from_raw(LET_FINISH.as_raw()))?;
    // Set if the program may outlive the host until then.
    let mut finish_until: Option<Instant> = None;
    // The kernel also sends this when only the host's starting thread ends, so the handler checks the parent again.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::HUP))?;
    let leader = start(kept)?;
    release_streams()?;
    let mut host_check = interval(HOST_CHECK);
    let mut count = interval(COUNT_EVERY);
    let (status, report) = loop {
        tokio::select! {
            // The host sends the first of these signals before it ends, so it counts before the end of the host.
            biased;
            _ = let_finish.recv(), if max_processes.is_none() => {
                finish_until = Some(Instant::now() + FINISH_TIME);
                drain_output(leader);
            }
            () = sleep_until(finish_until.unwrap_or_else(Instant::now)), if finish_until.is_some() => break (None, None),
            // The program may have ended by itself just before.
            _ = terminated.recv() => break (descendants::reap(Some(leader)).leader, None),
            _ = hung_up.recv() => if finish_until.is_none() && is_orphan_of(host) { break (None, None) },
            // For a host that ended before the signal was requested, and for systems without the signal.
            _ = host_check.tick() => if finish_until.is_none() && is_orphan_of(host) { break (None, None) },
            // When the configured command ends, the processes that it left behind are ended too.
            _ = children.recv() => if let Some(status) = descendants::reap(Some(leader)).leader {
                break (Some(status), report(status));
            },
            _ = count.tick(), if max_processes.is_some() => {
                if let Some(max) = max_processes.filter(|max| descendants::are_more_than(*max)) {
                    break (None, Some(Report::TooManyProcesses(max)));
                }
            }
        }
    };
    if let (Some(socket), Some(report)) = (&mut host_socket, report) {
        let line = serde_json::to_string(&report).unwrap_or_default();
        // If the host has ended, nothing receives the report.
        let _unheard = socket.write_all(format!("{line}\n").as_bytes());
    }
    let patience = if max_processes.is_some() { COMMAND_KILL_GRACE } else { KILL_GRACE };
    let ended_meanwhile = end(&mut children, leader, patience).await;
    match max_processes {
        Some(_) => Ok(0),
        None => Ok(program_code(status.or(ended_meanwhile))),
    }
}

/// Returns the exit code that says how a program ended, as a shell does: its own code, or 128 and the number of the
/// signal. A program that was ended on request counts as ended by SIGTERM.
fn program_code(status: Option<WaitStatus>) -> i32 {
    let code = |status: WaitStatus| {
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| SIGNALLED + signal))
    };
    status.and_then(code).unwrap_or(SIGNALLED + Signal::TERM.as_raw())
}

fn report(status: WaitStatus) -> Option<Report> {
    let signalled = || status.terminating_signal().map(Report::Signalled);
    status.exit_status().map(Report::Exited).or_else(signalled)
}

/// Starts the program. It must be called on the main thread, which lives as long as the keeper: the kernel sends the
/// program's parent-death signal when the thread that started it ends.
fn start(kept: KeeperTarget) -> io::Result<Pid> {
    let us = getpid().as_raw_nonzero().to_string();
    let mut command = Command::new(this_program());
    match kept {
        KeeperTarget::Program(program) => command.arg(PROGRAM_ARGUMENT).arg(us).args(program),
        KeeperTarget::Command { .. } => command.arg0("cellmate-command").arg(COMMAND_ARGUMENT).arg(us),
    };
    let child = command.spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the process id is out of range"))
}

/// Reads what the program prints instead of the host, whose end would otherwise close the pipes: most programs end when
/// they print to a closed pipe.
fn drain_output(program: Pid) {
    for stream in [1, 2] {
        let path = format!("/proc/{}/fd/{stream}", program.as_raw_nonzero());
        // Without the file, the program ends when it prints.
        if let Ok(mut output) = File::open(path) {
            std::thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        }
    }
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

/// Sends SIGTERM to all descendants, waits a moment, then kills until none is left. Returns how the leader ended, unless
/// it had to be killed.
async fn end(children: &mut Signals, leader: Pid, patience: Duration) -> Option<WaitStatus> {
    // The signal reaches the keeper too, which has a handler for it. It cannot fail: the keeper is in the group.
    let _never_fails = kill_current_process_group(Signal::TERM);
    descendants::terminate_others();
    let term_sent = Instant::now();
    let mut status = None;
    loop {
        let reaped = descendants::reap(Some(leader));
        status = status.or(reaped.leader);
        if reaped.none_left {
            break;
        }
        tokio::select! {
            _ = children.recv() => {}
            () = sleep_until(term_sent + TERM_GRACE) => break,
        }
    }
    let killing = Instant::now();
    while !descendants::reap(None).none_left {
        if killing.elapsed() > patience {
            // This kills the keeper itself as well.
            let _not_reached = kill_current_process_group(Signal::KILL);
        }
        descendants::kill();
        sleep(SWEEP).await;
    }
    status
}
