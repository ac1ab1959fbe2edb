//! Sessions of clients that use a revision before 2026-07-28, separate for each principal: the session id of another
//! principal is unknown here, so its streams, events, questions and cancellations are out of reach.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{Stream, StreamExt};
use http_server::limits::MAX_REQUESTS_PER_PRINCIPAL;
use http_server::{Budget, BudgetShare};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, RequestId, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use telemetry::LogIgnored;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::kept_responses::KeptResponses;
use crate::server::http::limits::{
    MAX_INITIALIZE_BYTES, MAX_RESUMABLE_EVENTS, MAX_SESSIONS, MAX_SESSIONS_PER_PRINCIPAL, MAX_STREAMS_PER_SESSION,
    RESUMABLE_FOR, SESSION_IDLE,
};
use crate::server::principal::Principal;

tokio::task_local! {
    /// The HTTP request that is being handled. The library's session interface does not pass it on.
    pub(super) static HTTP_REQUEST: HttpRequest;
}

/// Data about an HTTP request while the library handles it.
#[derive(Debug, Default)]
pub(super) struct HttpRequest {
    pub(super) body_bytes: usize,
    /// Why the request was rejected. Without it the library would report an internal error.
    pub(super) refusal: Cell<Option<Refusal>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("`initialize` may have at most {MAX_INITIALIZE_BYTES} bytes")]
    InitializeTooLarge,
    #[error(
        "all {MAX_SESSIONS_PER_PRINCIPAL} sessions of this principal are in use; end one with DELETE, or try later"
    )]
    PrincipalSessions,
    #[error("all {MAX_SESSIONS} sessions of the server are in use; try again later")]
    Sessions,
    #[error("this session already has {MAX_STREAMS_PER_SESSION} open streams; close some of them")]
    Streams,
    #[error("this principal already has {MAX_REQUESTS_PER_PRINCIPAL} requests in progress; wait for some of them")]
    Requests,
    #[error("a request with this id is already in progress in this session; use each id once")]
    DuplicateId,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Library(#[from] LocalSessionManagerError),
}

/// Stores the reason for the endpoint, which reads it after the library has returned.
fn refuse(refusal: Refusal) -> SessionsError {
    // Outside of a request there is no response to put it in.
    HTTP_REQUEST.try_with(|request| request.refusal.set(Some(refusal))).log_expected("report why a request is refused");
    refusal.into()
}

/// The sessions of one principal.
#[derive(Debug)]
pub(super) struct Sessions {
    principal: Principal,
    local: LocalSessionManager,
    budget: Arc<Budget>,
    all_sessions: Arc<Semaphore>,
    open: Mutex<HashMap<SessionId, OpenSession>>,
    kept: Arc<Mutex<KeptResponses>>,
}

#[derive(Debug)]
struct OpenSession {
    last_used: Instant,
    /// Cloned by each open stream, to count them.
    streams: Arc<()>,
    requests: Arc<Mutex<HashSet<RequestId>>>,
    _permit: OwnedSemaphorePermit,
}

impl OpenSession {
    fn is_idle(&self) -> bool {
        self.stream_count() == 0 && self.requests.lock().is_empty()
    }

    fn stream_count(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }
}

/// A request in progress in a session. It is carried in the request's extensions and dropped when the request has been
/// handled.
#[derive(Clone, Debug)]
pub(super) struct RequestInProgress {
    request: Arc<RequestGuard>,
    _share: BudgetShare,
}

impl RequestInProgress {
    /// Records the size of the result, which the session keeps for a while.
    pub(super) fn count_result(&self, bytes: usize) {
        self.request.result_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct RequestGuard {
    id: RequestId,
    requests: Arc<Mutex<HashSet<RequestId>>>,
    session: SessionId,
    kept: Arc<Mutex<KeptResponses>>,
    result_bytes: AtomicUsize,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.id);
        self.kept.lock().add(&self.session, self.result_bytes.load(Ordering::Relaxed), Instant::now());
    }
}

/// Returns the permits for the sessions of all principals together.
pub(super) fn all_sessions() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_SESSIONS))
}

