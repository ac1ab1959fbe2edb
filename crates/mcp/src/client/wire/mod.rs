//! A session over one connection: it sends requests and returns whole results. `rmcp`'s types stop here.
//!
//! The library manages request ids, the handshake and cancellation. The messages that it reads pass through `stdio` or
//! `http`, which limit their size, and through `gate`, which passes results on unchanged: typed results would lose
//! every field that the library does not know.

mod bounds;
mod elicitation;
mod exchange;
mod gate;
mod headers;
mod http;
mod oauth;
mod stdio;
mod subscription;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use executor::{ProgressSink, QuestionSender};
use process::ResponseSlot;
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, CustomRequest, ErrorCode, ErrorData, Implementation,
    ProtocolVersion, RequestMetaObject, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, PeerRequestOptions, RequestHandle, RunningService,
    ServiceError,
};
use rmcp::transport::Transport;
use serde_json::{Map, Value, json};
use telemetry::LogIgnored;
use tokio::sync::watch;

use super::DisconnectReason;
use super::disconnect::FirstDisconnect;
use super::spec::{MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, shown};
use elicitation::{ElicitationHandler, QuestionRouter};
use gate::{Gate, Sink};
pub(crate) use http::Http;
pub use oauth::LoginFailure;
pub(crate) use oauth::{LoginRequest, PendingLogin, RenewError, renew};
pub(crate) use stdio::Stdio;
use subscription::Subscription;

/// The `_meta` field with a call's idempotency key, for tools that execute a repeated call only once.
const KEY: &str = "cellmate/idempotencyKey";

/// The error code of revision 2025-11-25 for a call that requires a person to visit pages first.
const PAGES_FIRST: i32 = -32042;

/// How a connection begins. `initialize` is tried first: every server of the older revisions supports it, servers that
/// support both kinds still do, and some older servers exit at any other first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Initialize,
    Discover,
    /// Asks the server which revisions it supports. For HTTP, where an unknown request does no harm.
    Auto,
}

/// A transport with a gate. Implemented by the stdio and HTTP transports.
pub(crate) trait GatedTransport: Transport<RoleClient> + 'static {
    /// Whether the transport can send headers.
    const HAS_HEADERS: bool;

    fn gate(&self) -> &Gate;
}

impl GatedTransport for Http {
    const HAS_HEADERS: bool = true;

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<R, W> GatedTransport for Stdio<R, W>
where
    Self: Transport<RoleClient> + 'static,
{
    const HAS_HEADERS: bool = false;

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// An open connection to a server.
#[derive(Debug)]
pub(crate) struct Session {
    running: RunningService<RoleClient, ElicitationHandler>,
    questions: QuestionRouter,
    closed: FirstDisconnect,
    list_changes: watch::Receiver<u64>,
    has_headers: bool,
    _subscription: Option<Subscription>,
}

/// A request to a server.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) params: Map<String, Value>,
    /// Arguments that the server also requires in headers.
    pub(crate) headers: Vec<(String, String)>,
    /// The idempotency key; empty if there is none.
    pub(crate) key: &'a str,
    pub(crate) updates: ProgressSink,
    /// Receives the server's questions during this call; `Some` even when disabled, so that they are attributed to it.
    pub(crate) asker: Option<QuestionSender>,
    pub(crate) deadline: Duration,
    /// Holds the response's part of the budget for server data as long as a clone exists.
    pub(crate) slot: ResponseSlot,
}

impl Request<'_> {
    /// Creates a request that is not a tool call: without a key, progress or questions.
    pub(crate) fn plain(method: &'static str, params: Map<String, Value>, deadline: Duration) -> Self {
        Self {
            method,
            params,
            headers: Vec::new(),
            key: "",
            updates: ProgressSink::default(),
            asker: None,
            deadline,
            slot: ResponseSlot::default(),
        }
    }
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The server returned an error.
    Refused { code: i32, message: String },
    /// The response exceeds a limit. The text says which one and what to do.
    ResponseTooLarge(String),
    /// The server requires a person to visit pages before the request is repeated.
    Pages(Value),
    /// The server did not respond in time.
    Deadline(Duration),
    /// The connection had ended before the request was sent.
    NotSent(DisconnectReason),
    /// The connection ended before the response; the request may have arrived.
    Closed(DisconnectReason),
    /// The response is not valid.
    InvalidResponse,
}

