//! Tokens of the store, as a server uses them: looked up at most once a second, and watched for their end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use store::{Millis, Store, StoredToken};
use telemetry::LogIgnored;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::limits::{TOKEN_CACHE_TTL, TOKEN_POLL_INTERVAL, TOKEN_USE_INTERVAL};
use crate::permissions::Permissions;
use crate::principal::Principal;
use crate::refusal::Refusal;

type Hash = [u8; 32];

/// The tokens of a store. Clones share what they know.
#[derive(Clone, Debug)]
pub struct StoredTokens {
    store: Store,
    known: Arc<Mutex<HashMap<Hash, KnownToken>>>,
}

/// A token in force that was used. Their number is bounded by the number of tokens in force, because unknown ones are
/// not cached.
#[derive(Debug)]
struct KnownToken {
    caller: Caller,
    expires_at: Option<Millis>,
    /// When the query began that found the token in force.
    checked_at: Instant,
    /// When its use was last recorded.
    recorded_at: Option<Instant>,
}

impl StoredTokens {
    pub fn new(store: Store) -> Self {
        Self { store, known: Arc::default() }
    }

    /// Returns the caller that the secret with this hash authenticates.
    pub(crate) async fn caller(&self, hash: Hash) -> Result<Option<Caller>, Refusal> {
        let caller = match self.cached(&hash) {
            Some(caller) => Some(caller),
            None => {
                let began = Instant::now();
                let found = self.store.token_by_hash(&hex::encode(hash)).await.map_err(|error| {
                    tracing::warn!(error = telemetry::error_chain(&error), "cannot look up a token");
                    Refusal::Unavailable
                })?;
                self.note(hash, found.as_ref(), began)
            }
        };
        if let Some(caller) = &caller {
            self.record_use(&hash, caller);
        }
        Ok(caller)
    }

    fn cached(&self, hash: &Hash) -> Option<Caller> {
        let known = self.known.lock();
        let token = known.get(hash)?;
        let expired = token.expires_at.is_some_and(|expires_at| expires_at <= now());
        (!expired && token.checked_at.elapsed() < TOKEN_CACHE_TTL).then(|| token.caller.clone())
    }

    /// Records what a query found, and returns the caller if the token is in force. A token that no longer is, or that
    /// has other permissions than before, ends.
    fn note(&self, hash: Hash, found: Option<&StoredToken>, began: Instant) -> Option<Caller> {
        let valid =
            found.filter(|token| token.is_in_force(now()) && token.hash == hex::encode(hash)).and_then(identity);
        let mut known = self.known.lock();
        let same = |token: &KnownToken| {
            let caller = &token.caller;
            valid.as_ref().is_some_and(|(principal, permissions)| {
                caller.principal == *principal
                    && caller.permissions == *permissions
                    && found.is_some_and(|found| found.token_id == caller.token)
            })
        };
        if known.get(&hash).is_some_and(|token| !same(token))
            && let Some(ended) = known.remove(&hash)
        {
            tracing::info!(token = ended.caller.token, "a token is no longer in force; its connections are closed");
            ended.caller.revoked.cancel();
        }
        let ((principal, permissions), found) = (valid?, found?);
        let token = known.entry(hash).or_insert_with(|| KnownToken {
            caller: Caller { principal, token: found.token_id.clone(), permissions, revoked: CancellationToken::new() },
            expires_at: None,
            checked_at: began,
            recorded_at: None,
        });
        token.expires_at = found.expires_at;
        token.checked_at = token.checked_at.max(began);
        Some(token.caller.clone())
    }

    /// Polls the store for the end of tokens in use. While the store is unavailable, open connections stay open, but no
    /// request is admitted.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep(TOKEN_POLL_INTERVAL).await;
            let used: Vec<Hash> = self.known.lock().keys().copied().collect();
            if used.is_empty() {
                continue;
            }
            let began = Instant::now();
            let tokens = match self.store.tokens().await {
                Ok(tokens) => tokens,
                Err(error) => {
                    tracing::warn!(error = telemetry::error_chain(&error), "cannot check whether tokens were revoked");
                    continue;
                }
            };
            let by_hash: HashMap<&str, &StoredToken> =
                tokens.iter().map(|token| (token.hash.as_str(), token)).collect();
            for hash in used {
                self.note(hash, by_hash.get(hex::encode(hash).as_str()).copied(), began);
            }
        }
    }

    /// Records a token's use, at most once per `TOKEN_USE_INTERVAL`, without delaying the request.
    fn record_use(&self, hash: &Hash, caller: &Caller) {
        {
            let mut known = self.known.lock();
            let Some(token) = known.get_mut(hash) else { return };
            if token.recorded_at.is_some_and(|at| at.elapsed() < TOKEN_USE_INTERVAL) {
                return;
            }
            token.recorded_at = Some(Instant::now());
        }
        let (store, token_id) = (self.store.clone(), caller.token.clone());
        tokio::spawn(async move {
            store.touch_token(&token_id, now()).await.log_ignored("record the use of a token");
        });
    }
}

/// Returns the principal and the permissions of a stored token; `None` if another program wrote nonsense.
fn identity(token: &StoredToken) -> Option<(Principal, Permissions)> {
    Some((Principal::named(&token.name).ok()?, Permissions::parse(&token.scopes).ok()?))
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}
