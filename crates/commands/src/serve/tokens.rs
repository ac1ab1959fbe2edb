//! HTTP tokens: one that is generated for the local user, named ones from a file, and those of the store.

use std::path::Path;

use http_server::{Access, Permissions, Principal, StoredTokens, Token};
use telemetry::Redactor;

use super::arguments::HttpPortArguments;
use crate::state::{State, StateError, read_secret};

/// The variable whose token replaces the generated one.
const TOKEN: &str = "CELLMATE_TOKEN";

#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{place}: {reason}")]
    Bad { place: String, reason: String },
}

/// Returns who may connect, and a note on where the operator finds the token.
pub(super) fn access(
    arguments: &HttpPortArguments,
    state: &State,
    stored: &StoredTokens,
) -> Result<(Access, String), TokenError> {
    if arguments.no_token {
        return Ok((Access::Open(Principal::local()), "no token is required".to_owned()));
    }
    let (secret, place) = match std::env::var(TOKEN) {
        Ok(secret) => (secret, format!("the token is in ${TOKEN}")),
        Err(_) => (state.secret("token")?, format!("the token is in {}", state.path("token").display())),
    };
    Redactor::global().register(&secret);
    let bad = |place: &str, reason: String| TokenError::Bad { place: place.to_owned(), reason };
    let local = Token::new(Principal::local(), secret.trim(), Permissions::all());
    let local = local.map_err(|error| bad(TOKEN, error.to_string()))?;
    let mut tokens = vec![local];
    if let Some(path) = &arguments.tokens {
        tokens.extend(named(path)?);
    }
    Ok((Access::Tokens { fixed: tokens, stored: Some(stored.clone()) }, place))
}

fn named(path: &Path) -> Result<Vec<Token>, TokenError> {
    let text = read_secret(path)?;
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            token(line).map_err(|reason| TokenError::Bad { place: format!("{}:{number}", path.display()), reason })
        })
        .collect()
}

fn token(line: &str) -> Result<Token, String> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(secret)) = (words.next(), words.next()) else {
        return Err(
            "expected a name, a space and a token, and permissions if it needs others than `execute,read`".to_owned()
        );
    };
    Redactor::global().register(secret);
    let principal = Principal::named(name).map_err(|error| error.to_string())?;
    let permissions = match (words.next(), words.next()) {
        (None, _) => Permissions::for_agents(),
        (Some(permissions), None) => Permissions::parse(permissions).map_err(|error| error.to_string())?,
        (Some(_), Some(_)) => return Err("expected a name, a token and permissions, separated by spaces".to_owned()),
    };
    Token::new(principal, secret, permissions).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::token;

    #[test]
    fn a_token_line_needs_a_valid_name_and_a_long_token() {
        assert!(token("ada 0123456789abcdef").is_ok());
        assert!(token("ada\t0123456789abcdef  execute,approve").is_ok());
        for bad in [
            "ada",
            "ada short",
            "a/b 0123456789abcdef",
            "ada 0123456789abcdef everything",
            "ada 0123456789abcdef execute read",
        ] {
            assert!(token(bad).is_err(), "{bad}");
        }
    }
}
