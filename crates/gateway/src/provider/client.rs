//! A provider: sends a request once and reads its response.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use serde_json::{Map, Value};
use telemetry::Redactor;
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;
use wire::Wire;
use wire::limits::MAX_RESPONSE_BYTES;
use wire::upstream::{
    Decoder, IncompleteResponse, ModelEvent, ModelResponse, ProviderError, Quirks, message_events, read_whole,
};

use super::error::CallError;
use super::limits::{MAX_ERROR_BYTES, MAX_RESPONSE_TIME, MAX_TRAILING_BYTES, TRAILING};
use crate::debug::{CallFacts, CallLog, DebugSettings};

/// A provider that requests can be sent to. Clones share its connections.
#[derive(Clone)]
pub struct Provider {
    inner: Arc<ProviderSettings>,
}

/// The parts from which a provider is created.
pub(super) struct ProviderSettings {
    pub(super) id: String,
    pub(super) wire: Wire,
    pub(super) url: Url,
    /// Credentials among them.
    pub(super) headers: HeaderMap,
    pub(super) client: Client,
    /// How long the provider may send nothing.
    pub(super) idle: Duration,
    pub(super) streams: bool,
    pub(super) quirks: Quirks,
    pub(super) extra: Map<String, Value>,
    pub(super) has_key: bool,
    pub(super) debug: DebugSettings,
}

impl fmt::Debug for Provider {
    /// Leaves out address and headers, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("id", &self.inner.id).field("wire", &self.inner.wire).finish_non_exhaustive()
    }
}

impl Provider {
    pub(super) fn new(settings: ProviderSettings) -> Self {
        Self { inner: Arc::new(settings) }
    }

    pub fn id(&self) -> &str {
        &self.inner.id
    }

    pub fn wire(&self) -> Wire {
        self.inner.wire
    }

    pub fn quirks(&self) -> Quirks {
        self.inner.quirks
    }

    /// Returns the further fields of every request.
    pub fn extra(&self) -> &Map<String, Value> {
        &self.inner.extra
    }

    /// Whether requests should ask for a streamed response.
    pub fn streams(&self) -> bool {
        self.inner.streams
    }

    /// Sends a request once and returns the complete response. `on_event` is called with what the model says, as soon as
    /// it arrives. If this future is dropped, the connection is closed.
    pub async fn respond(
        &self,
        body: Vec<u8>,
        mut on_event: impl FnMut(ModelEvent) + Send,
    ) -> Result<ModelResponse, CallError> {
        let facts = CallFacts {
            provider: &self.inner.id,
            wire: self.inner.wire,
            url: &self.inner.url,
            timeout: self.inner.idle,
            has_key: self.inner.has_key,
        };
        let mut call = CallLog::start(self.inner.debug, &facts, &body);
        let result = fault::run_in_turn(self.exchange(body, &mut call, &mut on_event)).await;
        match &result {
            Ok(response) => call.done(response.usage),
            Err(error) => call.failed(&error.summary()),
        }
        result
    }

    async fn exchange(
        &self,
        body: Vec<u8>,
        call: &mut CallLog,
        on_event: &mut (impl FnMut(ModelEvent) + Send),
    ) -> Result<ModelResponse, CallError> {
        let deadline = Instant::now() + MAX_RESPONSE_TIME;
        let accept = if self.inner.streams { "text/event-stream, application/json" } else { "application/json" };
        let request = self
            .inner
            .client
            .post(self.inner.url.clone())
            .headers(self.inner.headers.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static(accept))
            .body(body);
        let sent = timeout(self.inner.idle, request.send()).await.map_err(|_| CallError::TimedOut(self.inner.idle))?;
        let response = sent.map_err(|error| CallError::Unreachable(reason(&error)))?;
        call.headers(response.status().as_u16());
        if !response.status().is_success() {
            return Err(self.failed(response).await);
        }
        let mut body = Body { response, idle: self.inner.idle, deadline };
        // A server that does not say what it sends sends what was asked for.
        if is_stream(&body.response).unwrap_or(self.inner.streams) {
            self.read_stream(body, call, on_event).await
        } else {
            let whole = body.read(MAX_RESPONSE_BYTES).await?;
            let response = read_whole(self.inner.wire, &whole, new_call_id)?;
            message_events(&response.message).into_iter().for_each(on_event);
            Ok(response)
        }
    }

