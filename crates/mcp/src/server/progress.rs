//! Progress of a control call: one line for each tool call, and the progress that the tools report themselves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use executor::{Hook, HookAnswer, HookFuture, ToolEvent, ToolUpdate};
use serde_json::Value;
use telemetry::LogIgnored;
use tokio::sync::mpsc;

use super::plain;

/// The maximum number of unsent lines. If the client reads too slowly, further lines are dropped.
const MAX_WAITING_LINES: usize = 32;

const MAX_TOOL_CHARS: usize = 200;
const MAX_UPDATE_CHARS: usize = 300;

/// Sends progress lines to the client; disabled for clients that did not ask for progress.
#[derive(Clone, Default)]
pub(crate) struct Progress(Option<Arc<Channel>>);

struct Channel {
    calls: AtomicU32,
    lines: mpsc::Sender<String>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(enabled)" } else { "Progress(disabled)" })
    }
}

impl Progress {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<String>) {
        let (lines, receiver) = mpsc::channel(MAX_WAITING_LINES);
        (Self(Some(Arc::new(Channel { calls: AtomicU32::new(0), lines }))), receiver)
    }

    pub(crate) fn send(&self, line: String) {
        if let Some(channel) = &self.0 {
            channel.lines.try_send(line).log_expected("queue a progress line");
        }
    }

    /// Sends the progress that a tool reports. The call itself was announced before.
    pub(crate) fn send_update(&self, update: &ToolUpdate) {
        if self.0.is_some()
            && let Some(text) = describe(&update.update)
        {
            self.send(format!("{}: {text}", tool(&update.tool_id)));
        }
    }
}

impl Hook for Progress {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        if let (Some(channel), Some(id)) = (&self.0, &event.tool_id) {
            let number = channel.calls.fetch_add(1, Ordering::Relaxed) + 1;
            self.send(format!("call {number}: {}", tool(id)));
        }
        Box::pin(async { Ok(HookAnswer::default()) })
    }
}

/// Returns a tool's display name, such as `github.create_issue`.
fn tool(id: &str) -> String {
    let name = id.split_once(':').map_or(id, |(_, rest)| rest);
    plain(&name.replacen(':', ".", 1), MAX_TOOL_CHARS)
}

/// Describes an MCP progress notification, or returns `None` if it has neither a message nor a number.
pub fn describe(update: &Value) -> Option<String> {
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

    use super::{Progress, describe, tool};

    #[test]
    fn tool_names_and_updates_are_formatted_for_display() {
        assert_eq!(tool("mcp:github:create:issue"), "github.create:issue");
        assert_eq!(describe(&json!({"progress": 1, "total": 4})).as_deref(), Some("1 of 4"));
        assert_eq!(describe(&json!({"progress": 1, "message": "a\u{1b}b"})).as_deref(), Some("a\\u{1b}b (1)"));
        assert_eq!(describe(&json!({"other": 1})), None);
    }

    #[test]
    fn lines_are_dropped_if_progress_is_disabled_or_the_queue_is_full() {
        Progress::default().send("lost".to_owned());
        let (progress, mut receiver) = Progress::channel();
        for line in 0..100 {
            progress.send(line.to_string());
        }
        let mut kept = 0;
        while receiver.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, super::MAX_WAITING_LINES);
    }
}
