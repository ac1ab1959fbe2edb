//! The checks on every request: its host, its token, its size, and the time that it takes to arrive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::json;
use futures_util::StreamExt;
use serde::Deserialize;

use super::access::Access;
use super::budget::{Budget, Budgets, Share};
use super::host::Hosts;
use super::limits::{
    BODY_TIMEOUT, MAX_BODY_BYTES, MAX_BODY_VALUES, MAX_CONNECTIONS_PER_PRINCIPAL, MAX_INITIALIZE_BYTES,
    MAX_PRINCIPAL_BODY_BYTES, PARSED_VALUE_BYTES,
};
use super::slots::{Connection, Full};
use crate::server::principal::Principal;
use crate::server::wire::{is_modern_version, session_of};

/// When a client that was rejected for lack of capacity may retry.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// How clients are authenticated, and which host names are accepted.
#[derive(Clone, Debug)]
pub struct Gate {
    pub access: Access,
    /// Accepted host names besides the server's own address.
    pub hosts: Vec<String>,
}

#[derive(Debug)]
pub(super) struct GateState {
    access: Access,
    hosts: Hosts,
    budgets: Budgets,
}

impl Gate {
    pub(super) fn at(self, address: SocketAddr) -> GateState {
        GateState { hosts: Hosts::new(address, &self.hosts), access: self.access, budgets: Budgets::default() }
    }
}

/// Marks the response to a request with a valid token.
#[derive(Clone, Copy, Debug)]
struct Admitted;

/// Checks the host. After a request without a valid token the connection is closed, so that an unauthenticated client
/// gets one response per connection, also from `/healthz`.
pub(super) async fn check_host(State(gate): State<Arc<GateState>>, request: Request, next: Next) -> Response {
    let mut response = if gate.hosts.admit(request.headers(), request.uri()) {
        next.run(request).await
    } else {
        tracing::info!(reason = "host or origin not allowed", "refused an HTTP request");
        let why = "this Host or Origin is not allowed; use the server's own address, or start it with --allow-host\n";
        (StatusCode::FORBIDDEN, why).into_response()
    };
    if response.extensions().get::<Admitted>().is_none() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Checks a request's token, reads its body, and passes it on with its principal and its share of the budgets.
pub(super) async fn admit(State(gate): State<Arc<GateState>>, request: Request, next: Next) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(principal) = gate.access.principal(authorization) else {
        tracing::info!(reason = "missing or invalid token", "refused an HTTP request");
        let why = "missing or invalid token; send `Authorization: Bearer …`; `cellmate mcp --http` says where it is\n";
        let mut refused = (StatusCode::UNAUTHORIZED, why).into_response();
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    };
    if let Some(Err(full)) = request.extensions().get::<Connection>().map(|one| one.authenticate(&principal)) {
        return refused(&principal, Refused::Connections(full));
    }
    let budget = gate.budgets.of(&principal);
    let (mut parts, body) = request.into_parts();
    // No later code needs the secret.
    parts.headers.remove(header::AUTHORIZATION);
    parts.extensions.insert(principal.clone());
    parts.extensions.insert(Arc::clone(&budget));
    let admitted = async {
        let (bytes, share) = read_body(&parts.method, &parts.headers, body, &budget).await?;
        if let Some(share) = share {
            parts.extensions.insert(share);
        }
        Ok(Request::from_parts(parts, Body::from(bytes)))
    };
    let mut response = match admitted.await {
        Ok(request) => next.run(request).await,
        Err(reason) => refused(&principal, reason),
    };
    response.extensions_mut().insert(Admitted);
    response
}

fn refused(principal: &Principal, reason: Refused) -> Response {
    tracing::info!(principal = principal.name(), ?reason, "refused an HTTP request");
    reason.into_response()
}

/// Why a request with a valid token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Connections(Full),
    TooLarge(usize),
    TooManyValues,
    TooSlow,
    NoRoom,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Connections(Full::Principal) => busy(format!(
                "this principal has {MAX_CONNECTIONS_PER_PRINCIPAL} connections already; close some of them\n"
            )),
            Self::Connections(Full::Total | Full::Closed) => {
                busy("the server has no free connections; try again later\n".to_owned())
            }
            Self::TooLarge(most) => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("this request may have at most {most} bytes\n")).into_response()
            }
            Self::TooManyValues => {
                let why = format!("a request may have at most {MAX_BODY_VALUES} JSON values\n");
                (StatusCode::PAYLOAD_TOO_LARGE, why).into_response()
            }
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time\n").into_response(),
            Self::NoRoom => busy(format!(
                "large requests of this principal already use {MAX_PRINCIPAL_BODY_BYTES} bytes; try again later\n"
            )),
        }
    }
}

