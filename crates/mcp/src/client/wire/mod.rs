//! One connection as a session: requests out, whole results back. The protocol library's types end here.
//!
//! The library keeps request ids, the handshake and cancellation. What it reads goes through `stdio` or `http`, which
//! bound it, and `gate`, which hands results on as they came: typed results would lose every field the library does not
//! know.

mod asking;
mod bounds;
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
use tokio::sync::watch;

use super::Closed;
use super::closed::ClosedCell;
use super::intake::Slot;
use super::spec::{MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, shown};
use asking::{Asking, ElicitationHandler};
use gate::{Gate, Sink};
pub(crate) use http::Http;
pub use oauth::LoginRefused;
pub(crate) use oauth::{Asked, Authority, RenewError, renew};
pub(crate) use stdio::Stdio;
use subscription::Subscription;

/// Where a tool that does a repeated call once finds the call's key.
const KEY: &str = "cellmate/idempotencyKey";

/// The protocol's code, in 2025-11-25, for a call that can be made once a person has been somewhere.
const PAGES_FIRST: i32 = -32042;

/// How a connection begins. Every server of the older revisions knows `initialize` and those that speak both still do,
/// whereas some older ones end at the first message that is something else; so it is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Initialize,
    Discover,
    /// Asks which, for servers at an address: there a question that is not understood costs nothing.
    Auto,
}

/// A transport with its gate.
pub(crate) trait Gated: Transport<RoleClient> + 'static {
    /// Whether what is sent has headers.
    const HAS_HEADERS: bool;

    fn gate(&self) -> &Gate;
}

impl Gated for Http {
    const HAS_HEADERS: bool = true;

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<R, W> Gated for Stdio<R, W>
where
    Self: Transport<RoleClient> + 'static,
{
    const HAS_HEADERS: bool = false;

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    running: RunningService<RoleClient, ElicitationHandler>,
    asking: Asking,
    closed: ClosedCell,
    list_changes: watch::Receiver<u64>,
    has_headers: bool,
    _subscription: Option<Subscription>,
}

#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) params: Map<String, Value>,
    /// Arguments that the server wants in headers, too.
    pub(crate) headers: Vec<(String, String)>,
    /// Empty where there is none.
    pub(crate) key: &'a str,
    pub(crate) updates: ProgressSink,
    /// Who is asked what the server wants to know meanwhile. Some also for one that can ask nobody: a question may be
    /// its.
    pub(crate) asker: Option<QuestionSender>,
    pub(crate) deadline: Duration,
    /// Keeps the answer's part of the budget for data of servers, for as long as a clone of it is held.
    pub(crate) slot: Slot,
}

