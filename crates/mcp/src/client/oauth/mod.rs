//! The OAuth login to a server: a person's browser visits the issuer and is redirected to a loopback port.

mod callback;
mod challenge;
mod token_file;
mod tokens;

use std::time::Duration;

use telemetry::LogIgnored;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::client::Server;
use crate::client::spec::{Login, MAX_SHOWN_CHARS, ServerSpec, Transport, shown};
use crate::client::wire::{LoginFailure, LoginRequest, PendingLogin};

pub use callback::{BadCallback, Callback};
pub(crate) use challenge::Challenge;
use token_file::TokenFile;
pub(crate) use token_file::{Grant, now_secs};
pub(crate) use tokens::{MissingToken, Tokens};

/// How long a person may take to log in.
const WAIT: Duration = Duration::from_secs(600);

/// The maximum size of the browser's request, and how long it may take to arrive.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const REQUEST: Duration = Duration::from_secs(5);

/// A successful login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginGrant {
    pub issuer: Option<String>,
    /// The scopes that the issuer granted.
    pub scopes: Vec<String>,
}

/// Why a login failed, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("`{0}` has no login: only servers with a URL and without a configured authorization header have one")]
    NotSupported(String),
    #[error("log in to MCP server `{server}`: {why}")]
    Failed { server: String, why: LoginFailure },
    #[error("the issuer denied the login: {0}; log in again if that was a mistake")]
    Denied(String),
    #[error("login timed out after {} minutes; log in again", WAIT.as_secs() / 60)]
    TimedOut,
    #[error("cannot listen for the browser's callback; check that the port is free")]
    Listen(#[source] std::io::Error),
    #[error("cannot store the login; check that its folder is writable")]
    Store(#[source] std::io::Error),
}

/// Logs in and stores the tokens. `show` receives the URL that a person must open.
pub async fn login(spec: &ServerSpec, show: impl FnOnce(&str)) -> Result<LoginGrant, LoginError> {
    let (url, login) = address(spec)?;
    let listener = login.callback.listen().await.map_err(LoginError::Listen)?;
    let port = listener.local_addr().map_err(LoginError::Listen)?.port();
    let failed = |why| LoginError::Failed { server: spec.name.clone(), why };
    let redirect = login.callback.url(port);
    let file = TokenFile::new(login.tokens.clone(), &spec.name, url.as_str());
    // The server describes its login when it rejects a request. A normal connection attempt triggers that, and stores
    // the challenge.
    Server::connect(spec.clone()).await.log_expected("connect without a login");
    let current_scopes = file.read().map(|grant| grant.scopes).unwrap_or_default();
    let request = LoginRequest { url: &url, login, redirect: &redirect, challenge: file.challenge(), current_scopes };
    let pending = PendingLogin::start(request).await.map_err(failed)?;
    show(pending.authorization_url().as_str());
    let redirected = wait_for(&listener, login.callback.path(), &pending, &spec.name);
    let grant = tokio::time::timeout(WAIT, redirected).await.unwrap_or(Err(LoginError::TimedOut))?;
    file.write(&grant).map_err(LoginError::Store)?;
    file.forget_challenge();
    tracing::info!(server = %spec.name, issuer = grant.issuer, "logged in to an MCP server");
    Ok(LoginGrant { issuer: grant.issuer, scopes: grant.scopes })
}

/// Deletes the login and returns whether there was one. At the issuer the tokens stay valid until they expire.
pub fn logout(spec: &ServerSpec) -> Result<bool, LoginError> {
    let (url, login) = address(spec)?;
    let file = TokenFile::new(login.tokens.clone(), &spec.name, url.as_str());
    file.forget_challenge();
    Ok(file.remove())
}

/// The state of a login, determined without any network request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStatus {
    /// The server has no login: it is a local process, or has a configured authorization header.
    NotSupported,
    LoggedOut {
        /// The server has rejected a request because the login is missing.
        wanted: bool,
    },
    LoggedIn {
        issuer: Option<String>,
        scopes: Vec<String>,
        /// The login has expired, and only a person can renew it.
        over: bool,
        /// Further scopes that the server has required.
        wanted: Vec<String>,
    },
}

/// Returns the state of a server's login.
pub fn login_status(spec: &ServerSpec) -> LoginStatus {
    let Ok((url, login)) = address(spec) else { return LoginStatus::NotSupported };
    let file = TokenFile::new(login.tokens.clone(), &spec.name, url.as_str());
    let challenge = file.challenge();
    let Some(grant) = file.read() else { return LoginStatus::LoggedOut { wanted: challenge.is_some() } };
    let over = grant.refresh_token.is_none() && grant.ends_by(now_secs());
    let mut wanted = challenge.filter(Challenge::wants_more).map(|challenge| challenge.scopes()).unwrap_or_default();
    wanted.retain(|scope| !grant.scopes.contains(scope));
    LoginStatus::LoggedIn { issuer: grant.issuer, scopes: grant.scopes, over, wanted }
}

