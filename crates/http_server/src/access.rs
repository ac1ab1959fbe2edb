//! Tokens, and the caller that each of them authenticates.

use std::fmt;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::caller::Caller;
use crate::permissions::Permissions;
use crate::principal::Principal;
use crate::refusal::Refusal;
use crate::stored_tokens::StoredTokens;

/// Shorter tokens could be guessed.
const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 512;

/// The header in which clients of the Messages wire send their token.
pub(crate) const API_KEY: &str = "x-api-key";

/// A token of the server's configuration, kept and compared as its hash only.
#[derive(Clone)]
pub struct Token {
    caller: Caller,
    hash: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("caller", &self.caller).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters and no spaces")]
pub struct BadToken;

impl Token {
    pub fn new(principal: Principal, secret: &str, permissions: Permissions) -> Result<Self, BadToken> {
        let fits = (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&secret.len());
        if !fits || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadToken);
        }
        Ok(Self { caller: Caller::permanent(principal, permissions), hash: hash(secret) })
    }
}

/// How clients are authenticated.
#[derive(Clone, Debug)]
pub enum Access {
    /// A client needs one of these tokens, or one of the store.
    Tokens { fixed: Vec<Token>, stored: Option<StoredTokens> },
    /// Every client that reaches the port acts for this principal, as an agent: it cannot approve its own calls.
    Open(Principal),
}

impl Access {
    /// Requires one of these tokens.
    pub fn tokens(fixed: Vec<Token>) -> Self {
        Self::Tokens { fixed, stored: None }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    pub(crate) fn stored(&self) -> Option<&StoredTokens> {
        match self {
            Self::Tokens { stored, .. } => stored.as_ref(),
            Self::Open(_) => None,
        }
    }

    /// Returns the caller of a request with these headers. It compares all configured tokens, so that the time taken
    /// does not depend on which one matches.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let (fixed, stored) = match self {
            Self::Open(principal) => return Ok(Caller::permanent(principal.clone(), Permissions::for_agents())),
            Self::Tokens { fixed, stored } => (fixed, stored),
        };
        let secret = credential(headers).ok_or(Refusal::Token)?;
        let given = hash(secret);
        let mut found = None;
        for token in fixed {
            if bool::from(token.hash.ct_eq(&given)) {
                found = Some(token.caller.clone());
            }
        }
        match (found, stored) {
            (Some(caller), _) => Ok(caller),
            (None, Some(stored)) if is_generated(secret) => stored.caller(given).await?.ok_or(Refusal::Token),
            (None, _) => Err(Refusal::Token),
        }
    }
}

/// Returns the token of a request, from `Authorization: Bearer` or `x-api-key`. There is none if they differ, or if one
/// of them is malformed.
fn credential(headers: &HeaderMap) -> Option<&str> {
    let bearers = headers.get_all(header::AUTHORIZATION).iter().map(|value| bearer(value.to_str().ok()?));
    let keys = headers.get_all(API_KEY).iter().map(|value| value.to_str().ok().map(str::trim));
    let mut found = None;
    for given in bearers.chain(keys) {
        let given = given.filter(|given| given.len() <= MAX_TOKEN_BYTES)?;
        if found.is_some_and(|found| found != given) {
            return None;
        }
        found = Some(given);
    }
    found
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// How secrets of tokens in the store begin, and how long they are: 256 random bits in base64url follow.
const PREFIX: &str = "cm_";
const GENERATED_BYTES: usize = 46;

/// Returns true if a secret has the form of a token in the store. No other secret is looked up there.
fn is_generated(secret: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    secret.len() == GENERATED_BYTES && secret.starts_with(PREFIX) && secret.bytes().all(plain)
}

/// A generated secret and its hash, for the store. The secret is shown once.
pub struct GeneratedSecret {
    pub secret: String,
    /// The SHA-256 of the secret, in hexadecimal.
    pub hash: String,
}

impl fmt::Debug for GeneratedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GeneratedSecret")
    }
}

