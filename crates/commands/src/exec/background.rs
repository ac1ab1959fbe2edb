//! `cellmate exec --no-wait`: the command ends with the cell's first result, but tool calls that are under way then are
//! not interrupted.
//!
//! The command starts this program again, and sends it the cell over a socket that is its standard input. That process
//! runs the cell and prints the first result. If calls are still under way, it reports its exit code over the socket,
//! detaches from the terminal, and stays until they have ended.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use codemode::ExecInput;
use contract::cell::Language;
use contract::limits::MAX_BRIDGE_VALUE_BYTES;
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use serde_json::{Value, json};
use telemetry::LogIgnored;

/// Set for the process that continues in the background.
const VARIABLE: &str = "CELLMATE_EXEC_BACKGROUND";

/// The most bytes of the message that contains the cell.
const MAX_MESSAGE_BYTES: u64 = 2 * MAX_BRIDGE_VALUE_BYTES as u64;

/// Runs the cell in a second process. Returns when that process has printed the first result.
pub(super) fn start(cell: &ExecInput) -> io::Result<ExitCode> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut process = Command::new(this_program()?)
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, "1")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let message = json!({"source": cell.source, "language": cell.language.as_str()});
    ours.write_all(message.to_string().as_bytes())?;
    ours.shutdown(Shutdown::Write)?;
    let mut code = [0];
    match ours.read_exact(&mut code) {
        Ok(()) => Ok(ExitCode::from(u8::from_le_bytes(code))),
        // The background process ended without a result, and has printed the reason.
        Err(_) => {
            let code = process.wait()?.code().and_then(|code| u8::try_from(code).ok());
            Ok(ExitCode::from(code.unwrap_or(crate::render::FAILED)))
        }
    }
}

/// Returns the running executable, even if its file was replaced since.
fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// The connection of the second process to the first.
pub(super) struct Background(UnixStream);

impl Background {
    /// Returns the connection and the cell to run, if this is the second process.
    pub(super) fn receive() -> io::Result<Option<(Self, ExecInput)>> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let mut socket = UnixStream::from(stdin().try_clone_to_owned()?);
        let mut message = String::new();
        (&mut socket).take(MAX_MESSAGE_BYTES).read_to_string(&mut message)?;
        let cell = parse(&message).ok_or_else(|| io::Error::other(format!("${VARIABLE} is set; unset it")))?;
        Ok(Some((Self(socket), cell)))
    }

    /// Detaches from the terminal and the output of the first process, and lets that end with this exit code.
    pub(super) fn detach(mut self, code: u8) -> io::Result<()> {
        // First: the terminal may be closed as soon as the first process has ended, and its end is a signal for all
        // processes of the session.
        setsid()?;
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
        dup2_stderr(&nothing)?;
        // The first process may have been killed; the calls are finished in any case.
        self.0.write_all(&[code]).log_expected("report the exit code of a cell's first turn");
        Ok(())
    }
}

fn parse(message: &str) -> Option<ExecInput> {
    let message: Value = serde_json::from_str(message).ok()?;
    let source = message.get("source")?.as_str()?.to_owned();
    Some(ExecInput { source, language: Language::parse(message.get("language")?.as_str()?)? })
}

#[cfg(test)]
mod tests {
    use contract::cell::Language;

    use super::parse;

    #[test]
    fn only_a_message_with_source_and_language_is_a_cell() {
        let cell = parse(r#"{"source": "return 1", "language": "typescript"}"#).unwrap();
        assert_eq!((cell.source.as_str(), cell.language), ("return 1", Language::TypeScript));
        for wrong in ["", "{}", r#"{"source": "x", "language": "c"}"#] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
