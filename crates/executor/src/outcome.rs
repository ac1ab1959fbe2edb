//! The outcome of a call, and its stored form.

use std::fmt;

use serde_json::{Value, json};

use crate::large::LargeText;

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The tool returned a result.
    Returned(ToolResult),
    /// The tool failed, with this error message. The cell and the model read it, so it must contain no secrets.
    Failed(String),
    /// The tool was called, but the host does not keep its result.
    Dropped(DroppedResult),
    /// The host or the tool's server crashed between dispatch and result, and the tool must not be called twice.
    Unknown,
}

/// Why the host does not keep the result of a tool that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedResult {
    pub cause: DropCause,
    /// Begins with [`RESULT_DROPPED`], and says what to do.
    pub message: String,
}

/// The kind of reason for which a result is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// The result exceeds a limit.
    TooLarge,
    /// The host could not store the result.
    Unavailable,
}

impl DropCause {
    /// The `code` of the error that the cell can catch.
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "value_too_large",
            Self::Unavailable => "internal_error",
        }
    }
}

/// A tool's successful result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResult {
    /// Content blocks in MCP's format.
    pub content: Vec<Value>,
    /// The result as JSON. Cells get it instead of the content, if there is any.
    pub details: Option<Value>,
    /// The origins of the value, for policies that use them. The executor adds the id of the tool.
    pub labels: Vec<String>,
    /// Long texts that the source keeps in files instead of memory; markers stand for them in `content` and `details`.
    /// The executor stores the texts and replaces the markers by handles, so a result that the executor returns has
    /// none.
    pub large: Vec<LargeText>,
}

impl ToolResult {
    /// Returns a result whose details are this value.
    pub fn json(value: Value) -> Self {
        Self { details: Some(value), ..Self::default() }
    }

    /// Returns a result that is one block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![json!({"type": "text", "text": text.into()})], ..Self::default() }
    }

    /// Converts the result into the value of [`Self::to_cell_value`], without copying the details.
    pub fn into_cell_value(mut self) -> Value {
        self.details.take().unwrap_or_else(|| self.to_cell_value())
    }

    /// Returns the value that a cell receives: the details if there are any, else the text, else the blocks.
    pub fn to_cell_value(&self) -> Value {
        if let Some(details) = &self.details {
            return details.clone();
        }
        let texts: Option<Vec<&str>> = self
            .content
            .iter()
            .map(|block| {
                block.get("text").and_then(Value::as_str).filter(|_| block.get("type") == Some(&json!("text")))
            })
            .collect();
        match texts {
            Some(texts) if !texts.is_empty() => Value::from(texts.join("\n")),
            _ => json!({"content": self.content}),
        }
    }
}

impl Outcome {
    /// Returns the outcome of a call that certainly was not made. `tool` names the tool and its source.
    pub fn not_called(tool: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{tool} {NOT_CALLED}: {why}"))
    }

    /// Returns the outcome of a call whose result is dropped for this reason.
    pub fn dropped(cause: DropCause, why: impl fmt::Display) -> Self {
        Self::Dropped(DroppedResult { cause, message: format!("{RESULT_DROPPED}: {why}") })
    }

    /// Returns the stored form.
    pub fn to_json(&self) -> String {
        match self {
            Self::Returned(returned) => {
                // Written piece by piece: a copy of the details could take many times the memory of their text.
                let [content, labels] = [json!(returned.content), json!(returned.labels)];
                let details = returned.details.as_ref().unwrap_or(&Value::Null);
                // A tool may return `null`, which is not the same as returning no details.
                let has_details = returned.details.is_some();
                return format!(
                    r#"{{"returned":{{"content":{content},"details":{details},"labels":{labels}}},"hasDetails":{has_details}}}"#
                );
            }
            Self::Failed(message) => json!({"failed": message}),
            Self::Dropped(dropped) => json!({"dropped": dropped.message, "code": dropped.cause.code()}),
            Self::Unknown => json!({"unknown": true}),
        }
        .to_string()
    }

    /// Reads a stored outcome. Text that cannot be read is `Unknown`.
    pub fn from_json(text: &str) -> Self {
        let Ok(value) = contract::json::read(text) else { return Self::Unknown };
        if let Some(message) = value.get("failed").and_then(Value::as_str) {
            return Self::Failed(message.to_owned());
        }
        if let Some(message) = value.get("dropped").and_then(Value::as_str) {
            let is_internal = value.get("code").and_then(Value::as_str) == Some(DropCause::Unavailable.code());
            let cause = if is_internal { DropCause::Unavailable } else { DropCause::TooLarge };
            return Self::Dropped(DroppedResult { cause, message: message.to_owned() });
        }
        let Some(returned) = value.get("returned") else { return Self::Unknown };
        let list = |name: &str| returned.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let has_details = value.get("hasDetails") == Some(&Value::Bool(true));
        Self::Returned(ToolResult {
            content: list("content"),
            details: returned.get("details").filter(|_| has_details).cloned(),
            labels: list("labels").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            large: Vec::new(),
        })
    }

    /// Returns the name of the kind of outcome, for logs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Returned(_) => "returned",
            Self::Failed(_) => "failed",
            Self::Dropped(_) => "dropped",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the call has no result, because it failed or its outcome is unknown.
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Returned(_))
    }
}

/// What the message of a call that certainly was not made says of its tool.
pub const NOT_CALLED: &str = "was not called";

/// The start of the message about a call whose tool returned a result that the host does not keep.
pub const RESULT_DROPPED: &str = "the tool was called, but its result was dropped";

/// The message that the cell, the model and the transcript get if a crash of the host or of the tool's server lost the
/// outcome of a call.
pub const UNKNOWN_OUTCOME: &str = "the outcome of this call is unknown: the host or the tool's server stopped between \
     the call and its result. It was not repeated; check whether it took effect before calling it again";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DropCause, Outcome, ToolResult};

    #[test]
    fn an_outcome_survives_a_json_round_trip() {
        let labelled = ToolResult { labels: vec!["mcp:a:b".to_owned()], ..ToolResult::text("hello") };
        for outcome in [
            Outcome::Returned(ToolResult::json(json!({"n": [1, null]}))),
            Outcome::Returned(ToolResult::json(Value::Null)),
            Outcome::Returned(labelled),
            Outcome::Failed("no such city".to_owned()),
            Outcome::dropped(DropCause::TooLarge, "it has 2 bytes"),
            Outcome::dropped(DropCause::Unavailable, "the store is full"),
            Outcome::Unknown,
        ] {
            assert_eq!(Outcome::from_json(&outcome.to_json()), outcome);
        }
        assert_eq!(Outcome::from_json("{"), Outcome::Unknown);
    }

    #[test]
    fn a_cell_gets_details_or_text_or_blocks() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let mut mixed = ToolResult::text("a");
        mixed.content.push(image.clone());
        let mut two = ToolResult::text("a");
        two.content.push(json!({"type": "text", "text": "b"}));
        let cases: [(ToolResult, Value); 6] = [
            (ToolResult::json(json!({"n": 1})), json!({"n": 1})),
            (ToolResult { details: Some(Value::Null), ..ToolResult::text("a") }, Value::Null),
            (ToolResult::text("a"), json!("a")),
            (two, json!("a\nb")),
            (mixed.clone(), json!({"content": mixed.content})),
            (ToolResult::default(), json!({"content": []})),
        ];
        for (returned, expected) in cases {
            assert_eq!(returned.to_cell_value(), expected, "{returned:?}");
        }
    }
}
