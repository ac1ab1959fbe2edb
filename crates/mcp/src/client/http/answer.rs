//! What comes back for a request: nothing, a message, or a stream of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::json::measure;
use contract::limits::MAX_REFUSAL_VALUES;
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value};

use super::sse::{Event, Parser};
use crate::client::Closed;
use crate::client::spec::{MAX_FRAME_BYTES, MAX_HELD_BYTES, MAX_SHOWN_CHARS, shown};

#[derive(Debug)]
pub(crate) enum Answer {
    Accepted,
    Message(Body),
    Stream(Box<Events>),
}

/// The text of a message, counted for as long as it is there.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) text: Vec<u8>,
    pub(crate) share: Share,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It says no, in HTTP's words or its own.
    Status { code: u16, message: String },
    /// It says no, in the protocol's words.
    Refused(Map<String, Value>),
    /// The answer broke off, or never began.
    Lost,
    /// It answered with something that is no message.
    Confused,
    /// Nothing that is sent on this connection will be answered.
    Closed(Closed),
}

/// Bytes of answers that are not read to their end or not parsed, of all requests of one connection together.
#[derive(Debug, Default)]
pub(crate) struct Held(AtomicUsize);

/// One answer's part of them.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Held>,
    bytes: usize,
}

impl Share {
    fn new(of: &Arc<Held>) -> Self {
        Self { of: Arc::clone(of), bytes: 0 }
    }

    fn set(&mut self, bytes: usize) -> Result<(), Failure> {
        let before = self.of.0.fetch_add(bytes, Ordering::Relaxed);
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
        let all = before.saturating_sub(self.bytes).saturating_add(bytes);
        self.bytes = bytes;
        if all > MAX_HELD_BYTES { Err(Failure::Closed(Closed::TooMuchAtOnce)) } else { Ok(()) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Answer {
    pub(crate) async fn of(response: Response, held: &Arc<Held>) -> Result<Self, Failure> {
        let status = response.status();
        let kind = header(&response, "content-type").unwrap_or_default().to_ascii_lowercase();
        if !status.is_success() {
            return Err(refused(response, &kind, held).await);
        }
        if kind.starts_with("text/event-stream") {
            return Ok(Self::Stream(Box::new(Events::new(response, held))));
        }
        let body = whole(response, MAX_FRAME_BYTES, held).await?;
        if body.text.trim_ascii().is_empty() {
            return Ok(Self::Accepted);
        }
        // Whether it is a message inside is found out where it is parsed, one at a time.
        if body.text.trim_ascii_start().starts_with(b"{") { Ok(Self::Message(body)) } else { Err(Failure::Confused) }
    }
}

/// A refusal that is small enough to be parsed where it is. The parser stops at 128 levels, so depth is bounded, too.
fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    (measure(bytes).values <= MAX_REFUSAL_VALUES).then(|| serde_json::from_slice(bytes).ok()).flatten()
}

async fn refused(response: Response, kind: &str, held: &Arc<Held>) -> Failure {
    let status = response.status();
    let code = status.as_u16();
    let mut message = format!("HTTP {code}");
    if status.is_redirection() {
        let to = header(&response, "location").unwrap_or_default();
        let to = crate::client::spec::plain_url(to);
        message = format!("it redirects to {to}, which is not followed; if you trust that address, configure it");
        return Failure::Status { code, message };
    }
    // What is cut off here was not going to be shown.
    let body = whole(response, MAX_REFUSAL_BYTES, held).await.map(|body| body.text).unwrap_or_default();
    let forbids = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    match object(&body) {
        // Who may not is told so, whatever the protocol's code for it is.
        Some(object) if forbids => {
            let said = object.get("error").and_then(|error| error.get("message").unwrap_or(error).as_str());
            if let Some(said) = said {
                message = format!("{message}: {}", shown(said.trim(), MAX_SHOWN_CHARS));
            }
        }
        Some(object) if object.get("error").is_some_and(Value::is_object) => return Failure::Refused(object),
        _ if kind.starts_with("text/plain") && !body.trim_ascii().is_empty() => {
            let said = String::from_utf8_lossy(&body);
            message = format!("{message}: {}", shown(said.trim(), MAX_SHOWN_CHARS));
        }
        _ => {}
    }
    if forbids {
        message += "; check its login and its headers";
    }
    Failure::Status { code, message }
}

/// The body of an answer that says no.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

async fn whole(mut response: Response, most: usize, held: &Arc<Held>) -> Result<Body, Failure> {
    let too_long = Failure::Closed(Closed::FrameTooLong);
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Err(too_long);
    }
    let mut share = Share::new(held);
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| Failure::Lost)? {
        if text.len() + chunk.len() > most {
            return Err(too_long);
        }
        share.set(text.len() + chunk.len())?;
        text.extend_from_slice(&chunk);
    }
    Ok(Body { text, share })
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// A stream of events. Dropping it closes the connection, which is how a request is taken back.
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    parser: Parser,
    ready: std::vec::IntoIter<Event>,
    share: Share,
}

impl Events {
    pub(crate) fn new(response: Response, held: &Arc<Held>) -> Self {
        Self { response, parser: Parser::default(), ready: Vec::new().into_iter(), share: Share::new(held) }
    }

    /// The data of an event as a message that is counted on its own.
    pub(crate) fn body(&self, text: Vec<u8>) -> Result<Body, Failure> {
        let mut share = Share::new(&self.share.of);
        share.set(text.len())?;
        Ok(Body { text, share })
    }

    /// The next event; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            let Some(chunk) = self.response.chunk().await.map_err(|_| Failure::Lost)? else { return Ok(None) };
            let events = self.parser.push(&chunk).map_err(|_| Failure::Closed(Closed::FrameTooLong))?;
            self.ready = events.into_iter();
            self.share.set(self.parser.held())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Closed, Failure, Held, MAX_HELD_BYTES, Share};

    #[test]
    fn unfinished_answers_have_a_cap_together() {
        let held = Arc::new(Held::default());
        let (mut one, mut other) = (Share::new(&held), Share::new(&held));
        assert_eq!(one.set(MAX_HELD_BYTES), Ok(()));
        assert_eq!(other.set(1), Err(Failure::Closed(Closed::TooMuchAtOnce)));
        assert_eq!(one.set(1), Ok(()));
        drop(one);
        assert_eq!(other.set(MAX_HELD_BYTES), Ok(()));
    }
}