/// Returns a response that asks the client to retry later.
fn busy(why: String) -> Response {
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn read_body(
    method: &Method,
    headers: &HeaderMap,
    body: Body,
    budget: &Budget,
) -> Result<(Bytes, Option<Share>), Refused> {
    let limit = body_limit(method, headers);
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(Refused::TooLarge(limit));
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, collect(body, limit, declared.unwrap_or(limit), budget));
    let (bytes, mut share) = read.await.map_err(|_| Refused::TooSlow)??;
    if bytes.len() > MAX_INITIALIZE_BYTES && session_of(headers).is_none() && may_be_initialize(&bytes) {
        return Err(Refused::TooLarge(MAX_INITIALIZE_BYTES));
    }
    let values = json::measure(&bytes).values;
    if values > MAX_BODY_VALUES {
        return Err(Refused::TooManyValues);
    }
    if share.is_none() {
        let parsed = bytes.len() + values * PARSED_VALUE_BYTES;
        share = budget.body(parsed).await.map_err(|_| Refused::NoRoom)?;
    }
    Ok((bytes, share))
}

/// Returns the size limit of a request's body. In revisions before 2026-07-28 a request without a session can only be
/// `initialize`.
fn body_limit(method: &Method, headers: &HeaderMap) -> usize {
    let is_legacy = headers.contains_key("mcp-protocol-version") && !is_modern_version(headers);
    if method != Method::POST || (is_legacy && session_of(headers).is_none()) {
        MAX_INITIALIZE_BYTES
    } else {
        MAX_BODY_BYTES
    }
}

/// Reads a body. Once it is larger than `FREE_BODY_BYTES`, it reserves the expected size in the budget.
async fn collect(
    body: Body,
    limit: usize,
    expected: usize,
    budget: &Budget,
) -> Result<(Bytes, Option<Share>), Refused> {
    let mut stream = body.into_data_stream();
    let mut collected: Vec<u8> = Vec::new();
    let mut share = None;
    while let Some(chunk) = stream.next().await {
        // The client has disconnected, or its framing is broken; hyper closes the connection.
        let chunk = chunk.map_err(|_| Refused::TooSlow)?;
        let length = collected.len() + chunk.len();
        if length > limit {
            return Err(Refused::TooLarge(limit));
        }
        if share.is_none() && budget.is_counted(length) {
            share = budget.body(expected.max(length)).await.map_err(|_| Refused::NoRoom)?;
        }
        collected.extend_from_slice(&chunk);
    }
    Ok((Bytes::from(collected), share))
}

/// Returns true if a body's method is `initialize` or cannot be determined.
fn may_be_initialize(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        method: Option<std::borrow::Cow<'a, str>>,
    }
    let envelope = serde_json::from_slice::<Envelope<'_>>(body);
    envelope.map_or(true, |envelope| envelope.method.is_none_or(|method| method == "initialize"))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, Method};

    use super::super::limits::{MAX_BODY_BYTES, MAX_INITIALIZE_BYTES};
    use super::{body_limit, may_be_initialize};

    #[test]
    fn a_body_that_is_or_may_be_initialize_is_recognised() {
        for body in [
            r#"{"method":"initialize"}"#,
            r#"{"id":1,"params":{"method":"ping"},"method":"initi\u0061lize"}"#,
            r#"{"method":"ping","method":"initialize"}"#,
            r#"[{"method":"initialize"}]"#,
            r#"{"id":1}"#,
            "no JSON",
        ] {
            assert!(may_be_initialize(body.as_bytes()), "{body}");
        }
        assert!(!may_be_initialize(br#"{"method":"tools/call","params":{"method":"initialize"}}"#));
    }

    #[test]
    fn only_posts_in_a_session_or_of_the_newest_revision_may_be_large() {
        let headers = |all: &[(&'static str, &str)]| -> HeaderMap {
            all.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let (version, session) = ("mcp-protocol-version", "mcp-session-id");
        for (method, given, limit) in [
            (Method::POST, headers(&[(version, "2026-07-28")]), MAX_BODY_BYTES),
            (Method::POST, headers(&[(version, "2025-06-18"), (session, "a")]), MAX_BODY_BYTES),
            (Method::POST, headers(&[]), MAX_BODY_BYTES),
            (Method::POST, headers(&[(version, "2025-06-18")]), MAX_INITIALIZE_BYTES),
            (Method::GET, headers(&[(session, "a")]), MAX_INITIALIZE_BYTES),
        ] {
            assert_eq!(body_limit(&method, &given), limit, "{method} {given:?}");
        }
    }
}