fn address(spec: &ServerSpec) -> Result<(Url, &Login), LoginError> {
    match &spec.transport {
        Transport::Http { url, login: Some(login), headers }
            if !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) =>
        {
            let url = Url::parse(url).map_err(|_| LoginError::NotSupported(spec.name.clone()))?;
            Ok((url, login))
        }
        Transport::Http { .. } | Transport::Stdio { .. } => Err(LoginError::NotSupported(spec.name.clone())),
    }
}

/// Waits for the browser's redirect and redeems its code. Other requests are rejected, because any web page or local
/// program can connect to the port.
async fn wait_for(
    listener: &TcpListener,
    path: &str,
    pending: &PendingLogin,
    server: &str,
) -> Result<Grant, LoginError> {
    let state = pending.state();
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let read = tokio::time::timeout(REQUEST, request(&mut stream)).await;
        let callback = read.ok().flatten().and_then(|target| OAuthCallback::read(&target, path, &state));
        let Some(callback) = callback else {
            answer(&mut stream, "400 Bad Request", "This is not the expected login.").await;
            continue;
        };
        let redeemed = match callback {
            OAuthCallback::Code { code, issuer } => pending
                .redeem(&code, &state, issuer.as_deref())
                .await
                .map_err(|why| LoginError::Failed { server: server.to_owned(), why }),
            OAuthCallback::Denied(why) => Err(LoginError::Denied(why)),
        };
        let (status, words) = match &redeemed {
            Ok(_) => ("200 OK", "You are logged in. You can close this window."),
            Err(_) => ("400 Bad Request", "The login failed. The program that started it shows the reason."),
        };
        answer(&mut stream, status, words).await;
        return redeemed;
    }
}

/// The parameters of the browser's redirect.
#[derive(Debug, PartialEq, Eq)]
enum OAuthCallback {
    Code { code: String, issuer: Option<String> },
    Denied(String),
}

impl OAuthCallback {
    /// Parses a request target. Returns `None` for another path or another state.
    fn read(target: &str, path: &str, state: &str) -> Option<Self> {
        let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
        let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        if url.path() != path || state.is_empty() || value("state")? != state {
            return None;
        }
        if let Some(error) = value("error") {
            let why = value("error_description").unwrap_or(error);
            return Some(Self::Denied(shown(&why, MAX_SHOWN_CHARS)));
        }
        Some(Self::Code { code: value("code")?, issuer: value("iss") })
    }
}

/// Reads a GET request and returns its target.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(chunk.get(..read)?);
        if head.len() > MAX_REQUEST_BYTES {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next()).flatten().map(str::to_owned)
}

async fn answer(stream: &mut TcpStream, status: &str, words: &str) {
    let body = format!("<!doctype html><meta charset=utf-8><title>Cellmate</title><p>{words}</p>");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.log_expected("answer the browser");
    stream.shutdown().await.log_expected("answer the browser");
}

#[cfg(test)]
mod tests {
    use super::OAuthCallback;

    #[test]
    fn only_a_redirect_with_the_expected_path_and_state_is_accepted() {
        let code =
            |issuer: Option<&str>| OAuthCallback::Code { code: "c".to_owned(), issuer: issuer.map(str::to_owned) };
        let cases = [
            ("/callback?code=c&state=s", Some(code(None))),
            ("/callback?state=s&code=c&iss=https%3A%2F%2Fi.example", Some(code(Some("https://i.example")))),
            ("/callback?error=access_denied&state=s", Some(OAuthCallback::Denied("access_denied".to_owned()))),
            ("/callback?error=x&error_description=no%1b&state=s", Some(OAuthCallback::Denied("no ".to_owned()))),
            ("/callback?error=access_denied", None),
            ("/callback?code=c&state=t", None),
            ("/callback?code=c", None),
            ("/callback?state=s", None),
            ("/other?code=c&state=s", None),
            ("http://evil.example/callback?code=c&state=t", None),
        ];
        for (target, expected) in cases {
            assert_eq!(OAuthCallback::read(target, "/callback", "s"), expected, "{target}");
        }
        assert_eq!(OAuthCallback::read("/callback?code=c&state=", "/callback", ""), None);
    }
}
