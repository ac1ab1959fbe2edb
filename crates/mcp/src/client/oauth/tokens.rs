//! The OAuth tokens of one server: stored in a file, and renewed by one process at a time.

use std::path::PathBuf;

use telemetry::LogIgnored;
use tokio::sync::Mutex;
use url::Url;

use super::challenge::Challenge;
use super::token_file::{Grant, TokenFile, now_secs};
use crate::client::spec::{Login, MAX_SHOWN_NAME_CHARS, shown};
use crate::client::wire::{RenewError, renew};

/// A token is renewed this long before it expires, so that it does not expire in transit.
const EARLY_SECS: u64 = 60;

/// The tokens of one server.
#[derive(Debug)]
pub(crate) struct Tokens {
    server: String,
    url: Url,
    file: TokenFile,
    /// Locked while a token is renewed, so that concurrent callers get the new one. `None` if there is no login.
    grant: Mutex<Option<Grant>>,
}

/// Why there is no token to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingToken {
    /// A person must log in.
    LoginNeeded,
    /// The issuer could not be reached; a later attempt may succeed.
    Later(String),
}

impl From<RenewError> for MissingToken {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::LoginNeeded => Self::LoginNeeded,
            RenewError::Failed(why) => Self::Later(why),
        }
    }
}

impl Tokens {
    pub(crate) fn new(server: &str, url: &Url, login: &Login) -> Self {
        let file = TokenFile::new(PathBuf::clone(&login.tokens), server, url.as_str());
        let grant = Mutex::new(file.read());
        Self { server: shown(server, MAX_SHOWN_NAME_CHARS), url: url.clone(), file, grant }
    }

    /// Returns the server's name for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Stores the server's challenge for the next login. Without it the login has to discover the issuer.
    pub(crate) fn keep_challenge(&self, challenge: &Challenge) {
        self.file.write_challenge(challenge).log_ignored("store a login challenge");
    }

    /// Returns the token to send, or `None` if there is no login.
    pub(crate) async fn current(&self) -> Result<Option<String>, MissingToken> {
        let mut current = self.grant.lock().await;
        let Some(grant) = current.clone() else { return Ok(None) };
        let now = now_secs();
        if !grant.ends_by(now + EARLY_SECS) {
            return Ok(Some(grant.access_token));
        }
        match self.renewed(&mut current, &grant).await {
            Ok(token) => Ok(Some(token)),
            // The old token is still valid and may suffice for this request.
            Err(RenewError::Failed(_)) if !grant.ends_by(now) => Ok(Some(grant.access_token)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a token other than the one that the server rejected.
    pub(crate) async fn newer_than(&self, refused: &str) -> Result<String, MissingToken> {
        let mut current = self.grant.lock().await;
        match current.clone() {
            Some(grant) if grant.access_token != refused => Ok(grant.access_token),
            Some(grant) => Ok(self.renewed(&mut current, &grant).await?),
            None => Err(MissingToken::LoginNeeded),
        }
    }

    /// Returns another token than the rejected one, if there has been a new login since.
    pub(crate) async fn since(&self, refused: &str) -> Option<String> {
        let mut current = self.grant.lock().await;
        let stored = self.file.read().filter(|grant| grant.access_token != refused)?;
        *current = Some(stored.clone());
        Some(stored.access_token)
    }

    async fn renewed(&self, current: &mut Option<Grant>, old: &Grant) -> Result<String, RenewError> {
        let _one_process_at_a_time = self.file.lock().await.map_err(|error| RenewError::Failed(error.to_string()))?;
        let grant = match self.file.read() {
            // Another process has renewed it, or there has been a new login.
            Some(stored) if stored.access_token != old.access_token => stored,
            _ => match renew(&self.url, old).await {
                Ok(new) => {
                    // If the write fails, this process can still use the token.
                    self.file.write(&new).log_ignored("store a renewed token");
                    new
                }
                Err(RenewError::LoginNeeded) => {
                    // The issuer will never accept it again; further attempts would only look suspicious.
                    tracing::info!(server = %self.server, "a login is no longer valid and was deleted");
                    self.file.remove();
                    *current = None;
                    return Err(RenewError::LoginNeeded);
                }
                Err(error) => return Err(error),
            },
        };
        *current = Some(grant.clone());
        Ok(grant.access_token)
    }
}
