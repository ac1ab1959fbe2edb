//! A line on the terminal that says which tool calls a command waits for, refreshed in place.

use std::io::{IsTerminal, Write, stderr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use catalog::mcp_identifier;
use client_config::display;
use contract::text;
use contract::tool::ToolId;
use executor::ToolUpdate;
use mcp::server::describe_progress;
use parking_lot::Mutex;
use telemetry::LogIgnored;

use crate::render::OutputFormat;
use crate::table::terminal_width;

/// How long a call may take before it is shown.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// How often the line is refreshed.
const REFRESH: Duration = Duration::from_secs(1);

/// The width of a terminal that does not know its own.
const DEFAULT_WIDTH: usize = 80;

/// Returns to the first column and clears the line.
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// The calls of this process. Set if they are shown.
static CALLS: OnceLock<Mutex<Calls>> = OnceLock::new();

/// The calls that have not ended.
#[derive(Debug, Default)]
struct Calls {
    /// The calls that have not ended, in the order in which they began.
    open: Vec<Call>,
    next_number: u64,
    /// How many questions wait for an answer on the terminal. While there are any, the line is not shown.
    questions: usize,
    is_shown: bool,
}

#[derive(Debug)]
struct Call {
    number: u64,
    tool: String,
    /// The name by which a cell calls the tool.
    name: String,
    began: Instant,
    /// What the tool has last reported.
    update: Option<String>,
}

/// Shows the calls of this process from now on, if standard error is a terminal and the result is for people.
pub(crate) fn show(format: OutputFormat) {
    if format == OutputFormat::Json || !stderr().is_terminal() || CALLS.set(Mutex::default()).is_err() {
        return;
    }
    tokio::spawn(async {
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Some(calls) = CALLS.get() {
                calls.lock().refresh();
            }
        }
    });
}

/// A call that is under way. Its end is noted when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall(Option<u64>);

/// Notes that a tool is called.
pub(crate) fn begin(tool: &ToolId) -> OpenCall {
    OpenCall(CALLS.get().map(|calls| calls.lock().begin(tool, Instant::now())))
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let (Some(number), Some(calls)) = (self.0, CALLS.get()) {
            let mut calls = calls.lock();
            calls.end(number);
            calls.hide();
        }
    }
}

/// Notes what a tool reports while it is called.
pub(crate) fn on_update(update: &ToolUpdate) {
    if let Some(calls) = CALLS.get() {
        calls.lock().update(&update.tool_id, describe_progress(&update.update));
    }
}

/// Hides the line while the user is asked something.
#[derive(Debug)]
pub(crate) struct Question(());

/// Notes that the user is asked something on the terminal, until the value is dropped.
pub(crate) fn question() -> Question {
    if let Some(calls) = CALLS.get() {
        let mut calls = calls.lock();
        calls.questions += 1;
        calls.hide();
    }
    Question(())
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(calls) = CALLS.get() {
            let mut calls = calls.lock();
            calls.questions = calls.questions.saturating_sub(1);
        }
    }
}

impl Calls {
    fn begin(&mut self, tool: &ToolId, began: Instant) -> u64 {
        self.next_number += 1;
        let name = format!("MCP.{}.{}", mcp_identifier(tool.owner(), "server"), display::plain(tool.name()));
        let tool = tool.as_str().to_owned();
        self.open.push(Call { number: self.next_number, tool, name, began, update: None });
        self.next_number
    }

    fn end(&mut self, number: u64) {
        self.open.retain(|call| call.number != number);
    }

    /// Several calls of one tool cannot be told apart here, so the latest has the update.
    fn update(&mut self, tool: &str, update: Option<String>) {
        if let (Some(call), Some(_)) = (self.open.iter_mut().rev().find(|call| call.tool == tool), &update) {
            call.update = update;
        }
    }

    /// Returns the line to show; `None` if no call takes long, or if the user is asked something.
    fn line(&self, now: Instant) -> Option<String> {
        let oldest = self.open.first().filter(|_| self.questions == 0)?;
        let waited = now.saturating_duration_since(oldest.began);
        if waited < SILENT_FOR {
            return None;
        }
        let more = match self.open.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let update = oldest.update.as_ref().map(|update| format!(" {update}")).unwrap_or_default();
        Some(format!("waiting for {}{more} ({} s)…{update}", oldest.name, waited.as_secs()))
    }

    fn refresh(&mut self) {
        match self.line(Instant::now()) {
            // A line that wraps could not be refreshed in place.
            Some(line) => {
                let width = terminal_width().unwrap_or(DEFAULT_WIDTH).saturating_sub(2);
                self.is_shown = true;
                print(&format!("{CLEAR_LINE}{}", text::line(&line, width)));
            }
            None => self.hide(),
        }
    }

    fn hide(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            print(CLEAR_LINE);
        }
    }
}

fn print(text: &str) {
    let mut stderr = stderr().lock();
    stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).log_expected("show which calls are awaited");
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use contract::tool::ToolId;

    use super::Calls;

    #[test]
    fn the_line_names_the_oldest_call_that_takes_long_unless_the_user_is_asked() {
        let tool = |id: &str| ToolId::parse(id).unwrap();
        let (mut calls, began) = (Calls::default(), Instant::now());
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let first = calls.begin(&tool("mcp:my-files:list_directory"), began);
        assert_eq!(calls.line(after(1)), None);
        assert_eq!(calls.line(after(3)).as_deref(), Some("waiting for MCP.myFiles.list_directory (3 s)…"));
        calls.begin(&tool("mcp:git:log"), after(2));
        calls.update("mcp:my-files:list_directory", Some("reading (1 of 4)".to_owned()));
        calls.update("mcp:my-files:list_directory", None);
        let both = "waiting for MCP.myFiles.list_directory and 1 more (4 s)… reading (1 of 4)";
        assert_eq!(calls.line(after(4)).as_deref(), Some(both));
        calls.questions = 1;
        assert_eq!(calls.line(after(4)), None);
        calls.questions = 0;
        calls.end(first);
        assert_eq!(calls.line(after(3)), None, "the other call has not taken long");
        assert_eq!(calls.line(after(4)).as_deref(), Some("waiting for MCP.git.log (2 s)…"));
    }
}
