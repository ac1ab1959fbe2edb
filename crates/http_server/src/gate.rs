//! The checks on every request: its host, its token, its size, and the time that it takes to arrive.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use contract::json;
use futures_util::StreamExt;
use tokio::net::TcpListener;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::{API_KEY, Access};
use crate::budget::{Budget, BudgetLimits, BudgetShare, Budgets};
use crate::caller::Caller;
use crate::connections;
use crate::failed_logins::FailedLogins;
use crate::host::Hosts;
use crate::limits::{
    BODY_TIMEOUT, LARGE_BODY_BYTES, LARGE_BODY_TIMEOUT, LARGE_BODY_VALUES, LONG_WRITE_STALL, MAX_BODY_BYTES,
    MAX_BODY_DEPTH, MAX_BODY_VALUES, PARSED_VALUE_BYTES, WRITE_STALL,
};
use crate::permissions::Permission;
use crate::refusal::Refusal;
use crate::slots::Connection;
use crate::tls::Transport;

/// How clients are authenticated, which host names are accepted, and how much memory requests may take.
#[derive(Clone, Debug)]
pub struct Gate {
    pub access: Access,
    /// Accepted host names besides the server's own address.
    pub hosts: Vec<String>,
    pub budget: BudgetLimits,
    pub transport: Transport,
}

/// Why the HTTP server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(
        "{0} can be reached from other machines and therefore requires a token; leave out --no-token, or use 127.0.0.1"
    )]
    OpenToOthers(SocketAddr),
    #[error(
        "{0} can be reached from other machines, which would send their tokens unencrypted; pass --tls-cert and --tls-key, pass --behind-proxy if a proxy in front of it speaks TLS, or use 127.0.0.1"
    )]
    Unencrypted(SocketAddr),
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// Refuses an address that other machines can reach if no token is required, or if tokens would be sent unencrypted.
/// Programs check the address of their arguments before they start anything; [`RequestGate::new`] checks it again.
pub fn check_address(address: SocketAddr, requires_token: bool, transport: &Transport) -> Result<(), HttpError> {
    if address.ip().is_loopback() {
        Ok(())
    } else if !requires_token {
        Err(HttpError::OpenToOthers(address))
    } else if matches!(transport, Transport::Plain) {
        Err(HttpError::Unencrypted(address))
    } else {
        Ok(())
    }
}

/// The permission that a token needs for a group of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Any valid token. The handler checks what it needs, with [`Caller::require`].
    Token,
    /// A token that lacks the permission is answered with 403.
    Permission(Permission),
    /// A token that lacks the permission is answered with 404, as if the routes did not exist.
    HiddenUnless(Permission),
}

impl Requirement {
    fn check(self, caller: &Caller) -> Result<(), Refusal> {
        match self {
            Self::Token => Ok(()),
            Self::Permission(permission) => caller.require(permission),
            Self::HiddenUnless(permission) => caller.require(permission).map_err(|_| Refusal::NotFound),
        }
    }
}

/// What a group of routes admits, and how it words refusals.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    pub requirement: Requirement,
    /// Returns the size limit of a request's body, from the request's head.
    pub body_limit: fn(&Parts) -> usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// The JSON values that a body may have.
    pub max_values: usize,
    /// How deep the JSON of a body may nest.
    pub max_depth: usize,
    /// Checks a body that has arrived.
    pub check_body: fn(&Parts, &[u8]) -> Result<(), Refusal>,
    /// How long a write of a response may make no progress.
    pub write_stall: Duration,
    /// Writes the response to a refused request. The request gate adds the refusal's headers.
    pub respond: fn(&Parts, &Refusal) -> Response,
}

impl RouteRules {
    /// Returns the rules of routes that this permission gives access to.
    pub fn requiring(permission: Permission) -> Self {
        Self { requirement: Requirement::Permission(permission), ..Self::default() }
    }

    /// Admits bodies that carry conversations with images, 32 MiB, and clients that read their responses slowly.
    #[must_use]
    pub fn with_large_bodies(self) -> Self {
        Self {
            body_limit: |_| LARGE_BODY_BYTES,
            body_timeout: LARGE_BODY_TIMEOUT,
            max_values: LARGE_BODY_VALUES,
            write_stall: LONG_WRITE_STALL,
            ..self
        }
    }
}

