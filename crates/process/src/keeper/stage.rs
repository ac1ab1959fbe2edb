//! The last stage before a command: this program, started by the keeper, limits itself and becomes the command.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::stdio::dup2_stdin;

use super::CANNOT_START;
use crate::confine;
use crate::spec::{CommandSpec, MAX_SPEC_BYTES, Report};

/// Reads a [`CommandSpec`] from the socket at standard input and becomes that command. Returns the exit code, and only if
/// that fails. The reason is sent to the host, or printed to standard error if the socket has been replaced by then.
pub(super) fn become_command(close_inherited: fn() -> io::Result<()>) -> i32 {
    let reason = match prepare(close_inherited) {
        Ok(mut command) => {
            // `prepare` has replaced the socket at standard input, so the host can only get the exit code.
            let error = command.exec();
            let program = command.get_program().to_string_lossy().into_owned();
            eprintln!("cannot start `{program}`: {error}");
            return CANNOT_START;
        }
        Err(reason) => reason,
    };
    let report = serde_json::to_string(&Report::NotStarted(reason)).unwrap_or_default();
    // If the host has ended, nothing receives the report.
    let _unheard = stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .and_then(|mut socket| socket.write_all(format!("{report}\n").as_bytes()));
    CANNOT_START
}

/// Reads the command, enters its folder, applies its limits and confinement, and replaces standard input.
fn prepare(close_inherited: fn() -> io::Result<()>) -> Result<Command, String> {
    close_inherited().map_err(|error| format!("cannot close inherited files: {error}"))?;
    let spec = read_spec()?;
    if !spec.program.is_file() {
        return Err(format!("`{}` is not a program", spec.program.display()));
    }
    std::env::set_current_dir(&spec.cwd)
        .map_err(|error| format!("cannot enter the folder `{}`: {error}", spec.cwd.display()))?;
    let nothing = File::open("/dev/null").map_err(|error| format!("cannot open /dev/null: {error}"))?;
    confine::apply(&spec.limits, spec.confinement.as_ref())?;
    dup2_stdin(&nothing).map_err(|error| format!("cannot close standard input: {error}"))?;
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(&spec.env);
    Ok(command)
}

fn read_spec() -> Result<CommandSpec, String> {
    let socket = stdin().as_fd().try_clone_to_owned().map_err(|error| format!("cannot read the command: {error}"))?;
    let mut line = Vec::new();
    let mut limited = BufReader::new(File::from(socket)).take(MAX_SPEC_BYTES);
    limited.read_until(b'\n', &mut line).map_err(|error| format!("cannot read the command: {error}"))?;
    serde_json::from_slice(&line).map_err(|error| format!("the command cannot be read: {error}"))
}
