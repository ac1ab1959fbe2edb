//! Reads a secret's value: from a prompt without echo, or from standard input if that is not a terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write, stderr, stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use store::MAX_SECRET_BYTES;
use telemetry::LogIgnored;

/// Reads the value, without the line break at its end.
pub(super) fn read_value(name: &str) -> Result<String, String> {
    let bytes = if stdin().is_terminal() { prompt(name) } else { all_of_stdin() };
    let bytes = bytes.map_err(|error| format!("cannot read the secret: {error}"))?;
    value_of(bytes)
}

/// Returns the value in the bytes that were read: one line break at the end is not part of it.
fn value_of(bytes: Vec<u8>) -> Result<String, String> {
    let mut value = String::from_utf8(bytes).map_err(|_| "the secret is not Unicode text".to_owned())?;
    if value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    if value.is_empty() {
        return Err("nothing was set: the secret is empty".to_owned());
    }
    Ok(value)
}

/// Two more bytes than a value has, for the line break; a longer value is refused by the store.
const MAX_INPUT_BYTES: u64 = MAX_SECRET_BYTES as u64 + 3;

fn all_of_stdin() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stdin().lock().take(MAX_INPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn prompt(name: &str) -> io::Result<Vec<u8>> {
    eprint!("value of {name} (not shown): ");
    stderr().flush().log_expected("print a prompt");
    let mut line = Vec::new();
    let silenced = EchoDisabled::start()?;
    let read = stdin().lock().take(MAX_INPUT_BYTES).read_until(b'\n', &mut line);
    drop(silenced);
    eprintln!();
    read.map(|_| line)
}

/// A terminal that does not show what is typed, until this is dropped.
struct EchoDisabled {
    before: Termios,
}

impl EchoDisabled {
    fn start() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO;
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for EchoDisabled {
    fn drop(&mut self) {
        tcsetattr(stdin(), OptionalActions::Now, &self.before).log_ignored("restore the terminal's echo");
    }
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_the_value() {
        let value = |text: &str| value_of(text.as_bytes().to_vec());
        assert_eq!(value("abc\n"), Ok("abc".to_owned()));
        assert_eq!(value("abc\r\n"), Ok("abc".to_owned()));
        assert_eq!(value("a\nb\n\n"), Ok("a\nb\n".to_owned()));
        assert_eq!(value(" a "), Ok(" a ".to_owned()));
        assert!(value("").is_err() && value("\n").is_err() && value_of(vec![0xff]).is_err());
    }
}
