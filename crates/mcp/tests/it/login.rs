//! Servers that require a login.

use std::sync::Arc;

use mcp::{
    Callback, ConnectError, ConnectFailure, DisconnectReason, Login, LoginError, LoginFailure, Server, ServerSpec,
    Transport,
};
use serde_json::{Value, json};

use crate::authority::{Authority, browse, get};
use crate::fake::{AtAddress, Connected, Folder, limits, tool};

/// A server, its issuer, and a folder for tokens.
struct Guarded {
    spec: ServerSpec,
    authority: Authority,
    folder: Folder,
    _server: AtAddress,
}

impl Guarded {
    fn new() -> Self {
        Self::with(json!({}))
    }

    /// Starts a server with further `http` settings.
    fn with(more: Value) -> Self {
        let folder = Folder::new();
        let authority = Authority::start(folder.0.join("accepted"));
        let mut how = json!({"accepts": authority.accepted, "issuer": authority.url});
        how.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let server = AtAddress::start(&folder, json!({"http": how, "tools": [tool("t", json!([{"result": {}}]))]}));
        let mut spec = server.spec(limits());
        let Transport::Http { login, .. } = &mut spec.transport else { panic!("{spec:?}") };
        *login = Some(Login::new(folder.0.join("tokens")));
        Self { spec, authority, folder, _server: server }
    }

    async fn log_in(&self) -> Result<mcp::LoginGrant, LoginError> {
        mcp::login(&self.spec, |page| {
            let page = page.to_owned();
            std::thread::spawn(move || browse(&page));
        })
        .await
    }

    async fn connect(&self) -> Result<Arc<Server>, ConnectError> {
        Server::connect(self.spec.clone()).await
    }

    async fn connected(&self) -> Connected {
        Connected::over(self.connect().await.unwrap(), Folder::new())
    }