impl Default for RouteRules {
    fn default() -> Self {
        Self {
            requirement: Requirement::Token,
            body_limit: |_| MAX_BODY_BYTES,
            body_timeout: BODY_TIMEOUT,
            max_values: MAX_BODY_VALUES,
            max_depth: MAX_BODY_DEPTH,
            check_body: |_, _| Ok(()),
            write_stall: WRITE_STALL,
            respond: |_, refusal| refusal.plain(),
        }
    }
}

/// The request gate of one server.
#[derive(Debug)]
pub struct RequestGate {
    listener: TcpListener,
    transport: Transport,
    checks: Arc<Checks>,
}

#[derive(Debug)]
struct Checks {
    access: Access,
    hosts: Hosts,
    budgets: Budgets,
    failed_logins: FailedLogins,
}

impl Checks {
    /// Counts a request with an invalid token. Returns the refusal for its client. A request without any token is no
    /// attempt to guess one.
    fn count_failure(&self, head: &Parts, refusal: Refusal) -> Refusal {
        let has_token = head.headers.contains_key(header::AUTHORIZATION) || head.headers.contains_key(API_KEY);
        let Some(connection) = head.extensions.get::<Connection>().filter(|_| refusal == Refusal::Token && has_token)
        else {
            return refusal;
        };
        match self.failed_logins.count(connection.network, Instant::now()) {
            Some(wait) => Refusal::TooManyFailures(wait.as_secs().saturating_add(1)),
            None => refusal,
        }
    }
}

/// The checks of one group of routes.
#[derive(Clone, Debug)]
struct Guard {
    checks: Arc<Checks>,
    rules: RouteRules,
}

impl RequestGate {
    pub fn new(listener: TcpListener, gate: Gate) -> Result<Self, HttpError> {
        let address = listener.local_addr()?;
        check_address(address, !gate.access.is_open(), &gate.transport)?;
        let hosts = Hosts::new(address, &gate.hosts);
        let checks = Checks {
            access: gate.access,
            hosts,
            budgets: Budgets::new(gate.budget),
            failed_logins: FailedLogins::default(),
        };
        Ok(Self { listener, transport: gate.transport, checks: Arc::new(checks) })
    }

    /// Admits only requests with a valid token to these routes. A handler finds the [`Caller`], its `Principal` and its
    /// `Arc<Budget>` in the request's extensions.
    pub fn guard(&self, routes: Router, rules: RouteRules) -> Router {
        let guard = Guard { checks: Arc::clone(&self.checks), rules };
        routes.layer(middleware::from_fn_with_state(guard, admit))
    }

    /// Serves until `stop` is cancelled; requests in progress then have a few seconds to finish. Routes that are not
    /// guarded are open to clients without a token.
    pub async fn serve(self, routes: Router, stop: CancellationToken) {
        let app = routes.layer(middleware::from_fn_with_state(Arc::clone(&self.checks), check_host));
        let watch = async {
            match self.checks.access.stored() {
                Some(tokens) => tokens.watch().await,
                None => std::future::pending().await,
            }
        };
        let transport = self.transport.clone();
        tokio::select! {
            () = connections::serve(self.listener, self.transport, app, stop) => {}
            () = watch => {}
            () = transport.follow_files() => {}
        }
    }
}

/// Marks the response to a request with a valid token.
#[derive(Clone, Copy, Debug)]
struct AdmissionMark;

