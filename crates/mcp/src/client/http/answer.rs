//! The response to an HTTP request: nothing, a message, or a stream of messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::json::measure;
use contract::limits::MAX_REFUSAL_VALUES;
use process::{LargeMessage, LargeMessageReader, LargeMessages};
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value};

use super::sse::{Event, Parser};
use crate::client::DisconnectReason;
use crate::client::spec::{MAX_FRAME_BYTES, MAX_HELD_BYTES, MAX_SHOWN_CHARS, shown};

#[derive(Debug)]
pub(crate) enum Answer {
    Accepted,
    Message(Body),
    Stream(Box<Events>),
}

/// A message. It counts towards the limit while it exists.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) content: Content,
    pub(crate) share: Share,
}

#[derive(Debug)]
pub(crate) enum Content {
    Whole(Vec<u8>),
    /// A message whose long texts were taken out.
    Large(LargeMessage),
}

impl Content {
    /// Returns the text of the message that is in memory.
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Self::Whole(text) => text,
            Self::Large(message) => &message.skeleton,
        }
    }
}

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server rejected the request with an HTTP status.
    Status { code: u16, message: String },
    /// The server rejected the request with a JSON-RPC error.
    Refused(Map<String, Value>),
    /// The response broke off, or never began.
    Lost,
    /// The response is not a JSON-RPC message.
    InvalidMessage,
    /// The response is longer than a message may be.
    TooLong,
    /// The connection has ended; no further request will be answered.
    Closed(DisconnectReason),
}

/// The bytes of all unfinished or unparsed responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes(AtomicUsize);

/// The part of [`HeldBytes`] that belongs to one response.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<HeldBytes>,
    bytes: usize,
}

impl Share {
    fn new(of: &Arc<HeldBytes>) -> Self {
        Self { of: Arc::clone(of), bytes: 0 }
    }

    /// Changes the share, or ends the connection if it does not fit into the limit.
    fn set(&mut self, bytes: usize) -> Result<(), Failure> {
        if self.try_set(bytes) { Ok(()) } else { Err(Failure::Closed(DisconnectReason::TooMuchAtOnce)) }
    }

    /// Changes the share if it fits into the limit. This is a single atomic step: responses are read by several threads,
    /// and none of them may see the old and the new share counted together.
    fn try_set(&mut self, bytes: usize) -> bool {
        let update = |all: usize| {
            let all = all.saturating_sub(self.bytes).saturating_add(bytes);
            (bytes <= self.bytes || all <= MAX_HELD_BYTES).then_some(all)
        };
        let is_set = self.of.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_ok();
        if is_set {
            self.bytes = bytes;
        }
        is_set
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Answer {
    /// Reads a response.
    pub(crate) async fn read(response: Response, held: &Arc<HeldBytes>, large: LargeMessages) -> Result<Self, Failure> {
        let status = response.status();
        let kind = header(&response, "content-type").unwrap_or_default().to_ascii_lowercase();
        if !status.is_success() {
            return Err(refused(response, &kind, held).await);
        }
        if kind.starts_with("text/event-stream") {
            return Ok(Self::Stream(Box::new(Events::new(response, held, large))));
        }
        let body = match large {
            LargeMessages::Accepted => whole_or_large(response, held).await?,
            LargeMessages::Refused => whole(response, MAX_FRAME_BYTES, held).await?,
        };
        let text = body.content.text();
        if text.trim_ascii().is_empty() {
            return Ok(Self::Accepted);
        }
        // The gate parses the messages, one at a time, and checks them there.
        if text.trim_ascii_start().starts_with(b"{") { Ok(Self::Message(body)) } else { Err(Failure::InvalidMessage) }
    }
}

/// Parses an error response if it is small enough. The parser stops at 128 levels, so the depth is bounded too.
fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    (measure(bytes).values <= MAX_REFUSAL_VALUES).then(|| serde_json::from_slice(bytes).ok()).flatten()
}

async fn refused(response: Response, kind: &str, held: &Arc<HeldBytes>) -> Failure {
    let status = response.status();
    let code = status.as_u16();
    let mut message = format!("HTTP {code}");
    if status.is_redirection() {
        let to = header(&response, "location").unwrap_or_default();
        let to = crate::client::spec::plain_url(to);
        message = format!("it redirects to {to}, which is not followed; if you trust that address, configure it");
        return Failure::Status { code, message };
    }
    // A longer text would not be shown anyway.
    let body = whole(response, MAX_REFUSAL_BYTES, held).await;
    let body = body.as_ref().map(|body| body.content.text()).unwrap_or_default();
    let forbids = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    match object(body) {
        // A missing permission is reported with the HTTP status, whatever the JSON-RPC code is.
        Some(object) if forbids => {
            let text = object.get("error").and_then(|error| error.get("message").unwrap_or(error).as_str());
            if let Some(text) = text {
                message = format!("{message}: {}", shown(text.trim(), MAX_SHOWN_CHARS));
            }
        }
        Some(object) if object.get("error").is_some_and(Value::is_object) => return Failure::Refused(object),
        _ if kind.starts_with("text/plain") && !body.trim_ascii().is_empty() => {
            let text = String::from_utf8_lossy(body);
            message = format!("{message}: {}", shown(text.trim(), MAX_SHOWN_CHARS));
        }
        _ => {}
    }
    if forbids {
        message += "; check its login and its headers";
    }
    Failure::Status { code, message }
}

/// The maximum size of the body of an error response.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

async fn whole(mut response: Response, most: usize, held: &Arc<HeldBytes>) -> Result<Body, Failure> {
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Err(Failure::TooLong);
    }
    match up_to(&mut response, most, held).await? {
        (text, share, None) => Ok(Body { content: Content::Whole(text), share }),
        (text, _, Some(more)) if text.len() + more.len() <= most => {
            Err(Failure::Closed(DisconnectReason::TooMuchAtOnce))
        }
        (_, _, Some(_)) => Err(Failure::TooLong),
    }
}

