//! The HTTP endpoint for clients of every protocol revision.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http_server::{Budget, BudgetShare, Caller, Permission};
use parking_lot::Mutex;
use rmcp::model::ProtocolVersion;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::MAX_MESSAGE_BYTES;
use super::handler::Handler;
use super::questions::FormRights;
use super::sessions::{self, HTTP_REQUEST, HttpRequest, Refusal, Sessions};
use crate::server::{McpService, Principal};

/// How often a comment is sent on a silent stream, so that proxies do not close it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// When a client that was rejected for lack of capacity may retry.
const RETRY_AFTER: Duration = Duration::from_secs(2);

const SESSION_ID: &str = "mcp-session-id";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";

/// Returns the router of the MCP endpoint. The gate must check host, origin and token before requests reach it.
pub(crate) fn endpoint(service: McpService, stop: CancellationToken) -> Router {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(stop);
    let endpoint = Endpoint { service, config, all_sessions: sessions::all_sessions(), principals: Mutex::default() };
    Router::new().route("/mcp", any(handle)).with_state(Arc::new(endpoint))
}

/// Returns the session id of a request.
pub(crate) fn session_of(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(SESSION_ID)
}

/// Returns true if a request names a revision without sessions.
pub(crate) fn is_modern_version(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}

struct Endpoint {
    service: McpService,
    config: StreamableHttpServerConfig,
    all_sessions: Arc<Semaphore>,
    principals: Mutex<HashMap<(Principal, FormRights), PrincipalService>>,
}

/// The protocol service of one principal's tokens with the same rights. It cannot reach sessions of other principals, or
/// of tokens with other rights: their forms are not for its clients.
#[derive(Clone)]
struct PrincipalService {
    sessions: Arc<Sessions>,
    library: StreamableHttpService<Handler, Sessions>,
}

impl Endpoint {
    fn of(&self, principal: &Principal, rights: FormRights, budget: &Arc<Budget>) -> PrincipalService {
        let mut principals = self.principals.lock();
        if let Some(service) = principals.get(&(principal.clone(), rights)) {
            return service.clone();
        }
        let sessions = Arc::new(Sessions::new(principal.clone(), Arc::clone(budget), Arc::clone(&self.all_sessions)));
        let (service, caller) = (self.service.clone(), principal.clone());
        let handler = move || Ok(Handler::new(service.clone(), caller.clone(), rights));
        let library = StreamableHttpService::new(handler, Arc::clone(&sessions), self.config.clone());
        let service = PrincipalService { sessions, library };
        principals.insert((principal.clone(), rights), service.clone());
        service
    }
}

async fn handle(State(endpoint): State<Arc<Endpoint>>, mut request: Request) -> Response {
    let extensions = request.extensions();
    let (Some(principal), Some(budget)) = (extensions.get::<Principal>(), extensions.get::<Arc<Budget>>()) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the request has no authenticated principal\n").into_response();
    };
    let may_approve = extensions.get::<Caller>().is_some_and(|caller| caller.permissions.has(Permission::Approve));
    let rights = if may_approve { FormRights::Approve } else { FormRights::AnswerQuestions };
    let (principal, budget) = (principal.clone(), Arc::clone(budget));
    let service = endpoint.of(&principal, rights, &budget);
    if !is_modern_version(request.headers())
        && let Some(session) = session_of(request.headers())
        && !session.to_str().is_ok_and(|id| service.sessions.has(id))
    {
        tracing::info!(principal = principal.name(), reason = "unknown session", "refused an HTTP request");
        return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
    }
    // Requests in a session are counted by the session, so that responses and cancellations are always accepted.
    if request.method() == Method::POST && session_of(request.headers()).is_none() {
        match budget.reserve_request() {
            Ok(share) => drop(request.extensions_mut().insert(RequestShare(share))),
            Err(_) => return refused(&principal, Refusal::Requests),
        }
    }
    let body_bytes = request.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let known = HttpRequest { body_bytes: body_bytes.unwrap_or(usize::MAX), ..HttpRequest::default() };
    let handled = async {
        let response = service.library.handle(request).await.map(Body::new);
        match HTTP_REQUEST.with(|known| known.refusal.take()) {
            Some(refusal) => refused(&principal, refusal),
            None => response,
        }
    };
    HTTP_REQUEST.scope(known, handled).await
}

/// The share of the principal's request budget that an HTTP request holds. The share for its body is a separate one.
#[derive(Clone)]
struct RequestShare(#[expect(dead_code, reason = "held until it is dropped, which releases the share")] BudgetShare);

fn refused(principal: &Principal, refusal: Refusal) -> Response {
    tracing::info!(principal = principal.name(), reason = %refusal, "refused an HTTP request");
    let status = match refusal {
        Refusal::InitializeTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::DuplicateId => StatusCode::BAD_REQUEST,
        Refusal::Sessions => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::PrincipalSessions | Refusal::Streams | Refusal::Requests => StatusCode::TOO_MANY_REQUESTS,
    };
    let mut response = (status, format!("{refusal}\n")).into_response();
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
    }
    response
}
