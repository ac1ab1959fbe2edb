//! Tokens of one server: kept in a file, used while they last, renewed by one at a time.

mod file;

use std::path::PathBuf;

use tokio::sync::Mutex;
use url::Url;

pub(crate) use file::{Grant, TokenFile, now_secs};

use crate::client::http::Challenge;
use crate::client::spec::{Login, MAX_SHOWN_NAME_CHARS, shown};
use crate::client::wire::{RenewError, renew};

/// A token is renewed this long before it ends, so that it does not end on its way.
const EARLY_SECS: u64 = 60;

#[derive(Debug)]
pub(crate) struct Tokens {
    server: String,
    url: Url,
    file: TokenFile,
    /// Held while a token is renewed: who comes meanwhile gets the new one. None until it was looked for.
    grant: Mutex<Option<Grant>>,
}

/// Why there is no token to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// Nobody but a person can help.
    LoginNeeded,
    /// The issuer could not be asked; another time it may.
    Later(String),
}

impl From<RenewError> for NoToken {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Refused => Self::LoginNeeded,
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

    /// Whose they are, as messages name it.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// For whoever logs in next. Without it the login asks around.
    pub(crate) fn keep_refusal(&self, challenge: &Challenge) {
        drop(self.file.write_refusal(challenge));
    }

    /// The token to send; none where nobody has logged in.
    pub(crate) async fn current(&self) -> Result<Option<String>, NoToken> {
        let mut ours = self.grant.lock().await;
        let Some(grant) = ours.clone() else { return Ok(None) };
        let now = now_secs();
        if !grant.ends_by(now + EARLY_SECS) {
            return Ok(Some(grant.access_token));
        }
        match self.renewed(&mut ours, &grant).await {
            Ok(token) => Ok(Some(token)),
            // It may last for what it is needed for.
            Err(RenewError::Failed(_)) if !grant.ends_by(now) => Ok(Some(grant.access_token)),
            Err(error) => Err(error.into()),
        }
    }

    /// A token other than the one that the server refused.
    pub(crate) async fn newer_than(&self, refused: &str) -> Result<String, NoToken> {
        let mut ours = self.grant.lock().await;
        match ours.clone() {
            Some(grant) if grant.access_token != refused => Ok(grant.access_token),
            Some(grant) => Ok(self.renewed(&mut ours, &grant).await?),
            None => Err(NoToken::LoginNeeded),
        }
    }

    /// Another than this one, where somebody has logged in since.
    pub(crate) async fn since(&self, refused: &str) -> Option<String> {
        let mut ours = self.grant.lock().await;
        let theirs = self.file.read().filter(|grant| grant.access_token != refused)?;
        *ours = Some(theirs.clone());
        Some(theirs.access_token)
    }

    async fn renewed(&self, ours: &mut Option<Grant>, old: &Grant) -> Result<String, RenewError> {
        let _one_process_at_a_time = self.file.lock().await.map_err(|error| RenewError::Failed(error.to_string()))?;
        let grant = match self.file.read() {
            // Another process was faster, or somebody has logged in again.
            Some(theirs) if theirs.access_token != old.access_token => theirs,
            _ => match renew(&self.url, old).await {
                Ok(new) => {
                    // One that could not be written still serves this process.
                    drop(self.file.write(&new));
                    new
                }
                Err(RenewError::Refused) => {
                    // It will be refused for ever; asking again would only make the issuer suspicious.
                    self.file.remove();
                    *ours = None;
                    return Err(RenewError::Refused);
                }
                Err(error) => return Err(error),
            },
        };
        *ours = Some(grant.clone());
        Ok(grant.access_token)
    }
}
