//! Logging in to a server: a person's browser goes to the issuer and comes back to a port of this machine.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::client::Server;
use crate::client::http::Challenge;
use crate::client::spec::{Login, MAX_SHOWN_CHARS, ServerSpec, Transport, shown};
use crate::client::tokens::{Grant, TokenFile, now_secs};
use crate::client::wire::{Asked, Authority, LoginRefused};

/// How long a person may take.
const WAIT: Duration = Duration::from_secs(600);

/// What a browser sends us, and how long it takes for it.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const REQUEST: Duration = Duration::from_secs(5);

/// Somebody has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    pub issuer: Option<String>,
    /// What the issuer lets us do.
    pub scopes: Vec<String>,
}

/// Why nobody has. Each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("`{0}` has no login: only servers with a URL and without a configured authorization header have one")]
    NotForIt(String),
    #[error("log in to MCP server `{server}`: {why}")]
    Refused { server: String, why: LoginRefused },
    #[error("the issuer denied the login: {0}; log in again if that was a mistake")]
    Denied(String),
    #[error("login timed out after {} minutes; log in again", WAIT.as_secs() / 60)]
    Nobody,
    #[error("cannot listen for the browser's callback; check that the port is free")]
    Listen(#[source] std::io::Error),
    #[error("cannot store the login; check that its folder is writable")]
    Keep(#[source] std::io::Error),
}

/// Logs in and keeps the tokens. `show` gets the address that a person is to open.
pub async fn login(spec: &ServerSpec, show: impl FnOnce(&str)) -> Result<LoggedIn, LoginError> {
    let (url, login) = address(spec)?;
    let listener = login.callback.listen().await.map_err(LoginError::Listen)?;
    let port = listener.local_addr().map_err(LoginError::Listen)?.port();
    let refused = |why| LoginError::Refused { server: spec.name.clone(), why };
    let redirect = login.callback.url(port);
    let file = TokenFile::new(login.tokens.clone(), &spec.name, url.as_str());
    // How to log in is said by the request that is refused; made as usual it is refused as usual, and that is kept.
    drop(Server::connect(spec.clone()).await);
    let had = file.read().map(|grant| grant.scopes).unwrap_or_default();
    let asked = Asked { url: &url, login, redirect: &redirect, refusal: file.refusal(), had };
    let authority = Authority::ask(asked).await.map_err(refused)?;
    show(authority.page().as_str());
    let coming = wait_for(&listener, login.callback.path(), &authority, &spec.name);
    let grant = tokio::time::timeout(WAIT, coming).await.unwrap_or(Err(LoginError::Nobody))?;
    file.write(&grant).map_err(LoginError::Keep)?;
    file.forget_refusal();
    Ok(LoggedIn { issuer: grant.issuer, scopes: grant.scopes })
}

/// Forgets the login; whether there was one. The issuer keeps the tokens until they end.
pub fn logout(spec: &ServerSpec) -> Result<bool, LoginError> {
    let (url, login) = address(spec)?;
    let file = TokenFile::new(login.tokens.clone(), &spec.name, url.as_str());
    file.forget_refusal();
    Ok(file.remove())
}

/// How a login stands, as far as can be said without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStatus {
    /// There is none to be had: a process of ours, or a header that says who we are.
    NotForIt,
    LoggedOut {
        /// The server has refused us for it.
        wanted: bool,
    },
    LoggedIn {
        issuer: Option<String>,
        scopes: Vec<String>,
        /// It is over, and nobody but a person can renew it.
        over: bool,
        /// What the server has refused us for beside what there is.
        wanted: Vec<String>,
    },
}

pub fn standing(spec: &ServerSpec) -> LoginStatus {
    let Ok((url, login)) = address(spec) else { return LoginStatus::NotForIt };
    let file = TokenFile::new(login.tokens.clone(), &spec.name, url.as_str());
    let refusal = file.refusal();
    let Some(grant) = file.read() else { return LoginStatus::LoggedOut { wanted: refusal.is_some() } };
    let over = grant.refresh_token.is_none() && grant.ends_by(now_secs());
    let mut wanted = refusal.filter(Challenge::wants_more).map(|refusal| refusal.scopes()).unwrap_or_default();
    wanted.retain(|scope| !grant.scopes.contains(scope));
    LoginStatus::LoggedIn { issuer: grant.issuer, scopes: grant.scopes, over, wanted }
}

fn address(spec: &ServerSpec) -> Result<(Url, &Login), LoginError> {
    match &spec.transport {
        Transport::Http { url, login: Some(login), headers }
            if !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) =>
        {
            let url = Url::parse(url).map_err(|_| LoginError::NotForIt(spec.name.clone()))?;
            Ok((url, login))
        }
        Transport::Http { .. } | Transport::Stdio { .. } => Err(LoginError::NotForIt(spec.name.clone())),
    }
}

/// Whatever else knocks at the port is sent away: any page and any program of this machine can.
async fn wait_for(
    listener: &TcpListener,
    path: &str,
    authority: &Authority,
    server: &str,
) -> Result<Grant, LoginError> {
    let state = authority.state();
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let read = tokio::time::timeout(REQUEST, request(&mut stream)).await;
        let came = read.ok().flatten().and_then(|target| OAuthCallback::read(&target, path, &state));
        let Some(came) = came else {
            answer(&mut stream, "400 Bad Request", "This is not the expected login.").await;
            continue;
        };
        let redeemed = match came {
            OAuthCallback::Code { code, issuer } => authority
                .redeem(&code, &state, issuer.as_deref())
                .await
                .map_err(|why| LoginError::Refused { server: server.to_owned(), why }),
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

/// What the browser brought.
#[derive(Debug, PartialEq, Eq)]
enum OAuthCallback {
    Code { code: String, issuer: Option<String> },
    Denied(String),
}

impl OAuthCallback {
    /// None where it is not for us: another path, another state.
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

/// The target of a GET request.
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
    // A browser that has gone away has what it needs.
    drop(stream.write_all(format!("{head}{body}").as_bytes()).await);
    drop(stream.shutdown().await);
}

#[cfg(test)]
mod tests {
    use super::OAuthCallback;

    #[test]
    fn only_the_login_that_was_asked_for_is_taken() {
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
