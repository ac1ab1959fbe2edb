//! Text on a server's standard output that is not a message. Servers that log there, and commands that are no MCP servers,
//! fail to start because of it.

use std::sync::Arc;

use contract::text;
use parking_lot::Mutex;
use telemetry::Redactor;

/// How much of a line is shown.
const MAX_SHOWN_CHARS: usize = 200;

/// How much of a line is searched for secrets before it is cut.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The first line that a server printed instead of a message. The connection notes it, and its creator reports it, even
/// if the connection was closed before it was ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct StrayLine(Arc<Mutex<ServerOutput>>);

/// What a server has sent so far.
#[derive(Debug, Default)]
enum ServerOutput {
    #[default]
    Nothing,
    /// Only text, with this first line.
    Text(String),
    /// At least one message, so that text before it or after it did no harm.
    Message,
}

impl StrayLine {
    /// Records a line that is not a message.
    pub(crate) fn on_text(&self, line: &[u8]) {
        let mut output = self.0.lock();
        if matches!(*output, ServerOutput::Nothing) {
            *output = ServerOutput::Text(shown(line));
        }
    }

    /// Records that the server has sent a message.
    pub(crate) fn on_message(&self) {
        *self.0.lock() = ServerOutput::Message;
    }

    /// Returns the first line, if the server has sent no message.
    pub(crate) fn get(&self) -> Option<String> {
        match &*self.0.lock() {
            ServerOutput::Text(line) => Some(line.clone()),
            ServerOutput::Nothing | ServerOutput::Message => None,
        }
    }
}

/// Returns a line without secrets, cut, with control characters escaped.
fn shown(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line.get(..MAX_LINE_BYTES).unwrap_or(line));
    text::line(Redactor::global().redact(line.trim()).as_ref(), MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use telemetry::Redactor;

    use super::{MAX_SHOWN_CHARS, StrayLine};

    #[test]
    fn the_first_line_counts_until_a_message_arrives() {
        let stray = StrayLine::default();
        assert_eq!(stray.get(), None);
        stray.on_text(b"Listening\r");
        stray.on_text(b"again");
        assert_eq!(stray.get().as_deref(), Some("Listening"));
        stray.on_message();
        stray.on_text(b"later");
        assert_eq!(stray.get(), None);
    }

    #[test]
    fn a_line_is_shown_cut_escaped_and_without_secrets() {
        Redactor::global().register("stray-secret-value");
        let stray = StrayLine::default();
        stray.on_text(format!("\u{1b}[31mkey stray-secret-value {}", "x".repeat(1_000)).as_bytes());
        let line = stray.get().unwrap();
        assert!(line.contains("key [redacted] xx") && !line.contains('\u{1b}'), "{line}");
        // An escape is longer than its character.
        assert!(line.chars().count() <= MAX_SHOWN_CHARS + 8, "{line}");
    }
}
