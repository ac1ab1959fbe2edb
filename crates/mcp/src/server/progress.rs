//! What is told of a call while it is under way: one line for each tool it calls, and what the tools say themselves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use executor::{Hook, HookAnswer, HookFuture, ToolEvent, ToolUpdate};
use serde_json::Value;
use tokio::sync::mpsc;

use super::plain;

/// Lines that wait to be sent. More than that, and nobody reads along: the rest is left out.
const MAX_WAITING_LINES: usize = 32;

const MAX_TOOL_CHARS: usize = 200;
const MAX_UPDATE_CHARS: usize = 300;

/// Where lines are told; nowhere for clients that did not ask.
#[derive(Clone, Default)]
pub(crate) struct Progress(Option<Arc<Told>>);

struct Told {
    calls: AtomicU32,
    lines: mpsc::Sender<String>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(told)" } else { "Progress(nobody)" })
    }
}

impl Progress {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<String>) {
        let (lines, heard) = mpsc::channel(MAX_WAITING_LINES);
        (Self(Some(Arc::new(Told { calls: AtomicU32::new(0), lines }))), heard)
    }

    pub(crate) fn say(&self, line: String) {
        if let Some(told) = &self.0 {
            drop(told.lines.try_send(line));
        }
    }

    /// What a tool says of itself, on behalf of a call that was told already.
    pub(crate) fn heard(&self, update: &ToolUpdate) {
        if self.0.is_some()
            && let Some(said) = said(&update.update)
        {
            self.say(format!("{}: {said}", tool(&update.tool_id)));
        }
    }
}

impl Hook for Progress {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        if let (Some(told), Some(id)) = (&self.0, &event.tool_id) {
            let number = told.calls.fetch_add(1, Ordering::Relaxed) + 1;
            self.say(format!("call {number}: {}", tool(id)));
        }
        Box::pin(async { Ok(HookAnswer::default()) })
    }
}

/// `github.create_issue`
fn tool(id: &str) -> String {
    let name = id.split_once(':').map_or(id, |(_, rest)| rest);
    plain(&name.replacen(':', ".", 1), MAX_TOOL_CHARS)
}

/// MCP's own words for progress, where there are any.
fn said(update: &Value) -> Option<String> {
    let message = update.get("message").and_then(Value::as_str).map(|text| plain(text, MAX_UPDATE_CHARS));
    let number = |name: &str| update.get(name).and_then(Value::as_f64);
    let far = match (number("progress"), number("total")) {
        (Some(done), Some(all)) => Some(format!("{done} of {all}")),
        (Some(done), None) => Some(done.to_string()),
        (None, _) => None,
    };
    match (message, far) {
        (Some(message), Some(far)) => Some(format!("{message} ({far})")),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Progress, said, tool};

    #[test]
    fn tools_and_updates_become_readable_text() {
        assert_eq!(tool("mcp:github:create:issue"), "github.create:issue");
        assert_eq!(said(&json!({"progress": 1, "total": 4})).as_deref(), Some("1 of 4"));
        assert_eq!(said(&json!({"progress": 1, "message": "a\u{1b}b"})).as_deref(), Some("a\\u{1b}b (1)"));
        assert_eq!(said(&json!({"other": 1})), None);
    }

    #[test]
    fn unread_progress_lines_are_bounded() {
        Progress::default().say("lost".to_owned());
        let (progress, mut lines) = Progress::channel();
        for line in 0..100 {
            progress.say(line.to_string());
        }
        let mut count = 0;
        while lines.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, super::MAX_WAITING_LINES);
    }
}
