//! What a scripted model answers.

use std::io;

use serde::Deserialize;
use serde_json::Value;

/// Responses in the order in which they are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Script(pub Vec<Reply>);

impl Script {
    /// Reads a script from JSON: a list of responses.
    pub fn parse(text: &str) -> io::Result<Self> {
        Ok(serde_json::from_str(text)?)
    }
}

impl From<Vec<Reply>> for Script {
    fn from(replies: Vec<Reply>) -> Self {
        Self(replies)
    }
}

/// A response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reply {
    /// Only for requests that fit. Without it, the response is the next one in order.
    pub when: Option<Condition>,
    /// How often it is used: once if not given, or without limit if it has a condition.
    pub times: Option<u32>,
    pub text: String,
    /// Reasoning before the text.
    pub reasoning: String,
    pub calls: Vec<ScriptedCall>,
    /// `length` or `refusal`; another word is sent as it is. Without it, the reason that fits the response.
    pub stop: Option<String>,
    /// How long the model takes before it answers.
    pub delay_ms: u64,
    /// An error status. The `text` is then the message of the error.
    pub status: Option<u16>,
    /// The vendor's type of the error.
    pub error_type: Option<String>,
    /// Further headers of the response.
    pub headers: Vec<(String, String)>,
    /// Closes the connection after this many bytes of the body.
    pub cut_after_bytes: Option<usize>,
    /// Sends nothing for this long after the first bytes of the body, as many as `cutAfterBytes` says.
    pub stall_ms: u64,
    /// The lines of the body, instead of what the other fields describe.
    pub raw: Option<Vec<String>>,
}

impl Reply {
    pub fn text(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    pub fn call(name: &str, arguments: Value) -> Self {
        Self { calls: vec![ScriptedCall { name: name.to_owned(), arguments, id: None }], ..Self::default() }
    }

    pub fn status(status: u16, message: &str) -> Self {
        Self { status: Some(status), text: message.to_owned(), ..Self::default() }
    }
}

/// What stands for the last id of a run in the conversation, in the arguments of a call.
pub const RUN_ID: &str = "$RUN_ID";

/// A tool call in a response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub name: String,
    /// A text is sent as it is, even if it is not JSON. [`RUN_ID`] in it is replaced.
    #[serde(default)]
    pub arguments: Value,
    /// The call's id; one is made if it is not given.
    pub id: Option<String>,
}

impl Reply {
    /// Returns the reply to this request, with the run id that it mentions last.
    pub(super) fn filled(mut self, body: &Value) -> Self {
        for call in &mut self.calls {
            let arguments = call.arguments();
            if arguments.contains(RUN_ID) {
                let run_id = last_run_id(body).unwrap_or_default();
                call.arguments = Value::String(arguments.replace(RUN_ID, &run_id));
            }
        }
        self
    }
}

/// Returns the last id of a run in the conversation of a request.
fn last_run_id(body: &Value) -> Option<String> {
    let items = body.get("messages").or_else(|| body.get("input"))?.to_string();
    let (_, rest) = items.rsplit_once("cm_")?;
    let digits: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    Some(format!("cm_{digits}"))
}

impl ScriptedCall {
    /// Returns the arguments as text.
    pub(super) fn arguments(&self) -> String {
        match &self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }

    pub(super) fn id(&self, prefix: &str, number: usize, at: usize) -> String {
        self.id.clone().unwrap_or_else(|| format!("{prefix}{number}_{at}"))
    }
}

/// Which requests a response is for. All given parts must fit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Condition {
    /// A text anywhere in the request.
    pub contains: Option<String>,
    /// A text in the last message or item of the conversation.
    pub last_contains: Option<String>,
    pub model: Option<String>,
}

impl Condition {
    pub(super) fn fits(&self, body: &Value) -> bool {
        let last = || {
            let items = body.get("messages").or_else(|| body.get("input"))?;
            items.as_array().map_or(Some(items), |items| items.last())
        };
        self.contains.as_ref().is_none_or(|text| contains(body, text))
            && self.last_contains.as_ref().is_none_or(|text| last().is_some_and(|last| contains(last, text)))
            && self.model.as_ref().is_none_or(|model| body.get("model").and_then(Value::as_str) == Some(model))
    }
}

/// Whether any text in a value contains another.
fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(items) => items.iter().any(|item| contains(item, text)),
        Value::Object(members) => members.values().any(|member| contains(member, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
