//! Debug output about requests to models, which variables of the environment switch on.
//!
//! The variables are OpenClaw's: `OPENCLAW_DEBUG_CODE_MODE`, `OPENCLAW_DEBUG_MODEL_TRANSPORT`,
//! `OPENCLAW_DEBUG_MODEL_PAYLOAD` (`summary`, `tools` or `full-redacted`) and `OPENCLAW_DEBUG_SSE` (`events` or `peek`).
//! No line contains a key. Texts of prompts and responses are only in the lines of `full-redacted` and `peek`.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use telemetry::{REDACTED, Redactor};
use tracing::Level;
use url::Url;
use wire::Wire;
use wire::conversation::Usage;
use wire::limits::MAX_EVENT_BYTES;
use wire::sse::SseReader;
use wire::upstream::tool_names;

/// Names of tools in a summary.
const MAX_NAMES: usize = 12;

/// Characters of a request in `full-redacted`.
const MAX_PAYLOAD_CHARS: usize = 8_000;

/// Characters of an event in `peek`, and how many events are shown.
const MAX_EVENT_CHARS: usize = 2_000;
const MAX_EVENTS: usize = 5;

/// Characters of a text inside a request or an event.
const MAX_VALUE_CHARS: usize = 200;

/// Members whose values are credentials, or signed data that is of no use in a log.
const HIDDEN_MEMBERS: [&str; 8] = [
    "api_key",
    "apikey",
    "authorization",
    "encrypted_content",
    "signature",
    "thought_signature",
    "x-api-key",
    "authorization_token",
];

/// Which debug lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugSettings {
    /// Whether lines about the start and the end of requests are written at the level `info`.
    pub transport: bool,
    pub payload: Option<PayloadDetail>,
    pub sse: Option<SseDetail>,
}

/// `OPENCLAW_DEBUG_MODEL_PAYLOAD`: what is written about the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadDetail {
    Summary,
    /// The summary and the names of all tools.
    Tools,
    /// The names and the body itself, shortened and without secrets. The body contains prompts.
    FullRedacted,
}

/// `OPENCLAW_DEBUG_SSE`: what is written about the events of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseDetail {
    /// When the first one came, and how many there were.
    Events,
    /// The times and the first five events, shortened and without secrets.
    Peek,
}

impl DebugSettings {
    /// Reads the variables. Words that are not known switch nothing on.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let word = |name: &str| lookup(name).map(|value| value.trim().to_ascii_lowercase()).unwrap_or_default();
        let is_on = |name: &str| !matches!(word(name).as_str(), "" | "0" | "false" | "off" | "no");
        Self {
            transport: is_on("OPENCLAW_DEBUG_CODE_MODE") || is_on("OPENCLAW_DEBUG_MODEL_TRANSPORT"),
            payload: match word("OPENCLAW_DEBUG_MODEL_PAYLOAD").as_str() {
                "summary" => Some(PayloadDetail::Summary),
                "tools" => Some(PayloadDetail::Tools),
                "full-redacted" => Some(PayloadDetail::FullRedacted),
                _ => None,
            },
            sse: match word("OPENCLAW_DEBUG_SSE").as_str() {
                "events" => Some(SseDetail::Events),
                "peek" => Some(SseDetail::Peek),
                _ => None,
            },
        }
    }

    fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Returns the level of the lines about a request.
    fn request_level(self) -> Level {
        if self.transport || self.payload.is_some() { Level::INFO } else { Level::DEBUG }
    }

    /// Returns the level of the lines about a response.
    fn response_level(self) -> Level {
        if self.transport || self.sse.is_some() { Level::INFO } else { Level::DEBUG }
    }
}

/// What is known about a request before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    pub provider: &'a str,
    pub wire: Wire,
    pub url: &'a Url,
    pub timeout: Duration,
    pub has_key: bool,
}

/// Returns the lines about a request that is about to be sent.
pub fn start_lines(settings: DebugSettings, facts: &CallFacts<'_>, body: &[u8]) -> Vec<String> {
    let wire = facts.wire;
    let parsed: Option<Map<String, Value>> = serde_json::from_slice(body).ok();
    let model = parsed.as_ref().and_then(|fields| fields.get("model")).and_then(Value::as_str).unwrap_or("?");
    let names = tool_names(wire, body).unwrap_or_default();
    let shown = match settings.payload {
        Some(PayloadDetail::Tools | PayloadDetail::FullRedacted) => names.len(),
        Some(PayloadDetail::Summary) | None => MAX_NAMES,
    };
    let mut listed = names.iter().take(shown).map(String::as_str).collect::<Vec<_>>().join(",");
    if names.len() > shown {
        listed.push_str(",…");
    }
    let mut url = facts.url.clone();
    url.set_query(None);
    let mut lines = vec![format!(
        "[{wire}] start provider={} api={} model={} url={url} timeoutMs={} apiKey={} tools count={} names={listed}",
        plain(facts.provider),
        api(wire),
        plain(model),
        facts.timeout.as_millis(),
        if facts.has_key { "present" } else { "missing" },
        names.len(),
    )];
    match (settings.payload, parsed) {
        (Some(PayloadDetail::Summary | PayloadDetail::Tools), Some(fields)) => {
            let keys = fields.keys().map(|key| plain(key)).collect::<Vec<_>>().join(",");
            let items = ["messages", "input"].iter().find_map(|key| fields.get(*key)).and_then(Value::as_array);
            let items = items.map_or(0, Vec::len);
            lines.push(format!("[{wire}] payload bytes={} items={items} keys={keys}", body.len()));
        }
        (Some(PayloadDetail::FullRedacted), Some(fields)) => {
            let json = shortened(&redacted(Value::Object(fields)).to_string(), MAX_PAYLOAD_CHARS);
            lines.push(format!("[{wire}] payload bytes={} {json}", body.len()));
        }
        (Some(_), None) => lines.push(format!("[{wire}] payload bytes={} unreadable", body.len())),
        (None, _) => {}
    }
    lines.into_iter().map(|line| Redactor::global().redact(&line).into_owned()).collect()
}