    fn renewals(&self) -> usize {
        let mind = self.authority.mind.lock().unwrap();
        mind.asked.iter().filter(|form| form["grant_type"] == "refresh_token").count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_requires_a_login_works_after_it() {
    let guarded = Guarded::new();
    let error = guarded.connect().await.unwrap_err();
    assert!(matches!(&error.why, ConnectFailure::LoginNeeded { server } if server == "s"), "{error:?}");
    assert_eq!(error.to_string(), "connect to MCP server `s`: it requires a login; run `cellmate servers login s`");
    let logged_in = guarded.log_in().await.unwrap();
    assert_eq!(logged_in.issuer.as_deref(), Some(guarded.authority.url.as_str()));
    assert_eq!(logged_in.scopes, ["read"]);
    let server = guarded.connected().await;
    assert_eq!(server.returned("t", json!({})).await.to_cell_value(), json!({}));
    let asked = guarded.authority.mind.lock().unwrap().asked[0].clone();
    let Transport::Http { url, .. } = &guarded.spec.transport else { panic!() };
    assert_eq!(asked["resource"], *url, "the token is for this server alone");
    assert!(mcp::logout(&guarded.spec).unwrap());
    assert!(matches!(guarded.connect().await.unwrap_err().why, ConnectFailure::LoginNeeded { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_uses_the_challenge_of_the_rejected_request() {
    // Only the challenge of a POST names the metadata and the scopes.
    let guarded = Guarded::with(json!({"metadata": "/elsewhere/meta", "challenge": ", scope=\"narrow\""}));
    guarded.authority.mind.lock().unwrap().lasts = 30;
    assert_eq!(guarded.log_in().await.unwrap().scopes, ["narrow"]);
    guarded.authority.mind.lock().unwrap().lasts = 3600;
    let server = guarded.connected().await;
    assert_eq!(server.returned("t", json!({})).await.to_cell_value(), json!({}));
    assert_eq!(guarded.renewals(), 1, "a renewal finds the same issuer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_uses_the_configured_client_scopes_and_callback() {
    let mut guarded = Guarded::new();
    guarded.authority.mind.lock().unwrap().client = Some("by hand".to_owned());
    let Transport::Http { login: Some(login), .. } = &mut guarded.spec.transport else { panic!() };
    login.client_id = Some("by hand".to_owned());
    login.scopes = vec!["a".to_owned(), "b".to_owned()];
    login.callback = Callback::parse("http://localhost/back").unwrap();
    assert_eq!(guarded.log_in().await.unwrap().scopes, ["a", "b"]);
    let (scopes, redirect) = {
        let mind = guarded.authority.mind.lock().unwrap();
        (mind.scopes.clone(), mind.redirect.clone())
    };
    assert_eq!(scopes, "a b");
    assert!(redirect.starts_with("http://localhost:") && redirect.ends_with("/back"), "{redirect}");
    assert_eq!(guarded.connected().await.returned("t", json!({})).await.to_cell_value(), json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_with_too_few_scopes_names_the_missing_ones_and_the_next_login_adds_them() {
    let guarded = Guarded::with(json!({"wants": {"tools/call": "write"}}));
    guarded.log_in().await.unwrap();
    let server = guarded.connected().await;
    let failed = server.failed("t").await;
    let expected = "`t` of MCP server `s` failed: it requires a login that allows `write`; a person must run \
                    `cellmate servers login s` (code 403)";
    assert_eq!(failed, expected);
    assert_eq!(guarded.log_in().await.unwrap().scopes, ["write", "read"], "nothing is lost");
    assert_eq!(server.returned("t", json!({})).await.to_cell_value(), json!({}), "the connection uses the new token");
    assert_eq!(guarded.renewals(), 0);
    guarded.log_in().await.unwrap();
    assert_eq!(guarded.authority.mind.lock().unwrap().scopes, "read", "a satisfied challenge is not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_token_is_renewed_once_before_it_expires() {
    let guarded = Guarded::new();
    guarded.authority.mind.lock().unwrap().lasts = 30;
    guarded.log_in().await.unwrap();
    guarded.authority.mind.lock().unwrap().lasts = 3600;
    let server = guarded.connected().await;
    let calls = (0..8).map(|_| server.returned("t", json!({})));
    futures_util::future::join_all(calls).await;
    assert_eq!(guarded.renewals(), 1);
    let again = guarded.connected().await;
    again.returned("t", json!({})).await;
    assert_eq!(guarded.renewals(), 1, "the newer one is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_token_is_renewed_once_and_then_requires_a_login() {
    let guarded = Guarded::new();
    guarded.log_in().await.unwrap();
    let server = guarded.connected().await;
    guarded.authority.revoke();
    let calls = (0..8).map(|_| server.returned("t", json!({})));
    futures_util::future::join_all(calls).await;
    assert_eq!(guarded.renewals(), 1);
    guarded.authority.revoke();
    guarded.authority.mind.lock().unwrap().refuses = true;
    let failed = server.failed("t").await;
    let expected = "`t` of MCP server `s` failed: it requires a login; a person must run `cellmate servers login s`";
    assert_eq!(failed, expected);
    assert_eq!(server.server.closed().await, DisconnectReason::LoginNeeded);
    assert!(matches!(guarded.connect().await.unwrap_err().why, ConnectFailure::LoginNeeded { .. }));
    let renewals = guarded.renewals();
    guarded.connect().await.unwrap_err();
    assert_eq!(guarded.renewals(), renewals, "a refused token is not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_from_the_wrong_issuer_is_rejected() {
    let guarded = Guarded::new();
    guarded.authority.mind.lock().unwrap().claims = Some("https://evil.example".to_owned());
    let error = guarded.log_in().await.unwrap_err();
    let LoginError::Failed { why: LoginFailure::WrongIssuer(who), .. } = &error else { panic!("{error:?}") };
    assert_eq!(who, "https://evil.example");
    assert!(guarded.authority.mind.lock().unwrap().asked.is_empty(), "no code was redeemed");
    guarded.authority.mind.lock().unwrap().claims = None;
    let logged_in = mcp::login(&guarded.spec, |page| {
        let page = page.to_owned();
        std::thread::spawn(move || {
            let url = url::Url::parse(&page).unwrap();
            let back = url.query_pairs().find(|(key, _)| key == "redirect_uri").unwrap().1.into_owned();
            let sent_away = get(&format!("{back}?code=stolen&state=guessed"));
            assert!(sent_away.starts_with("HTTP/1.1 400"), "{sent_away}");
            assert!(get(&back.replace("/callback", "/favicon.ico")).starts_with("HTTP/1.1 400"));
            assert!(browse(&page).contains("You are logged in."));
        });
    })
    .await;
    assert!(logged_in.is_ok(), "{logged_in:?}");
    guarded.authority.mind.lock().unwrap().denies = true;
    let denied = guarded.log_in().await.unwrap_err();
    assert!(matches!(&denied, LoginError::Denied(why) if why == "access_denied"), "{denied:?}");
    drop(guarded.folder);
}

#[tokio::test]
async fn a_server_without_a_login_is_reported() {
    let spec = crate::fake::spec("x", &[], limits());
    assert!(matches!(mcp::login(&spec, |_| {}).await.unwrap_err(), LoginError::NotSupported(_)));
    let folder = Folder::new();
    let server = AtAddress::start(&folder, json!({"tools": []}));
    let mut spec = server.spec(limits());
    let Transport::Http { login, .. } = &mut spec.transport else { panic!() };
    *login = Some(Login::new(folder.0.join("tokens")));
    let error = mcp::login(&spec, |_| {}).await.unwrap_err();
    assert!(matches!(error, LoginError::Failed { why: LoginFailure::NoIssuer, .. }), "{error:?}");
}
