//! OAuth through `rmcp`: discovery of the issuer, client registration, exchange of codes for tokens, and renewal of
//! tokens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use contract::json::measure;
use contract::limits::MAX_LOGIN_ANSWER_VALUES;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig, OAuthHttpClient,
    OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest, OAuthTokenResponse, StoredCredentials,
};
use serde_json::{Value, json};
use url::Url;

use crate::client::http::{AddressScope, ClientBuildError, guarded};
use crate::client::oauth::{Challenge, Grant, now_secs};
use crate::client::spec::{Login, MAX_SHOWN_CHARS, shown};

/// The maximum size of an issuer's response.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The client name that the issuer shows to people.
const NAME: &str = "Cellmate";

/// Why a token was not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewError {
    /// The token cannot be renewed: there is no refresh token, it was rejected, or the issuer changed.
    LoginNeeded,
    /// The renewal failed; a later attempt may succeed.
    Failed(String),
}

/// Why a login failed, for the person who tried it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    #[error("the server does not publish how to log in; check its documentation, it may require a header")]
    NoIssuer,
    #[error(
        "its issuer does not support client registration; register a client there and set its id as `oauth.clientId` in the server's entry"
    )]
    NoRegistration,
    #[error("its issuer does not support PKCE with S256, which is required")]
    NoPkce,
    #[error("the response came from `{0}` instead of the expected issuer; find out why before you try again")]
    WrongIssuer(String),
    #[error("{0}")]
    Other(String),
}

/// The input of a login.
#[derive(Debug)]
pub(crate) struct LoginRequest<'a> {
    pub(crate) url: &'a Url,
    pub(crate) login: &'a Login,
    /// The redirect URL of the browser.
    pub(crate) redirect: &'a str,
    /// The server's last challenge.
    pub(crate) challenge: Option<Challenge>,
    /// The scopes of the current login.
    pub(crate) current_scopes: Vec<String>,
}

/// A login in progress.
pub(crate) struct PendingLogin {
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    client: OAuthClientConfig,
    authorization_url: Url,
    /// The URL of the server's resource metadata, if its challenge named one.
    resource_metadata_url: Option<String>,
}

impl fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingLogin")
    }
}