impl Request<'_> {
    /// One that is not a call: without a key, heard by nobody.
    pub(crate) fn plain(method: &'static str, params: Map<String, Value>, deadline: Duration) -> Self {
        Self {
            method,
            params,
            headers: Vec::new(),
            key: "",
            updates: ProgressSink::default(),
            asker: None,
            deadline,
            slot: Slot::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The server answered with an error.
    Refused { code: i32, message: String },
    /// It answered, with more than is read. The text says how much and what to do.
    Unread(String),
    /// It wants a person to visit pages first, and to be asked again then.
    Pages(Value),
    /// It did not answer in time.
    Deadline(Duration),
    /// It could not be sent any more.
    NotSent(Closed),
    /// It cannot be answered any more; it may have arrived.
    Closed(Closed),
    /// It answered with something that is no answer.
    Confused,
}

impl Session {
    pub(crate) async fn open<T: Gated>(transport: T, era: Handshake) -> Result<Self, RequestError> {
        let (closed, list_changes) = (transport.gate().closed.clone(), transport.gate().list_changes());
        // Tasks, and questions to people: sampling and roots are refused, whoever asks.
        let able = serde_json::from_value(json!({
            "elicitation": {"form": {}, "url": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }));
        let able = able.unwrap_or_else(|_| ClientCapabilities::default());
        let us = ClientConfig::new(able, Implementation::new("cellmate", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let lifecycle = match era {
            Handshake::Initialize => ClientLifecycleMode::Initialize,
            Handshake::Discover => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
            Handshake::Auto => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
        };
        let asking = Asking::default();
        let us = ElicitationHandler { config: us, asking: asking.clone() };
        match us.serve_with_lifecycle(transport, lifecycle).await {
            Ok(running) => {
                let _subscription = Subscription::of(&running, &closed);
                Ok(Self { running, asking, closed, list_changes, has_headers: T::HAS_HEADERS, _subscription })
            }
            Err(error) => Err(not_opened(error, &closed)),
        }
    }

    pub(crate) fn has_headers(&self) -> bool {
        self.has_headers
    }

    /// What the server says of itself and of how it is used.
    pub(crate) fn about(&self) -> Option<Arc<str>> {
        let info = self.running.peer_info()?;
        let text = info.instructions.as_deref()?;
        Some(shown(text, MAX_SHOWN_CHARS).into())
    }

    /// The revision of the protocol that both speak.
    pub(crate) fn revision(&self) -> Option<String> {
        let info = self.running.peer_info()?;
        Some(shown(info.protocol_version.as_str(), MAX_SHOWN_NAME_CHARS))
    }

    /// What the server says it has: tools, resources, prompts.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let info = self.running.peer_info();
        let capabilities = info.as_ref().map(|info| &info.capabilities);
        Capabilities {
            tools: capabilities.is_some_and(|capabilities| capabilities.tools.is_some()),
            resources: capabilities.is_some_and(|capabilities| capabilities.resources.is_some()),
            prompts: capabilities.is_some_and(|capabilities| capabilities.prompts.is_some()),
        }
    }

    pub(crate) fn why_closed(&self) -> Option<Closed> {
        self.closed.get()
    }

    /// Waits for the end, also when the session itself is gone by then.
    pub(crate) fn closed(&self) -> impl Future<Output = Closed> + Send + use<> {
        let closed = self.closed.clone();
        async move { closed.wait().await }
    }

    /// Closes the server's input and so on to its end, whoever still holds the session.
    pub(crate) fn hang_up(&self) {
        self.running.cancellation_token().cancel();
    }

    pub(crate) fn list_changes(&self) -> watch::Receiver<u64> {
        self.list_changes.clone()
    }

    /// Sends a request and gives its result as it came. Dropped or past its deadline, the request is cancelled; time in
    /// which a person is asked something does not count.
    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Value, RequestError> {
        if let Some(why) = self.closed.get() {
            return Err(RequestError::NotSent(why));
        }
        let deadline = request.deadline;
        let _during = request.asker.clone().map(|asker| self.asking.during(asker));
        let mut exchange = pin!(self.exchange(request));
        loop {
            match tokio::time::timeout(deadline, &mut exchange).await {
                Ok(answer) => return answer,
                Err(_) if self.asking.is_open() => {}
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
        let mut pending = Pending(Some(sent.map_err(|error| self.failed(error))?));
        let answer = match &mut pending.0 {
            // An answer that came before the end counts. The library tells of the end itself, but only after it has
            // tried for seconds to send what nobody reads.
            Some(handle) => tokio::select! {
                biased;
                answer = &mut handle.rx => answer,
                _ = self.closed.wait() => Ok(Err(ServiceError::TransportClosed)),
            },
            None => return Err(RequestError::Confused),
        };
        pending.0 = None;
        match answer {
            Ok(Ok(ServerResult::CustomResult(result))) => Ok(result.0),
            Ok(Ok(_)) => Err(RequestError::Confused),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_) => Err(RequestError::Closed(self.closed.get().unwrap_or(Closed::Ended))),
        }
    }

    fn failed(&self, error: ServiceError) -> RequestError {
        match error {
            ServiceError::McpError(ErrorData { code: ErrorCode(PAGES_FIRST), data: Some(data), .. }) => {
                RequestError::Pages(data.get("elicitations").cloned().unwrap_or_default())
            }
            ServiceError::McpError(error) => refused(error),
            ServiceError::UnexpectedResponse => RequestError::Confused,
            // The rest says in several ways that nobody is there to talk to.
            _ => RequestError::Closed(self.closed.get().unwrap_or(Closed::Ended)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
}

/// A request on its way. Whoever stops waiting for it tells the server.
#[derive(Debug)]
struct Pending(Option<RequestHandle<RoleClient>>);

impl Drop for Pending {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            // Sending waits, and a drop cannot; the task ends with the connection at the latest.
            runtime
                .spawn(async move { drop(handle.cancel(Some("the caller no longer waits for it".to_owned())).await) });
        }
    }
}

/// Whether an answer says who may, in HTTP's codes; the protocol's own are below nought.
pub(crate) fn is_forbidden(code: i32) -> bool {
    matches!(code, 401 | 403)
}

fn refused(error: ErrorData) -> RequestError {
    let message = error.message.into_owned();
    match error.code.0 {
        bounds::UNREAD => RequestError::Unread(message),
        code => RequestError::Refused { code, message },
    }
}

fn not_opened(error: ClientInitializeError, closed: &ClosedCell) -> RequestError {
    if let Some(why) = closed.get() {
        return RequestError::Closed(why);
    }
    match error {
        ClientInitializeError::JsonRpcError(error) => refused(error),
        // The newer way was only a question; but who may not even ask gets no better answer to the next one.
        ClientInitializeError::LegacyFallbackFailed { discover, fallback } => match *discover {
            ClientInitializeError::JsonRpcError(error) if is_forbidden(error.code.0) => {
                RequestError::Refused { code: error.code.0, message: error.message.into_owned() }
            }
            _ => not_opened(*fallback, closed),
        },
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => {
            RequestError::Closed(Closed::Ended)
        }
        _ => RequestError::Confused,
    }
}

#[cfg(test)]
mod tests;
