//! What every request passes: its host, its token, its size and its pace.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::access::Access;
use super::host::Hosts;

/// A request's body, and how long it may take to arrive.
const MAX_BODY_BYTES: usize = 4 << 20;
const BODY_IN_TIME: Duration = Duration::from_secs(15);

/// Who may come in, and under which names besides our own we are known.
#[derive(Clone, Debug)]
pub struct Gate {
    pub access: Access,
    pub hosts: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Standing {
    access: Access,
    hosts: Hosts,
}

impl Gate {
    pub(super) fn at(self, address: SocketAddr) -> Standing {
        Standing { hosts: Hosts::new(address, &self.hosts), access: self.access }
    }
}

pub(super) async fn right_host(State(gate): State<Arc<Standing>>, request: Request, next: Next) -> Response {
    if gate.hosts.admit(request.headers(), request.uri()) {
        return next.run(request).await;
    }
    let why =
        "this Host or Origin is not allowed; reach the server by its own address, or start it with --allow-host\n";
    (StatusCode::FORBIDDEN, why).into_response()
}

/// What comes through has its principal with it, and is all here.
pub(super) async fn admit(State(gate): State<Arc<Standing>>, request: Request, next: Next) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(principal) = gate.access.principal(authorization) else {
        let why = "a token is needed: `Authorization: Bearer …`; `cellmate mcp --http` says where it is\n";
        let mut refused = (StatusCode::UNAUTHORIZED, why).into_response();
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    };
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if declared.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| length > MAX_BODY_BYTES) {
        return too_large();
    }
    let (mut parts, body) = request.into_parts();
    // Nobody behind this needs the secret.
    parts.headers.remove(header::AUTHORIZATION);
    parts.extensions.insert(principal);
    match tokio::time::timeout(BODY_IN_TIME, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(_)) => too_large(),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time\n").into_response(),
    }
}

fn too_large() -> Response {
    (StatusCode::PAYLOAD_TOO_LARGE, format!("a request has at most {MAX_BODY_BYTES} bytes\n")).into_response()
}
