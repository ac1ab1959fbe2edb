//! Sends HTTP requests to one server.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use process::LargeMessages;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::answer::{Answer, Events, Failure, HeldBytes};
use super::{ClientBuildError, build};
use crate::client::oauth::{Challenge, MissingToken, Tokens};
use crate::client::spec::{MAX_SHOWN_CHARS, shown};
use crate::client::{DisconnectReason, UnreachableCause};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Headers that the protocol sets: they cannot be configured.
const RESERVED_HEADERS: [&str; 8] = [
    "accept",
    "content-type",
    "content-length",
    "host",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "transfer-encoding",
];

/// The HTTP client of one server.
#[derive(Debug)]
pub(crate) struct Caller {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    tokens: Option<Tokens>,
    /// The session id that the server assigned, in the older revisions.
    session: Mutex<Option<HeaderValue>>,
    version: Mutex<Option<HeaderValue>>,
    held: Arc<HeldBytes>,
}

/// An outgoing message.
#[derive(Debug)]
pub(crate) struct PostRequest {
    pub(crate) body: Vec<u8>,
    /// The protocol revision of the message; `None` means the negotiated one.
    pub(crate) version: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    /// Whether the response may be longer than other messages because of long texts in it.
    pub(crate) large: LargeMessages,
}

/// Why a server's address or headers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadAddress {
    #[error("invalid URL `{0}`: expected http:// or https://")]
    Url(String),
    #[error("its header `{0}` cannot be sent; check its name, and that its value is one line of plain text")]
    Header(String),
    #[error(transparent)]
    NotBuilt(#[from] ClientBuildError),
}

