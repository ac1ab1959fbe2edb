//! How a program ended by itself.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

use crate::keeper::SIGNALLED;

/// How a program ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program exited with this code.
    Exited(i32),
    /// The signal of this number ended it.
    Signalled(i32),
}

/// Signals that programs are often ended by, with their names.
const NAMED: [(Signal, &str); 6] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::ILL, "SIGILL"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::KILL, "SIGKILL"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::PIPE, "SIGPIPE"),
];

impl ProgramEnd {
    /// Reads how a program ended from the status of its keeper. A program that was ended on request did not end by itself,
    /// and a keeper that was killed knows nothing of its program.
    pub(crate) fn of_kept(keeper: ExitStatus) -> Option<Self> {
        let code = keeper.code()?;
        let end = if is_signal(code) { Self::Signalled(code - SIGNALLED) } else { Self::Exited(code) };
        (end != Self::Signalled(Signal::TERM.as_raw())).then_some(end)
    }

    /// Reads how a program without a keeper ended from its own status. It is ended on request with SIGTERM or SIGKILL.
    pub(crate) fn of_program(program: ExitStatus) -> Option<Self> {
        let by_request = [Signal::TERM, Signal::KILL].map(Signal::as_raw);
        let signalled = || program.signal().filter(|signal| !by_request.contains(signal)).map(Self::Signalled);
        program.code().map(Self::Exited).or_else(signalled)
    }
}

/// Whether a shell would report this exit code for a command that a signal ended.
fn is_signal(code: i32) -> bool {
    (1..=64).contains(&(code - SIGNALLED))
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(number) => match NAMED.iter().find(|(signal, _)| signal.as_raw() == *number) {
                Some((_, name)) => write!(f, "was ended by {name}"),
                None => write!(f, "was ended by signal {number}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::ProgramEnd;

    #[test]
    fn codes_and_signals_are_told_apart_and_an_end_on_request_is_not_reported() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let signalled = ExitStatus::from_raw;
        assert_eq!(ProgramEnd::of_kept(exited(3)), Some(ProgramEnd::Exited(3)));
        assert_eq!(ProgramEnd::of_kept(exited(128 + 9)), Some(ProgramEnd::Signalled(9)));
        assert_eq!((ProgramEnd::of_kept(exited(128 + 15)), ProgramEnd::of_kept(signalled(9))), (None, None));
        assert_eq!(ProgramEnd::of_program(exited(137)), Some(ProgramEnd::Exited(137)));
        assert_eq!(ProgramEnd::of_program(signalled(11)), Some(ProgramEnd::Signalled(11)));
        assert_eq!((ProgramEnd::of_program(signalled(9)), ProgramEnd::of_program(signalled(15))), (None, None));
        assert_eq!(ProgramEnd::Exited(0).to_string(), "exited with code 0");
        assert_eq!(ProgramEnd::Signalled(11).to_string(), "was ended by SIGSEGV");
        assert_eq!(ProgramEnd::Signalled(64).to_string(), "was ended by signal 64");
    }
}