/// Checks the host. After a request without a valid token the connection is closed, so that an unauthenticated client
/// gets one response per connection, also from `/healthz`.
async fn check_host(State(checks): State<Arc<Checks>>, request: Request, next: Next) -> Response {
    let mut response = if checks.hosts.admit(request.headers(), request.uri()) {
        next.run(request).await
    } else {
        tracing::info!(reason = "host or origin not allowed", "refused an HTTP request");
        Refusal::Host.plain()
    };
    if response.extensions().get::<AdmissionMark>().is_none() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Checks a request's token, reads its body, and passes it on with its principal and its share of the budgets.
async fn admit(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let caller = match guard.checks.access.authenticate(&parts.headers).await {
        Ok(caller) => caller,
        Err(refusal) => {
            let refusal = guard.checks.count_failure(&parts, refusal);
            tracing::info!(reason = %refusal, "refused an HTTP request");
            return guard.refuse(&parts, refusal);
        }
    };
    if let Some(Err(full)) = parts.extensions.get::<Connection>().map(|one| one.authenticate(&caller)) {
        return guard.refuse_caller(&parts, &caller, Refusal::Connections(full));
    }
    if let Some(connection) = parts.extensions.get::<Connection>() {
        connection.pace.set(guard.rules.write_stall);
    }
    let budget = guard.checks.budgets.of(&caller.principal);
    // No later code needs the secret.
    parts.headers.remove(header::AUTHORIZATION);
    parts.headers.remove(API_KEY);
    parts.extensions.insert(caller.principal.clone());
    parts.extensions.insert(caller.clone());
    parts.extensions.insert(Arc::clone(&budget));
    let body = match guard.rules.requirement.check(&caller) {
        Ok(()) => guard.read_body(&parts, body, &budget).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = match body {
        Ok((bytes, share)) => {
            parts.extensions.insert(share);
            next.run(Request::from_parts(parts, Body::from(bytes))).await
        }
        Err(reason) => guard.refuse_caller(&parts, &caller, reason),
    };
    response.extensions_mut().insert(AdmissionMark);
    response
}

impl Guard {
    fn refuse(&self, head: &Parts, refusal: Refusal) -> Response {
        let mut response = (self.rules.respond)(head, &refusal);
        refusal.add_headers(&mut response);
        response
    }

    fn refuse_caller(&self, head: &Parts, caller: &Caller, reason: Refusal) -> Response {
        let (principal, token) = (caller.principal.name(), caller.token.as_str());
        tracing::info!(principal, token, ?reason, "refused an HTTP request");
        self.refuse(head, reason)
    }

    async fn read_body(&self, head: &Parts, body: Body, budget: &Budget) -> Result<(Bytes, BudgetShare), Refusal> {
        if !is_identity(&head.headers) {
            return Err(Refusal::Encoding);
        }
        let limit = (self.rules.body_limit)(head);
        let length = head.headers.get(header::CONTENT_LENGTH);
        let declared = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|length| length > limit) {
            return Err(Refusal::TooLarge(limit));
        }
        let read = collect(body, limit, declared.unwrap_or(limit), budget);
        let read = tokio::time::timeout(self.rules.body_timeout, read);
        let (bytes, mut permits) = read.await.map_err(|_| Refusal::TooSlow)??;
        (self.rules.check_body)(head, &bytes)?;
        let json::Measure { depth, values } = json::measure(&bytes);
        if depth > self.rules.max_depth {
            return Err(Refusal::TooDeep(self.rules.max_depth));
        }
        if values > self.rules.max_values {
            return Err(Refusal::TooManyValues(self.rules.max_values));
        }
        // The parsed values take memory beside the body.
        let unreserved = if permits.is_empty() { bytes.len() } else { 0 };
        permits.extend(budget.reserve_body(unreserved + values * PARSED_VALUE_BYTES).await?);
        Ok((bytes, BudgetShare::new(permits)))
    }
}

/// Returns true if a body is not compressed.
fn is_identity(headers: &HeaderMap) -> bool {
    let is_identity =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.trim().eq_ignore_ascii_case("identity"));
    headers.get_all(header::CONTENT_ENCODING).iter().all(is_identity)
}

/// Reads a body. Once it is larger than `FREE_BODY_BYTES`, it reserves the expected size in the budget.
async fn collect(
    body: Body,
    limit: usize,
    expected: usize,
    budget: &Budget,
) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Refusal> {
    let mut stream = body.into_data_stream();
    let mut collected: Vec<u8> = Vec::new();
    let mut permits = Vec::new();
    while let Some(chunk) = stream.next().await {
        // The client has disconnected, or its framing is broken; hyper closes the connection.
        let chunk = chunk.map_err(|_| Refusal::TooSlow)?;
        let length = collected.len() + chunk.len();
        if length > limit {
            return Err(Refusal::TooLarge(limit));
        }
        if permits.is_empty() && budget.is_counted(length) {
            permits = budget.reserve_body(expected.max(length)).await?;
        }
        collected.extend_from_slice(&chunk);
    }
    Ok((Bytes::from(collected), permits))
}