impl Caller {
    pub(crate) fn new(
        url: &Url,
        headers: &BTreeMap<String, String>,
        tokens: Option<Tokens>,
    ) -> Result<Self, BadAddress> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let bad = || BadAddress::Header(name.clone());
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(bad());
            }
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        // A configured authorization header takes precedence over a login.
        let tokens = tokens.filter(|_| !map.contains_key(AUTHORIZATION));
        Ok(Self {
            client: build()?,
            url: url.clone(),
            headers: map,
            tokens,
            session: Mutex::default(),
            version: Mutex::default(),
            held: Arc::default(),
        })
    }

    /// Sets the negotiated revision, which is sent with every message that names none.
    pub(crate) fn set_version(&self, version: &str) {
        *self.version.lock() = HeaderValue::from_str(version).ok();
    }

    pub(crate) fn has_session(&self) -> bool {
        self.session.lock().is_some()
    }

    pub(crate) async fn post(&self, posted: &PostRequest) -> Result<Answer, Failure> {
        let mut headers = self.session_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(version) = posted.version.as_deref().and_then(|version| HeaderValue::from_str(version).ok()) {
            headers.insert(VERSION, version);
        }
        for (name, value) in &posted.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        let response = self.send(Method::POST, headers, Some(&posted.body)).await?;
        if let Some(session) = response.headers().get(SESSION) {
            let mut ours = self.session.lock();
            ours.get_or_insert_with(|| session.clone());
        }
        Answer::read(response, &self.held, posted.large).await
    }

    /// Opens the stream of server-initiated messages, or resumes a stream that broke off after an event.
    /// `large` as in [`PostRequest`].
    pub(crate) async fn listen(&self, after: Option<&str>, large: LargeMessages) -> Result<Events, Failure> {
        let mut headers = self.session_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = after.and_then(|after| HeaderValue::from_str(after).ok()) {
            headers.insert(LAST_EVENT, after);
        }
        let response = self.send(Method::GET, headers, None).await?;
        match Answer::read(response, &self.held, large).await? {
            Answer::Stream(events) => Ok(*events),
            Answer::Accepted | Answer::Message(_) => Err(Failure::InvalidMessage),
        }
    }

    /// Ends the session at the server. An error is only logged.
    pub(crate) async fn end(&self) {
        if !self.has_session() {
            return;
        }
        if let Err(failure) = self.send(Method::DELETE, self.session_headers(), None).await {
            tracing::debug!(?failure, "a session at an MCP server could not be ended");
        }
    }

    fn session_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        for (name, value) in [(SESSION, &self.session), (VERSION, &self.version)] {
            if let Some(value) = value.lock().clone() {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// Sends a request, with a token if there is a login. If the server rejects the token, it tries once more with
    /// another one.
    async fn send(&self, method: Method, headers: HeaderMap, body: Option<&[u8]>) -> Result<Response, Failure> {
        let token = match &self.tokens {
            Some(tokens) => tokens.current().await?,
            None => None,
        };
        let response = self.send_once(method.clone(), headers.clone(), body, token.as_deref()).await?;
        let Some(refusal) = self.refusal(&response) else { return self.check_session(response) };
        let other = match (&self.tokens, token) {
            (Some(tokens), Some(token)) => match refusal {
                Refusal::LoginNeeded(_) => tokens.newer_than(&token).await.map(Some),
                Refusal::MoreNeeded(_) => Ok(tokens.since(&token).await),
            },
            _ => Ok(None),
        };
        let other = match other {
            Ok(Some(other)) => other,
            Ok(None) | Err(MissingToken::LoginNeeded) => return Err(self.login_failure(&refusal)),
            Err(later) => return Err(later.into()),
        };
        let response = self.send_once(method, headers, body, Some(&other)).await?;
        match self.refusal(&response) {
            Some(refusal) => Err(self.login_failure(&refusal)),
            None => self.check_session(response),
        }
    }

    /// Returns how the login is insufficient, if the response says so. With a configured authorization header there is
    /// no login, and the server's error message is reported instead.
    fn refusal(&self, response: &Response) -> Option<Refusal> {
        let challenge = Challenge::of(response.headers());
        match response.status() {
            _ if self.headers.contains_key(AUTHORIZATION) => None,
            StatusCode::UNAUTHORIZED => Some(Refusal::LoginNeeded(challenge)),
            StatusCode::FORBIDDEN => challenge.filter(Challenge::wants_more).map(Refusal::MoreNeeded),
            _ => None,
        }
    }

    /// Converts a rejection to a failure. It stores the challenge for the next login, because only a rejected request
    /// contains it.
    fn login_failure(&self, refusal: &Refusal) -> Failure {
        let challenge = match refusal {
            Refusal::LoginNeeded(challenge) => challenge.as_ref(),
            Refusal::MoreNeeded(challenge) => Some(challenge),
        };
        if let (Some(tokens), Some(challenge)) = (&self.tokens, challenge) {
            tokens.keep_challenge(challenge);
        }
        match (refusal, &self.tokens) {
            (Refusal::LoginNeeded(_), _) => Failure::Closed(DisconnectReason::LoginNeeded),
            (Refusal::MoreNeeded(challenge), tokens) => {
                let scopes = shown(&challenge.scopes().join(" "), MAX_SHOWN_CHARS);
                let more = if scopes.is_empty() { "allows more".to_owned() } else { format!("allows `{scopes}`") };
                let remedy = match tokens {
                    Some(tokens) => format!("a person must run `cellmate servers login {}`", tokens.server()),
                    None => "configure one".to_owned(),
                };
                let message = format!("it requires a login that {more}; {remedy}");
                Failure::Status { code: StatusCode::FORBIDDEN.as_u16(), message }
            }
        }
    }

    /// Detects a lost session: in the older revisions a server then returns 404.
    fn check_session(&self, response: Response) -> Result<Response, Failure> {
        if response.status() == StatusCode::NOT_FOUND && self.has_session() {
            return Err(Failure::Closed(DisconnectReason::SessionGone));
        }
        Ok(response)
    }

    async fn send_once(
        &self,
        method: Method,
        mut headers: HeaderMap,
        body: Option<&[u8]>,
        token: Option<&str>,
    ) -> Result<Response, Failure> {
        if let Some(mut value) = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok()) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut request = self.client.request(method, self.url.clone()).headers(headers);
        if let Some(body) = body {
            request = request.body(body.to_vec());
        }
        request.send().await.map_err(|error| match error.is_connect() {
            true => Failure::Closed(DisconnectReason::Unreachable(UnreachableCause::of(&error))),
            false => Failure::Lost,
        })
    }
}

/// How a server rejected a request for lack of a login.
enum Refusal {
    LoginNeeded(Option<Challenge>),
    /// The current login lacks scopes.
    MoreNeeded(Challenge),
}

impl From<MissingToken> for Failure {
    fn from(none: MissingToken) -> Self {
        match none {
            MissingToken::LoginNeeded => Self::Closed(DisconnectReason::LoginNeeded),
            MissingToken::Later(why) => {
                let message = format!("its token has expired and cannot be renewed now: {why}; try again later");
                Self::Status { code: StatusCode::UNAUTHORIZED.as_u16(), message }
            }
        }
    }
}