impl GeneratedSecret {
    /// Generates a secret from the system's randomness.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        let secret = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let hash = hex::encode(hash(&secret));
        Ok(Self { secret, hash })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName};

    use super::{Access, BadToken, GeneratedSecret, Token, hash, is_generated};
    use crate::{Permission, Permissions, Principal, Refusal};

    const ADA: &str = "fedcba9876543210";

    fn access() -> Access {
        let tokens = vec![
            Token::new(Principal::local(), "0123456789abcdef", Permissions::all()).unwrap(),
            Token::new(Principal::named("ada").unwrap(), ADA, Permissions::for_agents()).unwrap(),
        ];
        assert!(!format!("{tokens:?}").contains("0123"));
        Access::tokens(tokens)
    }

    /// Returns the name of the principal that these headers authenticate.
    async fn name(access: &Access, headers: &[(&'static str, &str)]) -> Option<String> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        match access.authenticate(&headers).await {
            Ok(caller) => Some(caller.principal.name().to_owned()),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Token);
                None
            }
        }
    }

    #[tokio::test]
    async fn only_a_valid_token_authenticates_its_principal() {
        let access = access();
        let ada = Some("ada".to_owned());
        let bearer = |token: &str| format!("Bearer {token}");
        assert_eq!(name(&access, &[("authorization", &bearer(ADA))]).await, ada);
        assert_eq!(name(&access, &[("x-api-key", ADA)]).await, ada);
        assert_eq!(name(&access, &[("authorization", &bearer(ADA)), ("x-api-key", ADA)]).await, ada);
        let local = name(&access, &[("authorization", "bearer 0123456789abcdef")]).await;
        assert_eq!(local.as_deref(), Some(Principal::local().name()));
        for bad in [
            &[][..],
            &[("authorization", "")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Basic 0123456789abcdef")],
            &[("authorization", "0123456789abcdef")],
            &[("x-api-key", "")],
            &[("x-api-key", "Bearer fedcba9876543210")],
            &[("authorization", "Bearer 0123456789abcdef"), ("x-api-key", ADA)],
            &[("authorization", "Bearer nonsense"), ("x-api-key", ADA)],
            &[("authorization", "Basic fedcba9876543210"), ("x-api-key", ADA)],
            &[("authorization", ""), ("x-api-key", ADA)],
            &[("x-api-key", "x"), ("authorization", "Bearer fedcba9876543210")],
        ] {
            assert_eq!(name(&access, bad).await, None, "{bad:?}");
        }
        assert!(name(&Access::Open(Principal::local()), &[]).await.is_some());
        for bad in ["short", "has blanks in it, many", "ümlaute-ümlaute-ü"] {
            assert_eq!(Token::new(Principal::local(), bad, Permissions::all()).err(), Some(BadToken), "{bad}");
        }
    }

    #[tokio::test]
    async fn repeated_headers_must_agree() {
        let mut headers = HeaderMap::new();
        for value in ["Bearer fedcba9876543210", "Bearer fedcba9876543210"] {
            headers.append("authorization", value.parse().unwrap());
            assert!(access().authenticate(&headers).await.is_ok());
        }
        headers.append("authorization", "Bearer 0123456789abcdef".parse().unwrap());
        assert!(access().authenticate(&headers).await.is_err());
    }

    #[tokio::test]
    async fn a_caller_without_a_token_cannot_approve_or_manage() {
        let caller = Access::Open(Principal::local()).authenticate(&HeaderMap::new()).await.unwrap();
        assert!(caller.require(Permission::Execute).is_ok());
        for denied in [Permission::Approve, Permission::Admin] {
            assert_eq!(caller.require(denied), Err(Refusal::Permission(denied)));
        }
    }

    #[test]
    fn a_generated_secret_has_256_bits_and_a_form_of_its_own() {
        let (one, other) = (GeneratedSecret::new().unwrap(), GeneratedSecret::new().unwrap());
        assert_ne!(one.secret, other.secret);
        assert!(is_generated(&one.secret), "{}", one.secret);
        assert_eq!(one.hash, hex::encode(hash(&one.secret)));
        assert!(!format!("{one:?}").contains(&one.secret));
        for bad in ["", "cm_", &one.secret[1..], &format!("{}x", one.secret), &one.secret.replace("cm_", "cn_")] {
            assert!(!is_generated(bad), "{bad}");
        }
    }
}
