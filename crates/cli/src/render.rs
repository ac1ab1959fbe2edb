//! How results look, and what they exit with.

use std::io::Write;
use std::process::ExitCode;

use contract::cell::{CellResult, OutputItem};
use serde_json::Value;

/// The cell failed; the result says how.
pub(crate) const FAILED: u8 = 1;
/// The command itself could not be carried out.
const TROUBLE: u8 = 2;
/// The cell still waits, and waiting was not wanted.
const WAITING: u8 = 3;

pub(crate) fn json(result: &CellResult) -> ExitCode {
    match serde_json::to_string(result) {
        Ok(text) => println!("{text}"),
        Err(error) => return trouble(&format!("the result cannot be printed: {error}")),
    }
    exit_code(result)
}

pub(crate) fn readable(result: &CellResult) -> ExitCode {
    for item in result.output() {
        match item {
            OutputItem::Text { text } => println!("{}", printable(text)),
            OutputItem::Json { value } => println!("{}", pretty(value.get())),
        }
    }
    match result {
        CellResult::Completed { value, telemetry, .. } => {
            println!("{}", pretty(value.get()));
            eprintln!("completed in {} ms, {} tool calls", telemetry.duration_ms.total, telemetry.call_count);
        }
        CellResult::Waiting { run_id, pending_tool_calls, .. } => {
            eprintln!("waiting for {} calls (run {run_id})", pending_tool_calls.len());
        }
        CellResult::Failed { error, code, .. } => match code {
            Some(code) => eprintln!("failed ({}): {}", code.as_str(), printable(error)),
            None => eprintln!("failed: {}", printable(error)),
        },
    }
    exit_code(result)
}

/// Something that was tried did not work.
pub(crate) fn failed(message: &str) -> ExitCode {
    eprintln!("cellmate: {message}");
    ExitCode::from(FAILED)
}

/// Prints a text as it is. A reader that has gone away, as `head` does, is no failure.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

pub(crate) fn trouble(message: &str) -> ExitCode {
    eprintln!("cellmate: {message}");
    ExitCode::from(TROUBLE)
}

pub(crate) fn exit_code(result: &CellResult) -> ExitCode {
    match result {
        CellResult::Completed { .. } => ExitCode::SUCCESS,
        CellResult::Failed { .. } => ExitCode::from(FAILED),
        CellResult::Waiting { .. } => ExitCode::from(WAITING),
    }
}

fn pretty(json: &str) -> String {
    let parsed: Result<Value, _> = serde_json::from_str(json);
    parsed.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| json.to_owned())
}

/// Guest text may carry escape sequences; a terminal must not obey them.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}