/// Reads a message. If it is longer than others may be, its long texts are taken out.
async fn whole_or_large(mut response: Response, held: &Arc<HeldBytes>) -> Result<Body, Failure> {
    let (text, mut share, more) = up_to(&mut response, MAX_FRAME_BYTES, held).await?;
    let Some(more) = more else { return Ok(Body { content: Content::Whole(text), share }) };
    let mut large = LargeMessageReader::new(text).ok_or(Failure::TooLong)?;
    large.push(&more);
    drop(more);
    loop {
        large.process().await.map_err(|_| Failure::TooLong)?;
        share.set(large.held())?;
        match large.wait_for_more(response.chunk()).await.map_err(|_| Failure::Lost)? {
            Some(chunk) => large.push(&chunk),
            None => break,
        }
    }
    large.finish().await.map_err(|_| Failure::TooLong)?;
    Ok(Body { content: Content::Large(large.into_message()), share })
}

/// Reads a text of at most so many bytes. If it is longer, or exceeds the limit of its connection, the last part is the
/// chunk that does not fit.
async fn up_to(
    response: &mut Response,
    most: usize,
    held: &Arc<HeldBytes>,
) -> Result<(Vec<u8>, Share, Option<impl std::ops::Deref<Target = [u8]> + use<>>), Failure> {
    let mut share = Share::new(held);
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| Failure::Lost)? {
        let length = text.len() + chunk.len();
        if length > most || !share.try_set(length) {
            return Ok((text, share, Some(chunk)));
        }
        text.extend_from_slice(&chunk);
    }
    Ok((text, share, None))
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// A stream of events. Dropping it closes the connection, which cancels the request.
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    parser: Parser,
    ready: std::vec::IntoIter<Event>,
    share: Share,
}

impl Events {
    pub(crate) fn new(response: Response, held: &Arc<HeldBytes>, large: LargeMessages) -> Self {
        Self { response, parser: Parser::new(large), ready: Vec::new().into_iter(), share: Share::new(held) }
    }

    /// Returns the data of an event as a message with its own share of the limit.
    pub(crate) fn body(&self, content: Content) -> Result<Body, Failure> {
        let mut share = Share::new(&self.share.of);
        share.set(content.text().len())?;
        Ok(Body { content, share })
    }

    /// Returns the next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(mut event) = self.ready.next() {
                if let Some(large) = &mut event.large {
                    large.finish().await.map_err(|_| Failure::TooLong)?;
                }
                return Ok(Some(event));
            }
            let read = match self.parser.large() {
                Some(large) => large.wait_for_more(self.response.chunk()).await,
                None => self.response.chunk().await,
            };
            let Some(chunk) = read.map_err(|_| Failure::Lost)? else { return Ok(None) };
            let events = self.parser.push(&chunk).map_err(|_| Failure::TooLong)?;
            self.ready = events.into_iter();
            if !self.share.try_set(self.parser.held()) {
                self.parser.begin_large();
            }
            if let Some(large) = self.parser.large() {
                large.process().await.map_err(|_| Failure::TooLong)?;
            }
            self.share.set(self.parser.held())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{DisconnectReason, Failure, HeldBytes, MAX_HELD_BYTES, Share};

    #[test]
    fn unfinished_responses_share_one_limit() {
        let held = Arc::new(HeldBytes::default());
        let (mut one, mut other) = (Share::new(&held), Share::new(&held));
        assert_eq!(one.set(MAX_HELD_BYTES), Ok(()));
        assert_eq!(other.set(1), Err(Failure::Closed(DisconnectReason::TooMuchAtOnce)));
        assert_eq!(one.set(1), Ok(()));
        drop(one);
        assert_eq!(other.set(MAX_HELD_BYTES), Ok(()));
    }

    #[test]
    fn responses_that_fit_together_never_exceed_the_limit_while_several_threads_read_them() {
        let held = Arc::new(HeldBytes::default());
        let part = MAX_HELD_BYTES / 4;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut share = Share::new(&held);
                    for bytes in (0..50_000).map(|n| part - n % 2) {
                        assert_eq!(share.set(bytes), Ok(()));
                    }
                });
            }
        });
    }
}
