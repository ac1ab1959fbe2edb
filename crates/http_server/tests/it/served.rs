//! A server behind a request gate, and a client that writes bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use futures_util::stream;
use http_server::{
    Access, BudgetLimits, Caller, Gate, GeneratedSecret, Permission, Permissions, Principal, Refusal, RequestGate,
    Requirement, RouteRules, StoredTokens, Token, Transport,
};
use store::{Keys, Location, NewToken, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const LOCAL: &str = "local-local-local-local";
pub(crate) const AGENT: &str = "agent-agent-agent-agent";
pub(crate) const READER: &str = "reader-reader-reader";

/// Ends with the test.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) store: Store,
    /// How many requests have reached a handler.
    pub(crate) handled: Arc<AtomicUsize>,
    _stop: DropGuard,
}

fn token(name: &str, secret: &str, permissions: &str) -> Token {
    Token::new(Principal::named(name).unwrap(), secret, Permissions::parse(permissions).unwrap()).unwrap()
}

pub(crate) async fn gate(transport: Transport) -> (Gate, Store) {
    let store = Store::open(&Location::Memory, Keys::new(0, [0; 32])).await.unwrap();
    let fixed = vec![
        Token::new(Principal::local(), LOCAL, Permissions::all()).unwrap(),
        token("agent", AGENT, "execute,read"),
        token("reader", READER, "read"),
    ];
    let access = Access::Tokens { fixed, stored: Some(StoredTokens::new(store.clone())) };
    (Gate { access, hosts: Vec::new(), budget: BudgetLimits::large(), transport }, store)
}

/// Routes of every kind: open, for any token, for permissions, hidden, with large bodies, with their own refusals, and an
/// endless stream.
fn routes(request_gate: &RequestGate, handled: &Arc<AtomicUsize>) -> Router {
    let counted = {
        let handled = Arc::clone(handled);
        move |Extension(caller): Extension<Caller>, request: axum::extract::Request| async move {
            handled.fetch_add(1, Ordering::SeqCst);
            let secrets = ["authorization", "x-api-key"].iter().any(|name| request.headers().contains_key(*name));
            let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
            format!("{} {} {} {secrets}", caller.principal.name(), caller.permissions, body.len())
        }
    };
    let stream = || async {
        let first = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b"open\n"))]);
        Body::from_stream(futures_util::StreamExt::chain(first, stream::pending()))
    };
    let finer = |Extension(caller): Extension<Caller>| async move {
        match caller.require(Permission::Admin) {
            Ok(()) => "managed".into_response(),
            Err(refusal) => own_words(&refusal),
        }
    };
    let with =
        |path: &str, rules: RouteRules| request_gate.guard(Router::new().route(path, any(counted.clone())), rules);
    let hidden = RouteRules { requirement: Requirement::HiddenUnless(Permission::Admin), ..RouteRules::default() };
    let own =
        RouteRules { respond: |_: &Parts, refusal| own_words(refusal), ..RouteRules::requiring(Permission::Approve) };
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .merge(with("/token", RouteRules::default()))
        .merge(with("/execute", RouteRules::requiring(Permission::Execute)))
        .merge(with("/hidden", hidden))
        .merge(with("/own", own))
        .merge(with("/v1/large", RouteRules::requiring(Permission::Execute).with_large_bodies()))
        .merge(
            request_gate
                .guard(Router::new().route("/finer", any(finer)).route("/stream", get(stream)), RouteRules::default()),
        )
}

fn own_words(refusal: &Refusal) -> Response {
    (refusal.status(), format!("{{\"error\":\"{}\"}}", refusal.status().as_u16())).into_response()
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with(Transport::Plain).await
    }

    pub(crate) async fn with(transport: Transport) -> Self {
        let (gate, store) = gate(transport).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let request_gate = RequestGate::new(listener, gate).unwrap();
        let handled = Arc::new(AtomicUsize::new(0));
        let (routes, stop) = (routes(&request_gate, &handled), CancellationToken::new());
        tokio::spawn(request_gate.serve(routes, stop.clone()));
        Self { address, store, handled, _stop: stop.drop_guard() }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request on a new connection, and returns the status and the whole response.
    pub(crate) async fn request(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut connection = self.connect().await;
        let head = head("POST", path, headers, body.len());
        // The server may respond, and close, before it has read everything.
        drop(connection.write_all(head.as_bytes()).await);
        drop(connection.write_all(body).await);
        let mut response = Vec::new();
        drop(connection.read_to_end(&mut response).await);
        let response = String::from_utf8(response).unwrap();
        let status = response.split(' ').nth(1).unwrap_or_else(|| panic!("no response to {path} {headers:?}"));
        (status.parse().unwrap(), response)
    }

    pub(crate) async fn status(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        self.request(path, headers, body).await.0
    }

    /// Creates a token in the store, and returns its secret.
    pub(crate) async fn create_token(&self, id: &str, scopes: &str, expires_at: Option<i64>) -> String {
        let generated = GeneratedSecret::new().unwrap();
        let token = NewToken {
            token_id: id.to_owned(),
            name: "ada".to_owned(),
            hash: generated.hash,
            scopes: scopes.to_owned(),
            created_at: 0,
            expires_at,
        };
        self.store.create_token(&token).await.unwrap();
        generated.secret
    }
}

pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    )
}
