//! Printing of results and errors, and the exit codes that go with them.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use contract::cell::{CellResult, Effect, EffectState, Media, OutputItem, Preview};
use contract::error::ErrorCode;
use contract::ids::RunId;
use contract::text;
use serde_json::Value;
use telemetry::LogIgnored;

use crate::size::size;
use crate::style::{Stream, Style, paint};
use crate::table::{Table, terminal_width};

/// The cell or the operation failed.
pub(crate) const FAILED: u8 = 1;
/// The command itself could not be carried out.
const FATAL: u8 = 2;
/// The cell is still waiting, and the command does not wait any longer.
pub(crate) const WAITING: u8 = 3;
/// The user interrupted the command; shells report this code for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Text for people.
    Text,
    Json,
}

impl OutputFormat {
    /// Returns the format of a command with the flag `--json`.
    pub(crate) fn from_flag(as_json: bool) -> Self {
        if as_json { Self::Json } else { Self::Text }
    }

    /// Returns the format of a cell's result if the command's format is this one: JSON also if standard output is not a
    /// terminal.
    pub(crate) fn for_cell_result(self) -> Self {
        if std::io::stdout().is_terminal() { self } else { Self::Json }
    }
}

pub(crate) fn json(result: &CellResult) -> ExitCode {
    match serde_json::to_string(result) {
        Ok(text) => write_out(&format!("{}\n", text::escape_json(&text))),
        Err(error) => return fatal(&format!("cannot print the result: {error}")),
    }
    exit_code(result)
}

/// Prints a result for people. `run` is the run that the store has, if it has it.
pub(crate) fn readable(result: &CellResult, run: Option<&RunId>) -> ExitCode {
    print_output(result.output());
    match result {
        CellResult::Completed { value, telemetry, .. } => {
            print(&match stored_value(value.get(), run) {
                Some(preview) => previewed(&preview),
                None => format!("{}\n", pretty(value.get())),
            });
            let calls = match telemetry.call_count {
                1 => "1 tool call".to_owned(),
                count => format!("{count} tool calls"),
            };
            let run = run.map(|run| format!(" (run {run})")).unwrap_or_default();
            note(&format!("completed in {} ms, {calls}{run}", telemetry.duration_ms.total));
        }
        CellResult::Waiting { run_id, pending_tool_calls, .. } => print_waiting(run_id, pending_tool_calls.len()),
        CellResult::Failed { error, code, effects, .. } => {
            print_failure(error, *code, effects);
            run.iter().for_each(|run| note(&format!("(run {run})")));
        }
    }
    exit_code(result)
}

/// Returns the preview that a result has in place of a value that was too large for it. A cell can return an object that
/// looks like one, but not one whose handle the run made.
fn stored_value(value: &str, run: Option<&RunId>) -> Option<Preview> {
    let value: Value = serde_json::from_str(value).ok()?;
    let preview: Preview = (value.get("type")? == "stored").then(|| serde_json::from_value(value).ok())??;
    let number = preview.handle.as_str().strip_prefix("out_")?.strip_prefix(run?.as_str())?;
    number.chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric()).then_some(preview)
}

/// Prints what a cell output, for people.
pub(crate) fn print_output(items: &[OutputItem]) {
    for item in items {
        match item {
            OutputItem::Text { text } => print(&format!("{text}\n")),
            OutputItem::Json { value } => print(&format!("{}\n", pretty(value.get()))),
            OutputItem::Image(media) => print(&format!("{}\n", described_media("image", media))),
            OutputItem::Audio(media) => print(&format!("{}\n", described_media("audio", media))),
            OutputItem::Stored(preview) => print(&previewed(preview)),
        }
    }
}

/// Returns a line such as `[image: image/png, 12 kB, out_cm_1_l0n0]`.
fn described_media(kind: &str, media: &Media) -> String {
    let handle = media.handle.as_ref().map(|handle| format!(", {handle}")).unwrap_or_default();
    format!("[{kind}: {}, {}{handle}]", media.mime_type, size(media.data.len() as u64))
}

/// Returns the beginning and the end of a stored item, and how to read all of it.
fn previewed(preview: &Preview) -> String {
    let Preview { handle, of, bytes, first, last, .. } = preview;
    format!("{first}\n…\n{last}\n[{of}, {}: `cellmate runs output {handle}` prints all of it]\n", size(*bytes))
}