/// Returns the line about one event of a response.
pub fn event_line(wire: Wire, number: usize, name: &str, data: &str) -> String {
    let data = match serde_json::from_str::<Value>(data) {
        Ok(value) => redacted(value).to_string(),
        Err(_) => plain(data),
    };
    let line = format!("[{wire}] event {number} name={} data={}", plain(name), shortened(&data, MAX_EVENT_CHARS));
    Redactor::global().redact(&line).into_owned()
}

/// Returns a value in which long texts are cut, and credentials and signed data are replaced.
fn redacted(value: Value) -> Value {
    match value {
        // Secrets are replaced first: half a secret would not be recognised.
        Value::String(text) => Value::String(shortened(&Redactor::global().redact(&text), MAX_VALUE_CHARS)),
        Value::Array(items) => Value::Array(items.into_iter().map(redacted).collect()),
        Value::Object(members) => {
            let member =
                |(key, value): (String, Value)| match HIDDEN_MEMBERS.contains(&key.to_ascii_lowercase().as_str()) {
                    true if !value.is_null() => (key, Value::from(REDACTED)),
                    _ => (key, redacted(value)),
                };
            Value::Object(members.into_iter().map(member).collect())
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns a text without line breaks and control characters.
fn plain(text: &str) -> String {
    contract::text::line(text, MAX_VALUE_CHARS)
}

fn api(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "openai-completions",
        Wire::Responses => "openai-responses",
        Wire::Messages => "anthropic-messages",
    }
}

/// Writes the lines about one request to the log: at the level `info` if its variable is set, else those without details
/// at the level `debug`.
#[derive(Debug)]
pub(crate) struct CallLog {
    settings: DebugSettings,
    wire: Wire,
    started: Instant,
    bytes: usize,
    events: usize,
    reader: Option<SseReader>,
}

impl CallLog {
    pub(crate) fn start(settings: DebugSettings, facts: &CallFacts<'_>, body: &[u8]) -> Self {
        // Reading the body again is too much work for a line that nothing shows.
        if settings.is_any() || tracing::enabled!(Level::DEBUG) {
            for line in start_lines(settings, facts, body) {
                write(settings.request_level(), &line);
            }
        }
        let reader = settings.sse.map(|_| SseReader::new(MAX_EVENT_BYTES));
        Self { settings, wire: facts.wire, started: Instant::now(), bytes: 0, events: 0, reader }
    }

    pub(crate) fn headers(&self, status: u16) {
        self.line(&format!("headers status={status} elapsedMs={}", self.elapsed()));
    }

    pub(crate) fn chunk(&mut self, chunk: &[u8]) {
        if self.bytes == 0 {
            self.line(&format!("first event elapsedMs={}", self.elapsed()));
        }
        self.bytes = self.bytes.saturating_add(chunk.len());
        let Some(reader) = &mut self.reader else { return };
        match reader.push(chunk) {
            Ok(events) => {
                for event in events {
                    self.events += 1;
                    if self.settings.sse == Some(SseDetail::Peek) && self.events <= MAX_EVENTS {
                        write(Level::INFO, &event_line(self.wire, self.events, &event.name, &event.data));
                    }
                }
            }
            // The decoder reports it.
            Err(_) => self.reader = None,
        }
    }

    pub(crate) fn done(&self, usage: Usage) {
        let events = if self.settings.sse.is_some() { format!(" events={}", self.events) } else { String::new() };
        self.line(&format!(
            "done elapsedMs={} bytes={}{events} inputTokens={} outputTokens={}",
            self.elapsed(),
            self.bytes,
            usage.input_tokens,
            usage.output_tokens
        ));
    }

    pub(crate) fn failed(&self, summary: &str) {
        self.line(&format!("error elapsedMs={} bytes={} {summary}", self.elapsed(), self.bytes));
    }

    fn elapsed(&self) -> u128 {
        self.started.elapsed().as_millis()
    }

    fn line(&self, text: &str) {
        write(self.settings.response_level(), &format!("[{}] {text}", self.wire));
    }
}

fn write(level: Level, line: &str) {
    if level == Level::INFO {
        tracing::info!("{line}");
    } else {
        tracing::debug!("{line}");
    }
}

#[cfg(test)]
mod tests;
