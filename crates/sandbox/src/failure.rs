//! Failures of a cell as the model reads them: an error code if the contract has one, and what to do next.

use contract::error::ErrorCode;
use contract::frame::{Failure, SourcePosition};
use contract::json;
use contract::limits::{MAX_BRIDGE_VALUE_DEPTH, MAX_ERROR_BYTES};
use serde_json::Value;

use crate::source::Places;

/// An uncaught exception of the guest, or the error of a nested call that it did not catch.
pub(crate) fn thrown(described: &[u8], places: &Places) -> Failure {
    let error = GuestError::parse(described);
    let code = match error.code.as_str() {
        _ if error.tool.is_none() => None,
        "too_many_pending_tool_calls" => Some(ErrorCode::TooManyPendingToolCalls),
        _ => Some(ErrorCode::NestedToolFailed),
    };
    let message = match (&error.tool, code) {
        // A function of the cell API that is no tool, such as `output.read()`.
        (Some(function), Some(ErrorCode::NestedToolFailed)) if function.ends_with("()") => {
            format!("{function} failed: {}", error.message)
        }
        (Some(tool), Some(ErrorCode::NestedToolFailed)) if !tool.is_empty() => {
            format!("tool `{tool}` failed: {}", error.message)
        }
        _ if error.name.is_empty() => error.message.clone(),
        _ => format!("{}: {}", error.name, error.message),
    };
    Failure { code, message: bounded(message), position: error.position(places) }
}

/// Source that the parser accepted but QuickJS rejects.
pub(crate) fn bad_syntax(described: &[u8], places: &Places) -> Failure {
    let error = GuestError::parse(described);
    Failure {
        code: Some(ErrorCode::InvalidInput),
        message: bounded(format!("{}: {}", error.name, error.message)),
        position: error.position(places),
    }
}

pub(crate) fn stuck() -> Failure {
    Failure {
        code: None,
        message: "the cell waits for a promise that nothing can settle: no tool call and no timer is pending"
            .to_owned(),
        position: None,
    }
}

pub(crate) fn stack_overflow() -> Failure {
    Failure { code: None, message: "RangeError: Maximum call stack size exceeded".to_owned(), position: None }
}

pub(crate) fn timeout(run_ms: u64) -> Failure {
    Failure {
        code: Some(ErrorCode::Timeout),
        message: format!(
            "the cell ran for its whole budget of {run_ms} ms without finishing; do less work in one cell"
        ),
        position: None,
    }
}

pub(crate) fn memory_limit(bytes: u64) -> Failure {
    Failure {
        code: Some(ErrorCode::MemoryLimitExceeded),
        message: format!("the cell exceeded its memory limit of {bytes} bytes; keep less data at once"),
        position: None,
    }
}

pub(crate) fn output_limit(total: u64, limit: u64) -> Failure {
    Failure {
        code: Some(ErrorCode::OutputLimitExceeded),
        message: format!(
            "the cell's output and value take {total} bytes, the limit is {limit}; return or print less, \
             for example a summary or a slice"
        ),
        position: None,
    }
}

/// Readers of results have depth limits and would reject the whole result.
pub(crate) fn too_deep() -> Failure {
    Failure {
        code: None,
        message: format!("RangeError: the cell's value nests deeper than {MAX_BRIDGE_VALUE_DEPTH} levels; return less"),
        position: None,
    }
}

pub(crate) fn snapshot_limit(bytes: usize, limit: u64) -> Failure {
    Failure {
        code: Some(ErrorCode::SnapshotLimitExceeded),
        message: format!(
            "the suspended cell takes {bytes} bytes, the limit is {limit}; keep less in variables across an await"
        ),
        position: None,
    }
}

pub(crate) fn internal(message: &str) -> Failure {
    Failure { code: Some(ErrorCode::InternalError), message: message.to_owned(), position: None }
}

/// An error as `describe` in `guest/prelude/output.js` reports it. All fields come from the guest and are not trusted.
#[derive(Default)]
struct GuestError {
    name: String,
    message: String,
    stack: String,
    maker: String,
    code: String,
    tool: Option<String>,
}

impl GuestError {
    fn parse(described: &[u8]) -> Self {
        let Some(Value::Object(fields)) = std::str::from_utf8(described).ok().and_then(|text| json::read(text).ok())
        else {
            return Self { message: "the cell threw a value that cannot be read".to_owned(), ..Self::default() };
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            message: text("message"),
            stack: text("stack"),
            maker: text("maker"),
            code: text("code"),
            tool: fields.get("tool").and_then(Value::as_str).map(str::to_owned),
        }
    }

    /// Returns the position of the topmost frame in the cell's own code, except the constructor of its own error class.
    /// The cell can forge the stack, so a position that its source does not have is dropped.
    fn position(&self, places: &Places) -> Option<SourcePosition> {
        let maker = format!("at {} (", self.maker);
        let frame = self.stack.lines().find(|frame| frame.contains("cell:") && !frame.contains(&maker))?;
        let (_, after) = frame.split_once("cell:")?;
        let mut numbers = after.split(|c: char| !c.is_ascii_digit());
        let line = numbers.next()?.parse().ok()?;
        let column = numbers.next()?.parse().ok()?;
        places.original(line, column)
    }
}

fn bounded(mut message: String) -> String {
    if message.len() > MAX_ERROR_BYTES {
        let end = message.floor_char_boundary(MAX_ERROR_BYTES);
        message.truncate(end);
        message.push('…');
    }
    message
}