    async fn read_stream(
        &self,
        mut body: Body,
        call: &mut CallLog,
        on_event: &mut (impl FnMut(ModelEvent) + Send),
    ) -> Result<ModelResponse, CallError> {
        let mut decoder = Decoder::new(self.inner.wire);
        while !decoder.is_over() {
            match body.chunk().await? {
                Some(chunk) => {
                    call.chunk(&chunk);
                    decoder.push(&chunk).into_iter().for_each(&mut *on_event);
                }
                None => break,
            }
        }
        let response = decoder.finish(new_call_id)?;
        body.release();
        Ok(response)
    }

    /// Reads the error in a response with an error status.
    async fn failed(&self, response: Response) -> CallError {
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        if response.status().is_redirection() {
            let message = "the provider redirects, and redirects are not followed; correct its `baseUrl`".to_owned();
            return CallError::Status { status, kind: "redirect".to_owned(), message, retry_after: None };
        }
        let mut body = Body { response, idle: self.inner.idle, deadline: Instant::now() + self.inner.idle };
        let error = read_error(&body.read_start(MAX_ERROR_BYTES).await);
        let message = Redactor::global().redact(&error.message).into_owned();
        CallError::Status { status, kind: error.kind, message, retry_after }
    }
}

/// Reads the error in a body: JSON as the wires define it, or anything else.
fn read_error(body: &[u8]) -> ProviderError {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => ProviderError::read(&value),
        // A page of a proxy in between; its text says nothing about the request.
        Err(_) => ProviderError { kind: String::new(), message: "no message".to_owned() },
    }
}

/// The body of a response, which is read with limits.
struct Body {
    response: Response,
    idle: Duration,
    deadline: Instant,
}

impl Body {
    async fn chunk(&mut self) -> Result<Option<Bytes>, CallError> {
        let until = (Instant::now() + self.idle).min(self.deadline);
        let chunk = timeout_at(until, self.response.chunk()).await.map_err(|_| CallError::TimedOut(self.idle))?;
        // The connection was lost in the middle of the response.
        chunk.map_err(|_| CallError::Broken(IncompleteResponse::Truncated))
    }

    async fn read(&mut self, limit: usize) -> Result<Vec<u8>, CallError> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > limit {
                return Err(IncompleteResponse::TooLarge(format!("it has more than {limit} bytes")).into());
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }

    /// Reads the first bytes, as many as arrive.
    async fn read_start(&mut self, limit: usize) -> Vec<u8> {
        let mut start = Vec::new();
        while let Ok(Some(chunk)) = self.chunk().await {
            let room = limit.saturating_sub(start.len());
            start.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if start.len() >= limit {
                break;
            }
        }
        start
    }

    /// Reads what follows the last event, in the background. Only then the connection can be used again.
    fn release(self) {
        let mut response = self.response;
        tokio::spawn(async move {
            let mut room = MAX_TRAILING_BYTES;
            let rest = async {
                while let Ok(Some(chunk)) = response.chunk().await {
                    room = room.saturating_sub(chunk.len());
                    if room == 0 {
                        break;
                    }
                }
            };
            // If it takes too long, the connection is closed.
            drop(timeout(TRAILING, rest).await);
        });
    }
}

/// Whether a response is a stream of events; `None` if its server does not say so.
fn is_stream(response: &Response) -> Option<bool> {
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if kind.eq_ignore_ascii_case(b"text/event-stream") {
        Some(true)
    } else if kind.eq_ignore_ascii_case(b"application/json") {
        Some(false)
    } else {
        None
    }
}

/// Returns how long a provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    if let Some(seconds) = number("retry-after-ms").map(|ms| ms / 1_000.0).or_else(|| number("retry-after")) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(headers.get("retry-after")?.to_str().ok()?.trim()).ok()?;
    // A date that is over asks for no wait.
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the innermost reason of a failure. The library's own message repeats the URL.
fn reason(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    let reason = if error.is_timeout() { "the connection timed out".to_owned() } else { reason.to_string() };
    Redactor::global().redact(&contract::text::line(&reason, MAX_REASON_CHARS)).into_owned()
}

const MAX_REASON_CHARS: usize = 300;

/// Makes an id for a call without one: nine letters and digits, the form that the strictest provider requires.
fn new_call_id() -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let random = getrandom::u64().unwrap_or_else(|_| nanoseconds());
    let letter = |at: u32| {
        let digit = random / 62u64.pow(at) % 62;
        usize::try_from(digit).ok().and_then(|digit| LETTERS.get(digit)).copied().unwrap_or(b'0') as char
    };
    (0..9).map(letter).collect()
}

fn nanoseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(now.subsec_nanos()))
}