impl PendingLogin {
    /// Finds the issuer, registers a client if necessary, and builds the URL to open.
    pub(crate) async fn start(request: LoginRequest<'_>) -> Result<Self, LoginFailure> {
        let LoginRequest { url, login, redirect, challenge, current_scopes } = request;
        let (mut manager, store) = manager(url).await.map_err(login_failure)?;
        let header = challenge.as_ref().map(Challenge::as_str);
        let found = manager.resolve_metadata_from_challenge(header).await.map_err(login_failure)?;
        if !found.source.is_discovered() {
            return Err(LoginFailure::NoIssuer);
        }
        let has = |key: &str| found.metadata.additional_fields.get(key).and_then(Value::as_bool) == Some(true);
        let reads_metadata = has("client_id_metadata_document_supported");
        let registers = found.metadata.registration_endpoint.is_some();
        manager.set_metadata(found.metadata);
        let mut scopes = login.scopes.clone();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        if let Some(challenge) = challenge.as_ref().filter(|challenge| challenge.wants_more()) {
            // Request the missing scopes in addition to the current ones.
            for scope in current_scopes.into_iter().chain(challenge.scopes()) {
                if !scopes.contains(&scope) {
                    scopes.push(scope);
                }
            }
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let published = login.client_metadata_url.as_ref().filter(|_| reads_metadata);
        let client = match login.client_id.as_ref().or(published) {
            Some(id) => {
                let mut client = OAuthClientConfig::new(id, redirect);
                client.client_secret = login.client_secret.clone().filter(|_| login.client_id.is_some());
                client
            }
            None if registers => manager.register_client(NAME, redirect, &scopes).await.map_err(login_failure)?,
            None => return Err(LoginFailure::NoRegistration),
        };
        manager.configure_client(client.clone()).map_err(login_failure)?;
        let authorization_url = manager.get_authorization_url(&scopes).await.map_err(login_failure)?;
        let authorization_url =
            Url::parse(&authorization_url).map_err(|error| LoginFailure::Other(error.to_string()))?;
        if !AddressScope::new(url).allows_url(&authorization_url) {
            return Err(LoginFailure::Other(
                "its issuer's login page is at an address that the server may not refer to".to_owned(),
            ));
        }
        let resource_metadata_url =
            challenge.and_then(|challenge| url.join(&challenge.metadata()?).ok()).map(String::from);
        Ok(Self { manager, store, client, authorization_url, resource_metadata_url })
    }

    /// Returns the URL that a person must open.
    pub(crate) fn authorization_url(&self) -> &Url {
        &self.authorization_url
    }

    /// Returns the `state` parameter of the login URL; the redirect must repeat it.
    pub(crate) fn state(&self) -> String {
        let state = self.authorization_url.query_pairs().find(|(key, _)| key == "state");
        state.map(|(_, value)| value.into_owned()).unwrap_or_default()
    }

    /// Exchanges the code from the browser's redirect for tokens.
    pub(crate) async fn redeem(&self, code: &str, state: &str, issuer: Option<&str>) -> Result<Grant, LoginFailure> {
        self.manager.exchange_code_for_token_with_issuer(code, state, issuer).await.map_err(login_failure)?;
        let stored = self.store.load().await.map_err(login_failure)?;
        let stored = stored.ok_or_else(|| LoginFailure::Other("the issuer returned no token".to_owned()))?;
        let grant = grant(&stored, self.client.client_secret.clone(), None)
            .ok_or_else(|| LoginFailure::Other("the issuer returned no token".to_owned()))?;
        Ok(Grant { metadata: self.resource_metadata_url.clone(), ..grant })
    }
}

/// Renews a token. The issuer is discovered again, because a token of one issuer must not be sent to another.
pub(crate) async fn renew(url: &Url, old: &Grant) -> Result<Grant, RenewError> {
    if old.refresh_token.is_none() {
        return Err(RenewError::LoginNeeded);
    }
    let failed = |error: AuthError| match error {
        AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired => RenewError::LoginNeeded,
        error => RenewError::Failed(shown(&error.to_string(), MAX_SHOWN_CHARS)),
    };
    let (mut manager, store) = manager(url).await.map_err(failed)?;
    let challenge = old.metadata.as_ref().map(|url| format!("Bearer resource_metadata=\"{url}\""));
    let found = manager.resolve_metadata_from_challenge(challenge.as_deref()).await.map_err(failed)?;
    if found.metadata.issuer != old.issuer {
        return Err(RenewError::LoginNeeded);
    }
    manager.set_metadata(found.metadata);
    let mut client = OAuthClientConfig::new(&old.client_id, url.as_str());
    client.client_secret.clone_from(&old.client_secret);
    manager.configure_client(client).map_err(failed)?;
    let token = json!({"access_token": old.access_token, "token_type": "bearer", "refresh_token": old.refresh_token});
    let token: Option<OAuthTokenResponse> = serde_json::from_value(token).ok();
    let stored = StoredCredentials::new(old.client_id.clone(), token, old.scopes.clone(), None);
    store.save(stored.with_issuer(old.issuer.clone())).await.map_err(failed)?;
    manager.refresh_token().await.map_err(failed)?;
    let stored = store.load().await.map_err(failed)?;
    stored
        .and_then(|stored| grant(&stored, old.client_secret.clone(), old.refresh_token.clone()))
        .map(|grant| Grant { metadata: old.metadata.clone(), ..grant })
        .ok_or_else(|| RenewError::Failed("the issuer returned no token".to_owned()))
}

async fn manager(url: &Url) -> Result<(AuthorizationManager, InMemoryCredentialStore), AuthError> {
    let reach = AddressScope::new(url);
    let client = guarded(&reach).map_err(|error: ClientBuildError| AuthError::InternalError(error.to_string()))?;
    let client = Arc::new(BoundedClient { client, reach });
    let mut manager = AuthorizationManager::new_with_oauth_http_client(url.clone(), client).await?;
    let store = InMemoryCredentialStore::new();
    manager.set_credential_store(store.clone());
    Ok((manager, store))
}

/// Converts what `rmcp` has stored, and registers its secrets for redaction. An issuer that returns no refresh token
/// leaves the previous one valid.
fn grant(
    stored: &StoredCredentials,
    client_secret: Option<String>,
    previous_refresh_token: Option<String>,
) -> Option<Grant> {
    let token = serde_json::to_value(stored.token_response.as_ref()?).ok()?;
    let text = |key: &str| token.get(key).and_then(Value::as_str).map(str::to_owned);
    let lasts = token.get("expires_in").and_then(Value::as_u64);
    let grant = Grant {
        issuer: stored.issuer.clone(),
        client_id: stored.client_id.clone(),
        client_secret,
        access_token: text("access_token")?,
        refresh_token: text("refresh_token").or(previous_refresh_token),
        ends_at: lasts.map(|lasts| now_secs().saturating_add(lasts)),
        scopes: stored.granted_scopes.clone(),
        metadata: None,
    };
    grant.register_secrets();
    Some(grant)
}

fn login_failure(error: AuthError) -> LoginFailure {
    match error {
        AuthError::PkceUnsupported => LoginFailure::NoPkce,
        AuthError::AuthorizationServerMismatch { received_issuer, .. } => {
            LoginFailure::WrongIssuer(shown(&received_issuer, MAX_SHOWN_CHARS))
        }
        AuthError::AuthorizationServerMissingIssuer { .. } => LoginFailure::WrongIssuer("(no issuer)".to_owned()),
        error => LoginFailure::Other(shown(&error.to_string(), MAX_SHOWN_CHARS)),
    }
}

/// The HTTP client that `rmcp` uses for OAuth. It limits time and size, and contacts only addresses that
/// [`AddressScope`] permits for this MCP server.
struct BoundedClient {
    client: reqwest::Client,
    reach: AddressScope,
}

impl OAuthHttpClient for BoundedClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let stops = matches!(request.redirect_policy, OAuthHttpRedirectPolicy::Stop);
            let limit = request.timeout;
            let mut request = reqwest::Request::try_from(request.request)?;
            if !self.reach.allows_url(request.url()) {
                return Err(format!("`{}` is not an address that this server may refer to", request.url()).into());
            }
            *request.timeout_mut() = limit.or(Some(Duration::from_secs(30)));
            let asked = request.url().clone();
            let mut response = self.client.execute(request).await?;
            if stops && *response.url() != asked {
                return Err("the issuer redirected a request that must not be redirected".into());
            }
            let mut answer = ::http::Response::builder().status(response.status());
            for (name, value) in response.headers() {
                answer = answer.header(name, value);
            }
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                if body.len() + chunk.len() > MAX_BODY_BYTES {
                    return Err(format!("the response has more than {MAX_BODY_BYTES} bytes").into());
                }
                body.extend_from_slice(&chunk);
            }
            if measure(&body).values > MAX_LOGIN_ANSWER_VALUES {
                return Err(format!("the response has more than {MAX_LOGIN_ANSWER_VALUES} JSON values").into());
            }
            Ok(answer.body(body)?)
        })
    }
}