/// Says that a cell has not ended.
pub(crate) fn print_waiting(run_id: &RunId, pending: usize) {
    let calls = if pending == 1 { "1 call".to_owned() } else { format!("{pending} calls") };
    note(&format!("waiting for {calls} (run {run_id})"));
}

/// Prints why a cell failed, and which of its calls had an effect or may have had one.
pub(crate) fn print_failure(error: &str, code: Option<ErrorCode>, effects: &[Effect]) {
    let code = code.map(|code| format!(" ({})", code.as_str())).unwrap_or_default();
    // Indented, so that a cell's text cannot pass for a message of cellmate.
    eprintln!("failed{code}: {}", printable(error).replace('\n', "\n  "));
    for effect in effects {
        let state = match effect.state {
            EffectState::Done => "was made",
            EffectState::Failed => "was made and failed",
            EffectState::Unknown => "was made; its result is unknown",
        };
        note(&format!("  call {} of `{}` {state}", effect.call, effect.tool));
    }
}

/// Prints text of any number of lines to standard output, with control and invisible characters escaped.
///
/// A closed pipe, as with `head`, is not an error.
pub(crate) fn print(text: &str) {
    write_out(&printable(text));
}

/// Prints text that has no characters of others that could control a terminal: escaped and painted text, or text of
/// cellmate itself.
pub(crate) fn print_safe(text: &str) {
    write_out(text);
}

/// Prints a table that fits the terminal.
pub(crate) fn print_table<const N: usize>(table: &Table<N>) {
    let text = table.render(terminal_width());
    // The first line is the header, and the table has escaped its cells.
    let (header, rows) = text.split_once('\n').unwrap_or((&text, ""));
    write_out(&format!("{}\n{rows}", paint(header, Style::Heading, Stream::Out)));
}

/// Prints a value as one line of JSON, with the same characters escaped.
pub(crate) fn print_json(value: &Value) {
    write_out(&format!("{}\n", text::escape_json(&value.to_string())));
}

fn write_out(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).log_expected("write to standard output");
}

/// Prints the text to standard error as one line: line breaks become spaces.
pub(crate) fn note(text: &str) {
    eprintln!("{}", text::line(text, usize::MAX));
}

/// Prints lines that a program wrote to its standard error, indented below the message that they belong to.
pub(crate) fn note_stderr(lines: &[String]) {
    lines.iter().for_each(|line| note(&format!("      | {line}")));
}

/// Says which number is used instead of one that is outside of its range.
pub(crate) fn out_of_range(name: impl Display, given: impl Display, [least, most, used]: [impl Display; 3]) -> String {
    format!("`{name}`: {given} is outside of its range, {least} to {most}, so {used} is used")
}

/// Prints a note that only helps people, if standard output is a terminal: a program that reads the output does not
/// need it.
pub(crate) fn note_on_terminal(text: &str) {
    if std::io::stdout().is_terminal() {
        note(text);
    }
}

/// Reports that the operation was attempted and failed.
pub(crate) fn failed(message: &str) -> ExitCode {
    note(&format!("cellmate: {message}"));
    ExitCode::from(FAILED)
}

/// Reports that the command could not be carried out, for example because of its arguments or a file.
pub(crate) fn fatal(message: &str) -> ExitCode {
    note(&format!("cellmate: {message}"));
    ExitCode::from(FATAL)
}

pub(crate) fn exit_code(result: &CellResult) -> ExitCode {
    match result {
        CellResult::Completed { .. } => ExitCode::SUCCESS,
        CellResult::Failed { .. } => ExitCode::from(FAILED),
        CellResult::Waiting { .. } => ExitCode::from(WAITING),
    }
}

/// Indents JSON from a server or cell for people to read.
pub(crate) fn pretty(json: &str) -> String {
    let parsed: Result<Value, _> = serde_json::from_str(json);
    let pretty = parsed.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| json.to_owned());
    text::escape_json(&pretty).into_owned()
}

/// Escapes text from a server or cell, of any number of lines, so that it cannot control a terminal.
pub(crate) fn printable(text: &str) -> String {
    text::plain(text, usize::MAX)
}