impl Sessions {
    pub(super) fn new(principal: Principal, budget: Arc<Budget>, all_sessions: Arc<Semaphore>) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SESSION_IDLE);
        local.session_config.channel_capacity = MAX_RESUMABLE_EVENTS;
        local.session_config.completed_cache_ttl = RESUMABLE_FOR;
        Self { principal, local, budget, all_sessions, open: Mutex::default(), kept: Arc::default() }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.open.lock().contains_key(id)
    }

    /// Makes room for one more session: returns a permit, and the idle session that must be closed for it.
    fn make_room(&self) -> Result<(OwnedSemaphorePermit, Option<SessionId>), Refusal> {
        let mut open = self.open.lock();
        let permit = Arc::clone(&self.all_sessions).try_acquire_owned().ok();
        if let Some(permit) = permit
            && open.len() < MAX_SESSIONS_PER_PRINCIPAL
        {
            return Ok((permit, None));
        }
        let full = if open.len() < MAX_SESSIONS_PER_PRINCIPAL { Refusal::Sessions } else { Refusal::PrincipalSessions };
        let idle = open.iter().filter(|(_, one)| one.is_idle()).min_by_key(|(_, one)| one.last_used);
        let idle = idle.map(|(id, _)| SessionId::clone(id));
        let evicted = idle.and_then(|id| Some((open.remove(&id)?, id)));
        evicted.map(|(former, id)| (former._permit, Some(id))).ok_or(full)
    }

    fn streaming(&self, id: &SessionId) -> Result<Arc<()>, SessionsError> {
        match self.open.lock().get(id) {
            Some(open) if open.stream_count() < MAX_STREAMS_PER_SESSION => Ok(Arc::clone(&open.streams)),
            Some(_) => Err(refuse(Refusal::Streams)),
            None => Err(LocalSessionManagerError::SessionNotFound(SessionId::clone(id)).into()),
        }
    }

    fn under_way(&self, id: &SessionId, request: &RequestId) -> Result<RequestInProgress, SessionsError> {
        let share = self.budget.reserve_request().map_err(|_| refuse(Refusal::Requests))?;
        let open = self.open.lock();
        let requests = open.get(id).map(|open| Arc::clone(&open.requests));
        let requests = requests.ok_or_else(|| LocalSessionManagerError::SessionNotFound(SessionId::clone(id)))?;
        if !requests.lock().insert(request.clone()) {
            return Err(refuse(Refusal::DuplicateId));
        }
        let guard = RequestGuard {
            id: request.clone(),
            requests,
            session: SessionId::clone(id),
            kept: Arc::clone(&self.kept),
            result_bytes: AtomicUsize::new(0),
        };
        Ok(RequestInProgress { request: Arc::new(guard), _share: share })
    }

    /// Waits until the principal's sessions keep few enough responses for another request.
    async fn wait_for_kept_responses(&self) {
        loop {
            let (expired, full_until) = {
                let mut kept = self.kept.lock();
                (kept.expire(Instant::now()), kept.full_until())
            };
            for session in expired {
                self.free_expired(&session).await;
            }
            match full_until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Makes a session free its expired responses. It does so with every message; this one has no other effect, because
    /// no stream has this id.
    async fn free_expired(&self, id: &SessionId) {
        const NO_STREAM: &str = "0/18446744073709551615";
        self.local.resume(id, NO_STREAM.to_owned()).await.map(drop).log_expected("free expired responses");
    }

    /// Ends a session without waiting for it: its worker stops when its handle is dropped.
    async fn remove(&self, id: &SessionId) {
        let was_open = self.open.lock().remove(id).is_some();
        if was_open {
            tracing::info!(principal = self.principal.name(), "closed a session");
        }
        self.local.sessions.write().await.remove(id);
        self.kept.lock().remove(id);
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        if HTTP_REQUEST.try_with(|request| request.body_bytes).unwrap_or(0) > MAX_INITIALIZE_BYTES {
            return Err(refuse(Refusal::InitializeTooLarge));
        }
        let (permit, evicted) = self.make_room().map_err(refuse)?;
        if let Some(evicted) = evicted {
            tracing::info!(principal = self.principal.name(), reason = "room for another", "closed an idle session");
            self.remove(&evicted).await;
        }
        let (id, transport) = self.local.create_session().await?;
        let open = OpenSession {
            last_used: Instant::now(),
            streams: Arc::default(),
            requests: Arc::default(),
            _permit: permit,
        };
        self.open.lock().insert(SessionId::clone(&id), open);
        tracing::info!(principal = self.principal.name(), "opened a session");
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        match self.open.lock().get_mut(id) {
            Some(open) => {
                open.last_used = Instant::now();
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.remove(id).await;
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let streaming = self.streaming(id)?;
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            self.wait_for_kept_responses().await;
            let under_way = self.under_way(id, &request.id)?;
            request.request.extensions_mut().insert(under_way);
        }
        Ok(holding(self.local.create_stream(id, message).await?, streaming))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        Ok(self.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let streaming = self.streaming(id)?;
        Ok(holding(self.local.create_standalone_stream(id).await?, streaming))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let streaming = self.streaming(id)?;
        Ok(holding(self.local.resume(id, last_event_id).await?, streaming))
    }
}

/// Wraps a stream so that it counts as open until it is dropped.
fn holding<S>(stream: S, streaming: Arc<()>) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static
where
    S: Stream<Item = ServerSseMessage> + Send + Sync + 'static,
{
    stream.inspect(move |_| {
        let _ = &streaming;
    })
}
