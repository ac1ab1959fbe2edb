//! Bearer tokens, and the principal that each of them authenticates.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::principal::Principal;

/// Shorter tokens could be guessed.
const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 512;

/// One token, stored and compared as its hash only.
#[derive(Clone)]
pub struct Token {
    principal: Principal,
    hash: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("principal", &self.principal).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters and no spaces")]
pub struct BadToken;

impl Token {
    pub fn new(principal: Principal, secret: &str) -> Result<Self, BadToken> {
        let fits = (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&secret.len());
        if !fits || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadToken);
        }
        Ok(Self { principal, hash: hash(secret) })
    }
}

/// How clients are authenticated.
#[derive(Clone, Debug)]
pub enum Access {
    /// A client needs one of these tokens.
    Tokens(Vec<Token>),
    /// Every client that reaches the port acts for this principal.
    Open(Principal),
}

impl Access {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Returns the principal of an `Authorization` header. It compares all tokens, so that the time taken does not
    /// depend on which one matches.
    pub(crate) fn principal(&self, header: Option<&str>) -> Option<Principal> {
        match self {
            Self::Open(principal) => Some(principal.clone()),
            Self::Tokens(tokens) => {
                let given = hash(bearer(header?)?);
                let mut found = None;
                for token in tokens {
                    if bool::from(token.hash.ct_eq(&given)) {
                        found = Some(token.principal.clone());
                    }
                }
                found
            }
        }
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_TOKEN_BYTES).then(|| token.trim())
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::{Access, BadToken, Token};
    use crate::Principal;

    #[test]
    fn only_a_valid_bearer_token_authenticates_its_principal() {
        let ada = Principal::named("ada").unwrap();
        let tokens = vec![
            Token::new(Principal::local(), "0123456789abcdef").unwrap(),
            Token::new(ada.clone(), "fedcba9876543210").unwrap(),
        ];
        assert!(!format!("{tokens:?}").contains("0123"));
        let access = Access::Tokens(tokens);
        assert_eq!(access.principal(Some("Bearer fedcba9876543210")), Some(ada));
        assert_eq!(access.principal(Some("bearer 0123456789abcdef")), Some(Principal::local()));
        for bad in
            [None, Some(""), Some("Bearer"), Some("Bearer "), Some("Basic 0123456789abcdef"), Some("0123456789abcdef")]
        {
            assert_eq!(access.principal(bad), None, "{bad:?}");
        }
        assert!(Access::Open(Principal::local()).principal(None).is_some());
        for bad in ["short", "has blanks in it, many", "ümlaute-ümlaute-ü"] {
            assert_eq!(Token::new(Principal::local(), bad).err(), Some(BadToken), "{bad}");
        }
    }
}