impl Session {
    pub(crate) async fn open<T: GatedTransport>(transport: T, handshake: Handshake) -> Result<Self, RequestError> {
        let (closed, list_changes) = (transport.gate().closed.clone(), transport.gate().list_changes());
        // Cellmate supports tasks and questions to people. Sampling and roots are always rejected.
        let capabilities = serde_json::from_value(json!({
            "elicitation": {"form": {}, "url": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }));
        let capabilities = capabilities.unwrap_or_else(|_| ClientCapabilities::default());
        let config = ClientConfig::new(capabilities, Implementation::new("cellmate", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let lifecycle = match handshake {
            Handshake::Initialize => ClientLifecycleMode::Initialize,
            Handshake::Discover => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
            Handshake::Auto => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
        };
        let questions = QuestionRouter::default();
        let handler = ElicitationHandler { config, questions: questions.clone() };
        match handler.serve_with_lifecycle(transport, lifecycle).await {
            Ok(running) => {
                let _subscription = Subscription::of(&running, &closed);
                Ok(Self { running, questions, closed, list_changes, has_headers: T::HAS_HEADERS, _subscription })
            }
            Err(error) => Err(not_opened(error, &closed)),
        }
    }

    pub(crate) fn has_headers(&self) -> bool {
        self.has_headers
    }

    /// Returns the server's instructions.
    pub(crate) fn about(&self) -> Option<Arc<str>> {
        let info = self.running.peer_info()?;
        let text = info.instructions.as_deref()?;
        Some(shown(text, MAX_SHOWN_CHARS).into())
    }

    /// Returns the negotiated protocol revision.
    pub(crate) fn revision(&self) -> Option<String> {
        let info = self.running.peer_info()?;
        Some(shown(info.protocol_version.as_str(), MAX_SHOWN_NAME_CHARS))
    }

    /// Returns the server's declared capabilities: tools, resources, prompts.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let info = self.running.peer_info();
        let capabilities = info.as_ref().map(|info| &info.capabilities);
        Capabilities {
            tools: capabilities.is_some_and(|capabilities| capabilities.tools.is_some()),
            resources: capabilities.is_some_and(|capabilities| capabilities.resources.is_some()),
            prompts: capabilities.is_some_and(|capabilities| capabilities.prompts.is_some()),
        }
    }

    pub(crate) fn why_closed(&self) -> Option<DisconnectReason> {
        self.closed.get()
    }

    /// Waits for the end of the connection, even if the session is dropped before.
    pub(crate) fn closed(&self) -> impl Future<Output = DisconnectReason> + Send + use<> {
        let closed = self.closed.clone();
        async move { closed.wait().await }
    }

    /// Closes the connection, and ends the server's process if there is one, even if other owners hold the session.
    pub(crate) fn hang_up(&self) {
        self.running.cancellation_token().cancel();
    }

    pub(crate) fn list_changes(&self) -> watch::Receiver<u64> {
        self.list_changes.clone()
    }

    /// Sends a request and returns its result unchanged. If the future is dropped or the deadline passes, the request
    /// is cancelled. Time in which a person is asked a question does not count.
    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Value, RequestError> {
        if let Some(why) = self.closed.get() {
            return Err(RequestError::NotSent(why));
        }
        let deadline = request.deadline;
        let _during = request.asker.clone().map(|asker| self.questions.during(asker));
        let mut exchange = pin!(self.exchange(request));
        loop {
            match tokio::time::timeout(deadline, &mut exchange).await {
                Ok(answer) => return answer,
                Err(_) if self.questions.is_open() => {}
                Err(_) => return Err(RequestError::Deadline(deadline)),
            }
        }
    }

    async fn exchange(&self, request: Request<'_>) -> Result<Value, RequestError> {
        let mut custom = CustomRequest::new(request.method, Some(Value::Object(request.params)));
        custom.extensions.insert(Sink { updates: request.updates, headers: request.headers, slot: request.slot });
        let mut options = PeerRequestOptions::no_options();
        if !request.key.is_empty() {
            let meta = Map::from_iter([(KEY.to_owned(), json!(request.key))]);
            options = options.with_meta(RequestMetaObject::from(meta));
        }
        let sent = self.running.send_request_with_option(ClientRequest::CustomRequest(custom), options).await;
        let mut pending = RequestInProgress(Some(sent.map_err(|error| self.failed(error))?));
        let answer = match &mut pending.0 {
            // A response that arrived before the end counts. The library reports the end too, but only after it has
            // tried for seconds to send messages that the server does not read.
            Some(handle) => tokio::select! {
                biased;
                answer = &mut handle.rx => answer,
                _ = self.closed.wait() => Ok(Err(ServiceError::TransportClosed)),
            },
            None => return Err(RequestError::InvalidResponse),
        };
        pending.0 = None;
        match answer {
            Ok(Ok(ServerResult::CustomResult(result))) => Ok(result.0),
            Ok(Ok(_)) => Err(RequestError::InvalidResponse),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_) => Err(RequestError::Closed(self.closed.get().unwrap_or(DisconnectReason::Ended))),
        }
    }

    fn failed(&self, error: ServiceError) -> RequestError {
        match error {
            ServiceError::McpError(ErrorData { code: ErrorCode(PAGES_FIRST), data: Some(data), .. }) => {
                RequestError::Pages(data.get("elicitations").cloned().unwrap_or_default())
            }
            ServiceError::McpError(error) => refused(error),
            ServiceError::UnexpectedResponse => RequestError::InvalidResponse,
            // All other errors mean that the connection has ended.
            _ => RequestError::Closed(self.closed.get().unwrap_or(DisconnectReason::Ended)),
        }
    }
}

/// The capabilities that a server declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
}

