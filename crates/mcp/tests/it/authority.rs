//! A minimal OAuth issuer in a thread of the test.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::parse;

use crate::request::Request;

/// The requests that the issuer has received, and how it responds.
#[derive(Default)]
pub(crate) struct IssuerState {
    /// The forms that the token endpoint has received.
    pub asked: Vec<BTreeMap<String, String>>,
    /// The lifetime of tokens in seconds.
    pub lasts: u64,
    /// Whether refresh tokens are rejected.
    pub refuses: bool,
    /// A false issuer that the redirect names.
    pub claims: Option<String>,
    /// Whether the login page denies the login.
    pub denies: bool,
    /// The scopes and the redirect URL of the last login.
    pub scopes: String,
    pub redirect: String,
    /// The id of a client that was registered by hand; dynamic registration is then disabled.
    pub client: Option<String>,
    given: u32,
    challenges: BTreeMap<String, String>,
}

pub(crate) struct Authority {
    pub url: String,
    /// The file of valid tokens that the server reads.
    pub accepted: PathBuf,
    pub mind: Arc<Mutex<IssuerState>>,
}

impl Authority {
    pub(crate) fn start(accepted: PathBuf) -> Self {
        std::fs::write(&accepted, "").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let mind = Arc::new(Mutex::new(IssuerState { lasts: 3600, ..IssuerState::default() }));
        let authority = Self { url: url.clone(), accepted: accepted.clone(), mind: Arc::clone(&mind) };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = Request::read(&stream) else { continue };
                let answer = answer(&url, &accepted, &request, &mut mind.lock().unwrap());
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        authority
    }

    /// Revokes all tokens issued so far.
    pub(crate) fn revoke(&self) {
        std::fs::write(&self.accepted, "").unwrap();
    }
}

fn answer(url: &str, accepted: &PathBuf, request: &Request, mind: &mut IssuerState) -> String {
    let target = Url::parse(url).unwrap().join(&request.target).unwrap();
    assert!(!request.headers.contains_key("authorization"), "no access token is sent to the issuer");
    if (request.method == "POST") != matches!(target.path(), "/register" | "/token") {
        return json(405, &json!({}));
    }
    match target.path() {
        "/.well-known/oauth-authorization-server" => json(
            200,
            &json!({
                "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
                "registration_endpoint": format!("{url}/register"), "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
            }),
        ),
        "/register" if mind.client.is_none() => {
            let asked: Value = serde_json::from_str(&request.body).unwrap();
            json(201, &json!({"client_id": "registered", "redirect_uris": asked["redirect_uris"]}))
        }
        "/authorize" => authorize(url, &target, mind),
        "/token" => token(accepted, request, mind),
        _ => json(404, &json!({})),
    }
}

fn authorize(url: &str, target: &Url, mind: &mut IssuerState) -> String {
    let query: BTreeMap<String, String> = target.query_pairs().into_owned().collect();
    let client = mind.client.as_deref().unwrap_or("registered");
    assert_eq!((query["code_challenge_method"].as_str(), query["client_id"].as_str()), ("S256", client));
    mind.redirect = query["redirect_uri"].clone();
    mind.scopes = query.get("scope").cloned().unwrap_or_default();
    let code = format!("code{}", mind.challenges.len());
    mind.challenges.insert(code.clone(), query["code_challenge"].clone());
    let mut back = Url::parse(&query["redirect_uri"]).unwrap();
    let issuer = mind.claims.as_deref().unwrap_or(url);
    let brings = if mind.denies { ("error", "access_denied") } else { ("code", code.as_str()) };
    back.query_pairs_mut()
        .append_pair(brings.0, brings.1)
        .append_pair("state", &query["state"])
        .append_pair("iss", issuer);
    format!("HTTP/1.1 302 Found\r\nlocation: {back}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn token(accepted: &PathBuf, request: &Request, mind: &mut IssuerState) -> String {
    let form: BTreeMap<String, String> = parse(request.body.as_bytes()).into_owned().collect();
    mind.asked.push(form.clone());
    let good = match form["grant_type"].as_str() {
        "authorization_code" => mind.challenges.get(&form["code"]) == Some(&challenge(&form["code_verifier"])),
        "refresh_token" => !mind.refuses && form["refresh_token"] == format!("refresh{}", mind.given),
        _ => false,
    };
    if !good {
        return json(400, &json!({"error": "invalid_grant"}));
    }
    mind.given += 1;
    let access = format!("access{}", mind.given);
    std::fs::write(accepted, format!("{access} {}\n", mind.scopes)).unwrap();
    let refresh = format!("refresh{}", mind.given);
    json(
        200,
        &json!({"access_token": access, "token_type": "Bearer", "expires_in": mind.lasts, "refresh_token": refresh}),
    )
}

fn challenge(verifier: &str) -> String {
    use base64::Engine;
    use sha2::Digest;
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(verifier.as_bytes()))
}

fn json(status: u16, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// A browser that follows one redirect and returns the final response.
pub(crate) fn browse(page: &str) -> String {
    let first = get(page);
    let location = first.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().trim().to_owned();
    get(&location)
}

pub(crate) fn get(address: &str) -> String {
    let url = Url::parse(address).unwrap();
    let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
    let target = &url[url::Position::BeforePath..];
    stream.write_all(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