/// A request in progress. Dropping it cancels the request at the server.
#[derive(Debug)]
struct RequestInProgress(Option<RequestHandle<RoleClient>>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            // A drop cannot await, so a task sends the cancellation; it ends with the connection at the latest.
            runtime.spawn(async move {
                let cancelled = handle.cancel(Some("the caller no longer waits for it".to_owned())).await;
                cancelled.log_expected("cancel a request at its server");
            });
        }
    }
}

/// Returns true for the HTTP status codes of a missing permission. The protocol's own codes are negative.
pub(crate) fn is_forbidden(code: i32) -> bool {
    matches!(code, 401 | 403)
}

fn refused(error: ErrorData) -> RequestError {
    let message = error.message.into_owned();
    match error.code.0 {
        bounds::RESPONSE_TOO_LARGE => RequestError::ResponseTooLarge(message),
        code => RequestError::Refused { code, message },
    }
}

fn not_opened(error: ClientInitializeError, closed: &FirstDisconnect) -> RequestError {
    if let Some(why) = closed.get() {
        return RequestError::Closed(why);
    }
    match error {
        ClientInitializeError::JsonRpcError(error) => refused(error),
        // The discovery was only a probe, so the fallback's error counts, unless the probe was denied access.
        ClientInitializeError::LegacyFallbackFailed { discover, fallback } => match *discover {
            ClientInitializeError::JsonRpcError(error) if is_forbidden(error.code.0) => {
                RequestError::Refused { code: error.code.0, message: error.message.into_owned() }
            }
            _ => not_opened(*fallback, closed),
        },
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => {
            RequestError::Closed(DisconnectReason::Ended)
        }
        _ => RequestError::InvalidResponse,
    }
}

#[cfg(test)]
mod tests;
